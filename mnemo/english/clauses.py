"""Clauses: split sentences, strip interjections, fillers and vocatives, restore a left-out "I"."""

from __future__ import annotations

import re
from collections.abc import Callable

from mnemo.english.verbs import finite_verb, is_order, tokens_of
from mnemo.english.words import (
    ADVERBS,
    BASE_VERBS,
    DESCRIPTIONS,
    LIGHT,
    PARTICIPLES,
    content_count,
    is_past,
    word_set,
)
from mnemo.runtime.text import STOP_WORDS, fold

_LEAD = re.compile(
    r"^(?:(?:(?:and|but|so|oh),?\s+)?(?:wow|oops|oh|ah|aw+|ooh|oof|ugh|hey|hi+|hello|yea|yeah|yep|yup"
    r"|yes|yay|nah|well|so|and|but|or|also|plus|anyways?|honestly|btw|by the way|ok|okay|alright"
    r"|right|sure|absolutely|definitely|totally|exactly|of course|thanks|thank you|congrats"
    r"|congratulations|cool|nice|great|awesome|lol|haha+|hm+|mm+|um+|uh+|man|dude|omg|whoa|woah"
    r"|you know|i mean|to be honest|tbh|in fact|as you know|no worries|no problem|no|good news|then"
    r"|fyi|that being said|that said|on another note|for example|now|look|listen"
    r"|however|sorry|please|nice one|good one)"
    r"(?:\s+(?:so much|a lot|again|everyone|guys|there))?"
    r"(?:\s*[,!:;…—–]+\s*|\s*-+\s+|\s*\.{2,}\s*|\s*$))+",
    re.IGNORECASE,
)
# The same words without a comma behind them: only those that can never begin a clause.
_LEAD_BARE = re.compile(
    r"^(?:(?:and|but|or|plus|also|oh|yeah|yep|anyway|wow|hey|hi|btw)\s+"
    r"|(?:so|well|then|now)\s+(?=(?:i|we|my|our|the|it|they|he|she|there)(?:['’]\w+)?\s))+",
    re.IGNORECASE,
)
_LEAD_NAME = re.compile(
    r"^(?:(?:hey|hi|hello|wow|thanks|yeah|yep|yes|ok|okay|oh|nice one|totally|no)[,!]?\s+)?"
    r"([A-Z][\w]*)\s*[,!.:–-]+\s+",
    re.IGNORECASE,
)
_INNER_NAME = re.compile(r",\s+([A-Z]\w*)(?=,\s)")
_TAIL_NAME = re.compile(r",?\s+([A-Z]\w*)\s*([.!…]*)$")
_TAIL_FILLER = re.compile(
    r"(?:,\s*(?:too|as well|though|tho|right|man|dude|guys|buddy|pal|girl|bro|please|thanks)"
    r"|,?\s+(?:lol|haha+|xd|btw|by the way|thank you|you know)"
    r"|,?\s+[a-z]+n['’]t (?:I|it|he|she|they|we|you)"
    r"|,?\s+(?:and|so|but)?,?\s*(?:please )?let me know\b.*|,?\s+(?:and |so |but )?here(?:['’]s"
    r"| is| are)\b.*)(?=[\s.!…]*$)",
    re.IGNORECASE,
)


def bare(sentence: str) -> str:
    """Strip leading interjections and connectives and trailing fillers from *sentence*."""
    return _TAIL_FILLER.sub("", without_lead(sentence)).strip()


def without_lead(sentence: str) -> str:
    """Strip leading interjections and connectives from *sentence*."""
    return _LEAD_BARE.sub("", _LEAD.sub("", sentence, count=1), count=1).strip()


def without_vocatives(sentence: str, is_name: Callable[[str], bool]) -> str:
    """Strip vocatives: a party's name that only addresses it ("Wow, Mel!")."""
    lead = _LEAD_NAME.match(sentence)
    if lead and is_name(lead.group(1).lower()):
        sentence = sentence[lead.end() :]
    inner = _INNER_NAME.search(sentence)
    if inner and is_name(inner.group(1).lower()):
        sentence = sentence[: inner.start()] + sentence[inner.end() :]
    tail = _TAIL_NAME.search(sentence)
    if tail and is_name(tail.group(1).lower()) and (tail.group()[0] == "," or tail.start() == 0):
        sentence = sentence[: tail.start()] + tail.group(2)
    return sentence


