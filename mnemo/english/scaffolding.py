"""
Leave out of a question what asks and names no topic: "can you tell me", "list them, please".

English only; a question in another language stays as it is.
"""

from __future__ import annotations

import re

from mnemo.english.words import index_terms

# A verb asks at the beginning of a clause: "list the pets", but not "the shopping list".
_BEGIN = r"(^\W*|[,.;:!?…–—(]\s*|\b(?:and|then|also|just|to) +)(?:(?:can|could|will|would) you +)?"
_MEMORY = r"(?:conversations?|chats?|discussions?|messages?|sessions?|talks?|notes|memory)"
_ASKING = (
    r"(?:tell|remind|show|give|send|teach|inform) (?:me|us)(?: again)?(?: (?:about|of))?\b",
    r"let (?:me|us) know(?: (?:about|if|whether))?\b",
    r"(?:list|name|enumerate)(?: out| down| off)?(?= (?:them|these|those|all|each|every|everything"
    r"|both|any|the|my|our|your|his|her|its|their|which|what|who|where|when|how)\b|\W*$)",
    r"(?:explain|describe|summari[sz]e|outline|specify|identify|recall|look up|find out|figure out)"
    r"(?: (?:to|for) (?:me|us))?\b",
    r"(?:(?:provide|write|make|prepare|compile)(?: (?:me|us))?(?: with)? )?an? (?:\w+,? ){0,3}"
    r"(?:list|overview|summary|table|rundown) of\b|walk (?:me|us) through\b",
    r"(?:the )?order in which (?:i|we) (?:brought up|mentioned|discussed|raised)"
    r"(?: (?:different|various) (?:aspects|parts|topics|points)(?: of)?)?\b",
    r"(?:i )?have an? (?:quick |short )?question(?: (?:about|for you))?\b|quick question\b",
    r"(?:search|check)(?: (?:your|our|the|my))? " + _MEMORY + r"(?: for)?\b",
    r"mention (?:only(?: and only)? )?\w+ (?:items?|things?|points?)(?: in (?:total|order))?\b",
    r"(?:answer|reply|respond)(?: (?:me|briefly|shortly|in \w+ \w+))?(?=\W*$)",
    r"(?:keep it|be) (?:short|brief|concise|specific|precise)\b",
)
_ANYWHERE = (
    r"\b(?:please|pls|plz|kindly|thank you|thanks|thx|cheers)"
    r"(?: (?:so much|very much|a lot|in advance))?\b",
    r"\bi(?:'m| am| was|'ve been| have been)?(?: just)? wonder(?:ing)?(?: (?:about|if|whether))?\b",
    r"\bi(?:'d| would)?(?: really)? (?:want|need|like|love) (?:you )?to "
    r"(?:know|hear|ask|learn|see|find out)(?: (?:about|if|whether))?\b",
    r"\bi(?:'m| am)(?: just)? (?:curious|interested)(?: (?:about|in|to know|if|whether))?\b",
    r"\b(?:do|did|would|can|could|if) you (?:still |happen to )?(?:remember|recall|know)"
    r"(?: (?:about|if|whether))?\b",
    r"\bwould you mind (?:telling|reminding|showing|giving|listing)(?: (?:me|us))?\b",
    r"\bas far as you (?:know|remember|recall|can tell)\b",
    r"\bif (?:i|you) remember (?:right|correctly)\b",
    r"\b(?:any idea|by the way|btw|step by step|one by one|in (?:full )?detail|in brief)\b",
    r"\b(?:in|as) (?:an? |the )?(?:right |correct |chronological )?"
    r"(?:order|list|table|bullet points)(?=\W*$|[,.;:!?()])",
    r"\b(?:based on|from|in|across|through|throughout|during) (?:all )?(?:of )?our "
    r"(?:previous |past |earlier |last )?" + _MEMORY + r"\b",
    r"\b(?:as|like|which|that)? ?(?:i|we) (?:have |had |'ve )?(?:told you|mentioned)(?: to you)?"
    r"(?: (?:about|earlier|before))*(?=\W*$|[,.;:!?()])",
)
# Who said it is kept: it names a speaker.
_WHO = (
    r"\baccording to\b",
    r"\bin (?=[^\W_]+(?:'s|s') (?:own )?(?:words|opinion|view)\b)",
    r"(?<=s) (?:own )?(?:words|opinion|view)(?=\W*$|[,.;:!?()])",
)
_SAID_ABOUT = re.compile(
    r"\bwhat (?:did|does|has|have|had) ((?:[^\W_]+['’ ]+){0,3}?[^\W_]+) (?:ever |already )?"
    r"(?:say|said|tell|told|mention|mentioned|think)(?: (?:to )?(?:me|us|you|him|her|them))? "
    r"(?:about|of|regarding)\b",
    re.IGNORECASE,
)
_BEGINNINGS = re.compile(f"{_BEGIN}(?:{'|'.join(_ASKING)})", re.IGNORECASE)
_PHRASES = re.compile("|".join((*_ANYWHERE, *_WHO)), re.IGNORECASE)
_LONGEST_READ = 1_000
# Punctuation that a phrase leaves behind; none that a word follows at once, as in "v1.2".
_GAPS = re.compile(
    r"(?<=[.?!])[.?!,\s]+$|[([]\s*[])]|\s+(?=[,.;:?!)]+(?:\s|$))"
    r"|[,;:](?=[\s,.;:!?]*[,.;:!?](?:\s|$))"
)
_LOOSE = re.compile(r"^(?:\W|(?:and|then|also|that)\b)+|(?:[\s,;:]|\band\b)+(?=[.?!]*$)")


def without_scaffolding(question: str) -> str:
    """
    Return *question* without the phrases that only ask, wherever they stand.

    "I was wondering, can you list the boats, according to Bo? Thanks!" gives "the boats, Bo?":
    who is asked about stays. Where nothing else is said, the question stays as it is, so that
    it never loses its last index term; and where it has more than 1,000 characters.
    """
    if len(question) > _LONGEST_READ:
        return question
    plain = question.replace("’", "'")
    if (said := _once(plain)) == plain:
        return question
    while (shorter := _once(said)) != said:
        said = shorter
    return said if any(index_terms(said)) else question


def _once(text: str) -> str:
    asked = _PHRASES.sub(" ", _BEGINNINGS.sub(r"\1 ", text))
    said = _SAID_ABOUT.sub(r"\1", asked)
    return text if said == text else _LOOSE.sub("", _GAPS.sub("", " ".join(said.split())))