_JOINT = re.compile(
    r"\s*;\s+"
    r"|(?:,\s*|\s+)(?P<and>and|but)\s+(?=(?:I|i|I['’]\w+|i['’]\w+|we|we['’]\w+|my|our"
    r")\s|(?P<name>[A-Z][\w'’]+)\s)"
    r"|\s+(?P<dash>[-–—]+)\s+(?=(?:I|we|my|our|I['’]\w+|we['’]\w+|can|could|would|will"
    r"|here['’]?s)\s)"
    r"|[,\s]\s*(?:and |so |but )?(?P<ask>)(?=(?:can|could|would|will) you\b)"
    r"|,\s*(?:and |so |but )?(?P<which>)(?=(?:what|how|where|when|why|which|who|is|are|do|does|can"
    r"|should)\b[^,]{3,200}\?$)"
    r"|,\s+(?P<comma>)(?=(?:also\s+|and\s+)?(?:I|i|I['’](?:m|ve|ll|d)|my|our|here['’]s|here is)\s)"
)
_SUBORDINATE = re.compile(
    r"^(?:if|when|whenever|because|although|though|since|while|as|after|before|until|unless|once"
    r"|whether|even|either|both|not only|by|given|every time|the (?:more|moment|day|time))\b",
    re.IGNORECASE,
)
_HANGING = re.compile(
    r"\b(?:if|when|whenever|because|although|though|while|unless|once|whether|where|that|since"
    r"|as(?! (?:an?|the|my|our|of)\b)|so|considering|given|assuming|between)\b",
    re.I,
)
_UNSURE = re.compile(
    r"\b(?:it|its|they|them|their|he|she|him|her|his|this|that|these|those)\b", re.I
)
# "I quit" and "I'm Ana" say enough in two words.
_OWN_ACT = re.compile(r"^(?:(?:I|we) [a-z]+|(?:I['’]m|we['’]re) [\w-]+)$", re.IGNORECASE)
_ASKS = re.compile(r"^(?:can|could|would|will|please|here)\b", re.IGNORECASE)
# Nobody is asked to want or to feel: at the start these have lost their "I".
_STATES = word_set(
    "want need like love know think hope wish believe feel guess mean see hear hate prefer"
)
_BEFORE_ORDER = word_set("don't never always just please")


def has_verb(clause: str) -> bool:
    """Whether *clause* has a finite verb."""
    return finite_verb(tokens_of(clause)) is not None


def is_imperative(clause: str) -> bool:
    """Whether *clause* begins with the base form of a verb that nothing later makes a noun."""
    words = tokens_of(clause[:80])
    while len(words) > 1 and words[0].lower() in _BEFORE_ORDER:
        words = words[1:]
    first = words[0].lower() if words else ""
    if not clause[:1].isalpha() or first in _STATES or not is_order(words):
        return False
    return finite_verb(words[:6]) is None


def split_clauses(sentence: str) -> list[str]:
    """Split at ";" and between clauses that can each stand alone, with subject and verb."""
    clauses = [""]
    at = 0
    for joint in _JOINT.finditer(sentence):
        if joint.start() < at:
            continue
        left, right = clauses[-1] + sentence[at : joint.start()], sentence[joint.end() :]
        if _stands(left) and _stands_after(right, joint):
            clauses[-1] = left.strip(" ,-–—")
            clauses.append("")
        else:
            clauses[-1] += sentence[at : joint.end()]
        at = joint.end()
    clauses[-1] = (clauses[-1] + sentence[at:]).strip()
    return [clause for clause in clauses if clause]


def _stands(left: str) -> bool:
    if left.count('"') % 2 or left.count("(") != left.count(")"):
        return False
    if len(left.split()) < 3 and not _OWN_ACT.match(left):
        return False
    if _ASKS.match(left):
        return True
    return has_verb(left) and not (_SUBORDINATE.match(left) or _HANGING.search(left))


def _stands_after(right: str, joint: re.Match[str]) -> bool:
    if joint["ask"] is not None or joint["which"] is not None:
        return True
    if ";" in joint.group():
        # "The cache caused lock errors; replaced by Redis" has one subject.
        part = right.split(";", 1)[0].strip()
        first = part.split(None, 1)[0].lower() if part else ""
        return has_verb(part) and not (first in _DONE_TO and _PASSIVE.search(part))
    words = right.split(None, 12)
    if len(words) < 3 or not has_verb(right.split(",", 1)[0]):
        return False
    if joint["name"]:
        return finite_verb(tokens_of(right)) == 1
    if joint["comma"] is not None or joint["dash"]:
        return not _UNSURE.search(" ".join(words[:3]))
    return not _UNSURE.search(right)


# ── A subject left out ───────────────────────────────────────────────────────────────

# Forms that open a sentence more often as a participle or noun than as an act of the speaker.
_NOT_ACTS = DESCRIPTIONS | word_set(
    """
    based given compared combined supposed needed set put cut hit let cost hurt shut upset speaking
    regarding related recommended required updated added supported accepted loved left read said
    thought used bet
    """
)
_WORD = re.compile(r"[A-Za-z]+(?:['’][a-z]+)?")
_PREFIXES = {"gonna": "I'm "} | dict.fromkeys(
    word_set("gotta wanna can't couldn't didn't haven't need feel want hate prefer am"), "I "
)
_DOING = word_set(
    """
    hoping looking planning thinking working trying heading getting taking feeling going starting
    considering saving training learning moving researching living
    """
)
_DONE_TO = word_set(
    """
    approved assigned attached blocked booked cancelled canceled caused closed delivered deployed
    fixed handled hosted included installed located merged owned planned postponed released replaced
    reported rescheduled resolved scheduled
    """
)
_PASSIVE = re.compile(r" (?:to|by|in|as|from|with|for|on|at|out|because|after)\b", re.IGNORECASE)
# "Been busy" may be said of oneself or of the week; "been running" only of oneself.
_BEEN = re.compile(r"\s+(?:(?:\w+ly|really|super|just|so)\s+)?(?:\w{2,}(?:ing|ed)\b|to\b)", re.I)
# "No longer working at the harbour" tells of its speaker, whatever the verb.
_STILL_DOING = re.compile(r"^(?:no longer|not|still|now|currently) \w{2,}ing\b", re.IGNORECASE)
_CLAUSE = re.compile(r",|;|\s(?:but|so|because|[-–—])\s")
_FINITE_LATER = re.compile(
    r"\b[a-z]{3,}s (?:me|us|my)\b|\b(?:is|are|was|were|can|will|would|makes?|has|helps?|brings?"
    r"|gives?|takes?|keeps?)\b"
    r"|['’]s\b",
    re.I,
)


def with_subject(clause: str) -> str:
    """Prepend "I" (and its auxiliary) to a *clause* that begins with the speaker's own act."""
    if _STILL_DOING.match(clause):
        return f"I'm {clause[0].lower()}{clause[1:]}"
    words = _WORD.finditer(clause)
    first = next(words, None)
    if first is None or first.start() != 0:
        return clause
    leading = first.group().lower().replace("’", "'")
    verb, at = leading, 0
    if leading in ADVERBS or (leading.endswith("ly") and len(leading) > 4):
        second = next(words, None)
        if second is None or clause[first.end() : second.start()] != " ":
            return clause
        verb, at = second.group().lower(), second.start()
    prefix = _prefix(verb, clause[at + len(verb) :])
    if not prefix:
        return clause
    adverb = clause[0].lower() + clause[1:at] if at else ""
    return f"{prefix}{adverb}{verb}{clause[at + len(verb) :]}"


def _prefix(verb: str, rest: str) -> str:
    if verb == "been":
        return "I've " if _BEEN.match(rest) else ""
    if verb in _PREFIXES:
        return _PREFIXES[verb]
    if verb in _DOING:
        return "" if _FINITE_LATER.search(_CLAUSE.split(rest, maxsplit=1)[0]) else "I'm "
    if verb in _NOT_ACTS or verb in PARTICIPLES or not is_past(verb) or not rest.startswith(" "):
        return ""
    # "Assigned to Bo", "fixed in May" tell what was done to something.
    if verb in _DONE_TO and _PASSIVE.match(rest):
        return ""
    return "" if verb in ("were", "had", "did", "was") and not rest[1:2].islower() else "I "


# ── Requests ─────────────────────────────────────────────────────────────────────────

_REQUEST = re.compile(
    r"^(?:(?:so|and|but|also|hey|hi|ok|okay|now|then|hmm)[,\s]+)?(?:please\s+)?"
    r"(?:(?:can|could|would|will) (?:you|u|ya)(?: guys)?(?: please| kindly| also| maybe"
    r"| possibly| just)*"
    r"|(?:i (?:need|want|would like)|i['’]d like|i would love|i['’]d love) (?:you|u) to(?: please)?"
    r"|would you mind|please(?: also| just)?"
    r"|(?:is it possible|would it be possible) (?:for you )?to)\s+"
    r"(?P<what>[a-z][^?]{2,}?)(?:,?\s+(?:please|for me|thanks|thank you))*\s*[?!.]*$",
    re.IGNORECASE,
)
_ME = re.compile(
    r"^(?P<verb>[a-z]+)\s+(?:me|us)\s+(?!(?:to|with|about|for|how|when|if|what|where)\b)", re.I
)
_PLEASE = re.compile(r"^(?:please|just)\s+", re.IGNORECASE)
# "Deploy to staging done" tells; "Get the deploy to staging done" asks.
_RESULT = re.compile(
    r"\b(?:done|finished|completed?|failed|succeeded|successful(?:ly)?|passed|aborted|cancell?ed"
    r"|pending|running|in progress|underway|ok|okay)\W*$",
    re.IGNORECASE,
)
_LINKED = re.compile(
    r"\b(?:is|are|be|been|get|gets|getting|got|have|has|make|keep|mark|marked|leave|until|till|when"
    r"|if|once|as|that|which|what)\b",
    re.IGNORECASE,
)


def _is_report(clause: str) -> bool:
    """Whether *clause*, which begins like an order, names a deed and its result."""
    return _RESULT.search(clause) is not None and not _LINKED.search(clause)


def wanted_in(sentence: str) -> str | None:
    """Extract what *sentence* requests, in its own words; ``None`` if it requests nothing."""
    if asked := _REQUEST.match(sentence):
        what = asked["what"].strip()
    elif is_imperative(sentence) and not _is_report(sentence):
        what = _PLEASE.sub("", sentence)
    else:
        return None
    return _ME.sub(lambda match: f"{match['verb']} ", what)


# ── Small talk: greetings, thanks, praise, cheering on, advice ───────────────────────


def _any_of(phrases: str) -> str:
    """One pattern of *phrases*, which a semicolon parts; a tilde joins a line to the next."""
    joined = re.sub(r"~\s*", "", phrases.replace("'", "['’]"))
    return "|".join(p for phrase in re.split(r" ;|\n", joined) if (p := phrase.strip(" ")))


_OPENINGS = re.compile(
    "^(?:"
    + _any_of(
        r"""
        let'?s\b ; let us\b ; let me\b ; here(?:'s| is| are| it| you| we) ; see you ; see ya
        (?:sleep|rest) (?:tight|well) ; best wishes ; catch you ; farewell\b ; hello\b ; good ?bye\b
        talk to you ; (?:talk|speak) soon ; safe (?:travels|trip|journey|flight) ; take care
        have (?:a|fun) ; can't wait ; cannot wait ; keep (?:it|up|me|going|on|in|us|doing|pushing)
        sounds?\b ; looks?\b ; nice\b ; great\b ; good\b ; lov(?:e|ing)\b ; glad\b
        happy (?:to|that|for) ; wishing\b ; sending\b ; hope\b ; hang in
        so (?:glad|happy|proud|cool|sorry|excited|great|nice|sweet|inspiring|true|much|many|good)
        hoping (?:you|it|that you) ; enjoy\b ; don't (?:worry|give up|forget|stop) ; way to go
        best of luck ; thank ; thx ; congrat ; welcome ; no (?:worries|problem|doubts?)
        my pleasure ; sorry\b ; how \w+\b ; what (?:a|an)\b ; agreed ; such a\b ; believe me
        trust me ; long time no ; guess what ; never give up ; look at ; take a look ; never ?mind
        check (?:it|this|them|that|out|your)\b ; feel free ; remember\b ; imagine\b ; same here
        me too ; go for it ; note that ; please note ; totally agree ; can't agree ; couldn't agree
        highly recommend ; super\b ; really (?:glad|happy|proud|excited|appreciate) ; understand\b
        appreciate\b ; good news ; there you go ; that (?:being )?said$
        i (?:totally|completely|fully|100%|so)? ?agree ; i couldn't agree ; this is great ; for sure
        any(?:thing| advice| tips| suggestions)
        (?:that|it|this) (?:looks|sounds|seems|must be|must have|must've) ; especially\b ; which\b
        bet\b ; must (?:be|have) ; cheers\b ; hear you ; you know what ; speaking of which ; my bad
        no way
        """
    )
    + ")",
    re.IGNORECASE,
)

_INSIDE = re.compile(
    r"\b(?:"
    + _any_of(
        r"""
        (?:i'?m|i am|we'?re|i was|i feel|i'm feeling) (?:\w+ ){0,2}(?:glad|happy|proud|sorry~
            |excited|thrilled|stoked|pleased|here|impressed|sure) (?:for (?:you|it|that|this)~
            |that you|of you|of your|to hear|to see (?:you|what|how|it|that)|to help|you|your~
            |about your|it|it'll|they'll|by your|with your|by you|he'll|she'll)
        i(?:'m| am)? (?:really |so |truly |totally |also |just |definitely )?(?:appreciate~
            |hope you|hope your|wish you|hear you|bet|know what you|see what you|love (?:that you~
            |your|how you)|love the way you|admire|can imagine|understand|get it|know you~
            |know how you|get what you)
        can't (?:agree|wait to (?:hear|see (?:you|what|how|it|them|that|your)))
        (?:looking|look) forward to (?:hear|it\b|see(?:ing)? you|catch)
        (?:'d|would) love to (?:hear|see (?:you|it|that|your|some)|know|check)
        i (?:wanted|want|'d like|just wanted) to (?:tell|share|let you|ask|say|hear)
        i(?:'ve)? (?:got|have|had)(?: \w+){0,2} (?:news|questions?|something to (?:tell|share))
        i (?:have to|gotta|must|should) (?:say|admit|go|run|get going) ; let you know
        keep you (?:posted|updated) ; don't know what to say ; thank you ; thanks for
        i'll (?:be there for|talk|check it|keep that|try that|give it|do my best|be sure~
            |definitely (?:check|try|keep|do|let)) ; means? (?:a lot|so much|the world|everything)
        meant (?:a lot|so much|the world) ; good (?:to see|to hear|to know)
        great (?:to see|to hear)
        your (?:\w+ )?(?:support|success|help|words?|encouragement|determination|advice|kindness~
            |passion|energy|positivity|drive|dedication|enthusiasm|attitude|friendship|offer~
            |concern) ; have(?:'ve)? (?:got )?your back ; got your back ; root(?:ing)? for you
        wish me luck ; i (?:really )?(?:don't|do not) know(?: (?:yet|much|why))?$ ; having you
        have you as ; looks? like this[.:]?$ ; the following [^:]*:?$ ; so far:?$
        if you (?:need|want|ever|have) ; i can picture ; been a (?:while|long time|minute)
        (?:a lot|so much)(?:'s| has) (?:changed|happened) ; you(?:'ve)? got this
        """
    )
    + ")",
    re.IGNORECASE,
)


_DEGREE = (
    r"(?:(?:\w+ly|just|also|still|now|so|very|super|always|kinda|kind of|sort of"
    r"|a (?:bit|little))\s+)*"
)
_PASSING = re.compile(
    rf"^(?:\w+ly,? )?(?:i(?:['’]m| am|['’]ve been|['’]ve| have| was| feel| felt)? {_DEGREE}"
    r"|(?=feeling|looking forward|wish))(?:"
    + _any_of(
        r"""
        not(?: \w+)? (?:sure|certain) ; unsure\b ; stuck\b ; wonder ; curious\b ; confused\b
        struggling\b ; having (?:trouble|issues|difficulty|problems|a hard time)
        (?:experiencing|getting|facing|seeing|having) (?:\w+ )?(?:issues?|errors?|problems?)\b
        (?:try|trying) to\b ; (?:need|want|have)(?: \w+)? (?:help|a question|questions)\b
        (?:want|need|wanted|would like|'d like) to (?:make sure|ensure|see|understand|know|be sure~
            |confirm|check|ask)\b ; (?:think|thought|believe|guess|hope|know|mean|wish|bet|doubt)\b
        hoping\b ; wish\b
        looking (?:for (?:help|advice|feedback|suggestions|tips|a way|ways)|forward)\b
        (?:sitting|relaxing|chilling|waiting|heading|unwinding|content|plowing|supposed)\b
        (?:been waiting|got (?:to|back|here|home)|woke up)\b ; (?:gonna|going to|will) keep\b
        had (?:\w+ ){0,4}(?:setback|things happening)\b ; not getting\b
        (?:would like|want|need) to (?:further |also )?improve\b ; feeling\b ; staying\b ; promise\b
        might\b ; probably\b ; should\b ; crossing ; keen\b ; thankful\b ; grateful\b ; optimistic\b
        relieved\b ; worried\b ; excited\b ; happy\b ; glad\b ; proud\b ; thrilled\b ; in awe\b
        upset\b ; hooked\b ; all about\b ; tried\b
        (?:love|like|liked|loved|enjoy|enjoyed|appreciate) (?:the|how|that|this|it|just|to just)\b
        """
    )
    + r")"
    r"|^i['’]d (?:love|like) (?:to (?:see|know|hear|get|learn|understand)|(?:some|your|any|an?) )"
    r"|^i (?:\w+ )?fe(?:el|lt)\b|^(?:every|any|no|some)thing(?:['’]s)? "
    r"|^(?:i|we) (?:could|should) |^we (?:can|gotta|all|learn) |^we['’]ll keep "
    r"|^i['’]ll (?:also |definitely |be sure|make sure|try|keep|check|look into|consider|focus|ask"
    r"|let|start)"
    r"|^(?:what|how|if|together|maybe|perhaps)\b|\bwe all\b",
    re.IGNORECASE,
)


def is_passing(clause: str) -> bool:
    """Whether *clause* tells a doubt, mood or opinion of the moment, or leads to a request."""
    return _PASSING.match(clause) is not None


def is_small_talk(clause: str) -> bool:
    """Whether *clause*, without its leading interjections, is about the talk and not the world."""
    return _OPENINGS.match(clause) is not None or _INSIDE.search(clause) is not None


# ── Notes of a meeting ──────────────────────────────────────────────────────────────────


_NOTE_LABEL = re.compile(
    r"^(?:(?:final|key|team|our|my|the|new|next|open|main|action) ){0,2}"
    r"(?:decisions?|decided|agreed|agreements?|resolutions?|resolved"
    r"|actions?(?: (?:items?|points?))?|to-?dos?|tasks?|next steps?|follow-?ups?|notes?|updates?"
    r"|outcomes?|results?|conclusions?"
    r"|plans?|reminders?|important|fyi|blockers?|risks?|requirements?|preferences?|rules?|policy)"
    r"(?:\s*:\s+|\s+[-–—]\s+)(?P<rest>\S.{3,})$",
    re.IGNORECASE,
)
_VALUE = re.compile(r"^(?P<label>[#\w][\w'’&#.-]*(?: [\w'’&#.-]+){0,5}): (?P<rest>\S.{0,199})$")
_TELLING = re.compile(r"\d|(?:^|\s)[A-Z][\w-]*[a-z]")
_ASSIGNED = re.compile(
    r"^@?[A-Z][\w'’-]*(?:(?: |, | and | & )[A-Z][\w'’-]*)* to (?P<verb>[a-z]+) (?P<what>\S.+)$"
)
_OBJECT = re.compile(r"^(?:the|a|an|my|our|his|her|their|all|every|each|both|\d+|[A-Z])")
# What else stands before "to" and a verb: no name.
_NO_NAME = word_set(
    """
    able afraid attempt chance decision effort free glad happy idea invitation keen option order
    plan ready reason reminder request sorry welcome willing
    """
)


def is_note(clause: str) -> bool:
    """Whether *clause* is a labelled note, a labelled value, or a task given to somebody."""
    if clause.rstrip().endswith("?"):
        return False
    if labelled := _NOTE_LABEL.match(clause):
        return content_count(labelled["rest"]) >= 2 and not is_small_talk(labelled["rest"])
    return _is_value(clause) or _is_task(clause)


def _is_value(clause: str) -> bool:
    found = _VALUE.match(clause)
    if found is None or not _TELLING.search(clause[1:]) or is_small_talk(found["rest"]):
        return False
    label = fold(found["label"]).split()
    if label[0] in ("my", "our", "the"):
        label = label[1:]
    talk = all(word in LIGHT or word in STOP_WORDS for word in label)
    return not talk and not has_verb(found["label"])


def _is_task(clause: str) -> bool:
    found = _ASSIGNED.match(clause)
    if found is None or content_count(found["what"]) < 1:
        return False
    if found["verb"] not in BASE_VERBS and not _OBJECT.match(found["what"]):
        return False
    first = fold(clause.lstrip("@").split(None, 1)[0])
    everyday = first in STOP_WORDS or first in LIGHT or first in BASE_VERBS or first in _NO_NAME
    return not (everyday or first.endswith(("ing", "ed", "ly")))
