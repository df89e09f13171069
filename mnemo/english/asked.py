"""Read what a question asks for: an attribute of whom, a kind of value, the person itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from mnemo.english.entities import dates, names, numbers, subject, verb_of
from mnemo.english.slot_table import ATTRIBUTES, SPELLINGS, SYNONYMS
from mnemo.english.slots import claims
from mnemo.english.verbs import tokens_of
from mnemo.english.words import MONTHS, NUMBER_WORDS, WEEKDAYS, index_terms
from mnemo.runtime.text import STOP_WORDS, fold, stem, words

_WAYS = {
    ("job", "employer"): r"\b(?:job|occupation|profession|career|work(?:s|ing)? as"
    r"|(?:do|does|did) (?:\w+ ){1,3}(?:do )?(?:for a living|for work|professionally)"
    r"|earns? (?:\w+ ){1,2}(?:living|money)|line of work"
    r"|(?:where|which company|what company|who) (?:\w+ ){0,4}work(?:s|ing)?"
    r"|employer|workplace|employed by|works? (?:for|at))\b",
    ("residence", "address"): r"\b(?:(?:where|(?:which|what) (?:city|town|country|place)) "
    r"(?:\w+ ){0,4}(?:live[sd]?|living|reside[sd]?|based|home)"
    r"|home town|hometown|place of residence|home address)\b",
    (
        "boss",
    ): r"\b(?:boss|manager|supervisor|superior|reports? to|in charge of (?:her|him|them))\b",
    ("rent",): r"\b(?:rent|(?:pays?|paying|costs?) (?:\w+ ){0,4}(?:flat|apartment|house|room|home)"
    r"|(?:flat|apartment|house|room) (?:\w+ ){0,3}costs?)\b",
    ("age",): r"\b(?:how old|age)\b",
    ("relationship",): r"\b(?:married|single|engaged|relationship|dating|partner|spouse|wife"
    r"|husband)\b",
    (
        "phone number",
    ): r"\b(?:phone|mobile|telephone|cell) ?(?:number)?\b|\bcall (?:her|him|them)\b",
}
"""Attributes → how a question asks for them."""
_KINDS: tuple[tuple[re.Pattern[str], frozenset[str]], ...] = tuple(
    (re.compile(way), frozenset(kinds.split()))
    for way, kinds in (
        (
            r"\bhow (?:much|expensive)\b|\b(?:cost|price|salary|wage|budget|earn|rent|fee)s?\b"
            r"|\bwhat (?:\w+ ){1,5}pa(?:y|ys|id)\b|\bwie (?:viel|teuer|hoch)\b|\bwas kostet\b"
            r"|\bcuanto (?:cuesta|paga|vale|gana|cobra)\b|多少钱|价格|工资|房租",
            "money number",
        ),
        (
            r"\bhow (?:many|old|far|long|big|large|tall|heavy|fast|high)\b"
            r"|\bwie (?:viele|alt|weit|lange|gross|schwer)\b|\bcuant[oa]s?\b|\bque edad\b"
            r"|多少|几|多大|多久|多远",
            "number time day",
        ),
        (
            r"\bwhen\b|\b(?:what|which) (?:date|day|time|year|month|weekday)\b|\bhow soon\b"
            r"|\bdeadline\b|\bdue\b|\bwann\b|\bwie spat\b|\bcuando\b|\bque dia\b|\ba que hora\b"
            r"|什么时候|何时|哪天|几点",
            "day time",
        ),
        (r"\bwho(?:m|se)?\b|\bnames?\b|\bcalled\b", "name"),
    )
)
"""How a question asks, and the kinds of value of which its answer has one; the first row counts."""
RELATION = (
    r"(?:(?:step|half)?(?:sister|brother|mother|father|son|daughter)|siblings?|mum|mom|dad|parents?"
    r"|grand(?:ma|mother|pa|father|parents|son|daughter)|husband|wife|partner|spouse|girlfriend"
    r"|boys?|girls?|toddler|twins|boyfriend|fianc[eé]e?|ex|aunt|uncle|cousin|niece|nephew|kids?|child(?:ren)?|baby|in-laws"
    r"|family|relatives?|friends?|mate|flatmate|roommate|housemate|neighbou?r|landlord|landlady"
    r"|boss|manager|supervisor|colleague|coworker|teacher|tutor|coach)"
)
_OF_ANOTHER = re.compile(rf"\W*(?:my|our) (?:\w+ ){{0,2}}?{RELATION}\b")
# As its subject: not who it is, and not what belongs to a family.
_ABOUT_ANOTHER = re.compile(
    r"(?<!\bwho )\b(?:do|does|did|is|are|was|were|has|have|had|can|could|will|would|must|may"
    r"|should) (?:the|my|our|your|her|his|their|(?:[^\W_]+ )?[^\W_]+['’]s?) (?:\w+ )?"
    rf"(?!family\b){RELATION}\b"
)
_OF_SPEAKER = re.compile(r"\W*i(?:['’](?:m|ve|d|ll))?\b")
_OF_OWN = re.compile(r"\W*(?:i|my)\b")
_SPEAKER = re.compile(r"\b(?:i|me|we|us)\b")
_OF_MORE = re.compile(rf"\b(?:{RELATION}s?|we|us|our|he|him|his|she|her|hers|they|them|their)\b")
_BIDS = re.compile(
    r"\W*(?:forget|ignore|scratch|drop|cancel|skip) (?:about )?(?:the|my|our|that|it)\b"
)
_ASKS_OF_ANOTHER = re.compile(rf"\b{RELATION}s?\b|\bwho(?:m|se)?\b|\bnames?\b|\bcalled\b")
_NAMED = re.compile(rf"\b(?:{'|'.join(said for _, said in ATTRIBUTES)})\b")
_OWNER = re.compile(r"\b([^\W\d_]+)['’]s?\b(?! (?:\w+ing|not|been)\b)")
# As it is written: "does Tom work", not "does it work".
_SUBJECT = re.compile(
    r"\b(?:do|does|did|is|are|was|were|has|have|had|can|could|will|would|must|may|should)"
    r" ([^\W\d_a-z][\w-]+)"
)
_NOBODY = frozenset(
    ("user", "what", "who", "where", "when", "how", "it", "that", "he", "she", "there", "let")
)


@dataclass(frozen=True, slots=True)
class Asked:
    """
    What a question asks for.

    Attributes:
        attributes: Names of slots' attributes, any of which answers.
        owners: Stems of whom it names as their owner or as its subject; empty: the speaker, or
            whom it names.
        said: Stems of all its words.
        kinds: Of value, of which its answer has one; of ``change.VALUES``, or ``"name"``.
        of_another: Whether it asks for somebody beside the speaker, or about such a person.
        about_another: Whether such a person is its subject: "does her sister drive?".
    """

    attributes: frozenset[str]
    owners: frozenset[str]
    said: frozenset[str]
    kinds: frozenset[str] = frozenset()
    of_another: bool = False
    about_another: bool = False

    def is_told_by(self, text: str, speaker: str | None) -> bool:
        """Whether *text*, said by *speaker*, gives a value of what is asked."""
        if not self.attributes:
            return False
        told = claims(told_by(text, speaker))
        return any(claim.holds and self._is_meant(claim.slot, speaker) for claim in told)

    def is_of_a_kind(self, text: str) -> bool:
        """Whether *text* has a value of a kind that is asked for."""
        if "name" in self.kinds:
            # The capital at the beginning is none of a name.
            return bool(names(text.partition(" ")[2]))
        values = values_of(text) if self.kinds else {}
        return any(values[kind] for kind in self.kinds)

    def is_past_by(self, text: str) -> bool:
        """
        Whether *text* begins with another person of the speaker, who is not asked about; or tells
        of the speaker alone, where such a person is.
        """
        said = fold(text)
        if self.about_another:
            is_alone = _OF_SPEAKER.match(said) is not None and not _OF_MORE.search(said)
            return is_alone and not names(text)
        return not self.of_another and _OF_ANOTHER.match(said) is not None

    def _is_meant(self, slot: str, speaker: str | None) -> bool:
        found = next((a for a in self.attributes if slot == a or slot.endswith(f" {a}")), None)
        if found is None:
            return False
        subject = set(slot.removesuffix(found).split())
        if self.owners:
            return bool(subject & self.owners)
        speaking = set(map(stem, words(fold(speaker or ""))))
        return subject <= self.said | speaking


def told_by(text: str, speaker: str | None) -> str:
    """*text* with its speaker before it, as ``slots`` read it."""
    of_speaker = speaker is None or fold(text).startswith(fold(speaker))
    return text if of_speaker else f"{speaker}: {text}"


def asked_in(question: str) -> Asked:
    """Read *question*."""
    asked = fold(question)
    found = {name for names, way in _WAYS.items() if re.search(way, asked) for name in names}
    found |= {_kept(name) for name in _NAMED.findall(asked)}
    stems = frozenset(map(stem, words(asked)))
    called = names(question) & set(map(fold, _SUBJECT.findall(question)))
    owners = frozenset(map(stem, (called | set(_OWNER.findall(asked))) - _NOBODY))
    kinds = next((kinds for way, kinds in _KINDS if way.search(asked)), frozenset())
    of_another = _ASKS_OF_ANOTHER.search(asked) is not None
    about_another = _ABOUT_ANOTHER.search(asked) is not None
    return Asked(frozenset(found), owners, stems, kinds, of_another, about_another)


def _kept(name: str) -> str:
    name = SPELLINGS.get(name, name)
    return SYNONYMS.get(name, name)


# ── Words of change, and typed values ───────────────────────────────────────────────────


# Without accents: they are compared with folded text.
_WORDS = {
    # Another value took the place of one, a measure went up or down, or it holds from a time on.
    "change": r"""
        now|nowadays|these days|any ?more|any longer|no longer|instead|rather than|changed?
        |changes|changing|switch(?:ed|es|ing)?|swapp?(?:ed)?|moved|moving|replac(?:ed?|es|ing)
        |tak(?:es?|ing|en) (?:it )?over|took (?:it )?over|hand(?:ed|s) (?:over|\w+ to)
        |bec[ao]me|turned into|from (?:now|here|then|today|\w+day) on|as of|starting|effective
        |renamed|migrated?|upgraded?|downgraded|bumped|reassigned|transferred|rescheduled
        |postponed|pushed (?:back|to|out)|brought forward|delayed|slip(?:s|ped)|shifted
        |back (?:to|in|at|on|from)|ended up|after all|in the end|turn(?:s|ed) out|updated?
        |revised|correct(?:ion|ed)|actually|used to|steps? in|stepped in|convert(?:ed|s)
        |rewr(?:ote|itten)|ported|promoted|rebooked|relocated?|emigrated|for good|at last|finally
        |until further notice|since (?:last|then|monday|the|we|i|this)|not \w+ but|sorry
        |scratch that|i was wrong|my mistake|unlike before|compared to before|different
        |jetzt|inzwischen|mittlerweile|nicht mehr|stattdessen|seit|umgezogen|gewechselt
        |geandert|verschoben|doch|kunftig
        |ab (?:januar|februar|marz|april|mai|juni|juli|august|sofort|jetzt)|ahora|ya no|desde
        |cambi(?:ado|o|e|amos|aron)|en vez de|mud(?:e|ado|amos)|al final|went (?:up|down)
        |go(?:es|ing) (?:up|down)|raised?|raises|increas(?:ed?|es)|rose|risen|reduc(?:ed?|es)
        |lower(?:ed|s)?|cut (?:to|down|it)|(?:up|down) (?:to|from)|from \S+ to \S+|doubled
        |halved|tripled|extend(?:ed|s)|shortened|brought down|more expensive|cheaper|grew
        |grown|shrunk|gained|another \d+|erhoht|gesenkt|gestiegen|sub(?:io|ido|ieron)
        |baj(?:o|ado)|new|newer|neue[rsnm]?|nuev[oa]s?
    """,
    # It is over, with or without what comes in its place.
    "end": r"""
        quit|quits|quitting|resigned|retired?|retires|left|leav(?:es|ing)|fired|laid off
        |sacked|sold|g[ai]ve(?:n|s)? (?:\w+ )?(?:up|away|back)|handed (?:in|back)|got rid
        |thr[eo]wn?|died|dead|passed away|put (?:down|to sleep)|lost|broke up|split(?: up)?
        |separated|divorced?|cancel(?:l?ed|ling|s)?|call(?:ed|ing|s) (?:\w+ )?off|fell through
        |(?:is|are|was|'s) (?:off|over|gone|out|done)|done|finished|ended|ends|closed|closing
        |shut|stop(?:s|ped)|dropped|won'?t|fixed|resolved|solved|repaired|merged|shipped
        |delivered|paid off|moved out|healed|removed|deleted|disabled|ran out|expired
        |never ?mind|scrapped|abandoned|rejected|reverted|rolled back|said no|not happening
        |not going|no more|never again
        |(?<![tis] )(?<!to )(?<!er )(?<!we )(?<!you )forget (?:about )?(?:the|that|what|my|our|it)
        |stolen|broken|decommissioned|deprecated|gone|turned off
        |switched off|gekundigt|verkauft|gestorben|abgesagt|getrennt|aufgehort|fertig|vorbei
        |kaputt|dej(?:e|o|amos|ado)|vend(?:i|io|imos|ido)|muri(?:o|eron)|cancel(?:ado|o)
        |termin(?:ado|o|e)
    """,
    # Something began that may have taken a place.
    "begin": r"""
        start(?:ed|s)?|beg[au]n|join(?:ed|s)|bought|signed|hired|married|engaged|born|adopted
        |enabled|got (?:the|a|my|an|it|our|myself)|took (?:the|a|on)|offered|accepted
        |installed|arrived|(?:went|go(?:es|ing)?) with|decided|settled on|chose|agreed
        |moved (?:in|to)|picked|it is|it's|will be|angefangen|gekauft|bekommen|umgestellt
        |empec[eo]|compr(?:e|o|amos)
    """,
    # One more of many.
    "more": r"""
        also|too|another|besides|as well|both|second|third|additionally|plus|auch|noch ein\w*
        |ausserdem|tambien|ademas|otr[oa]
    """,
}
_UNSPACED = {"change": "现在|不再|换|改|搬|新|涨|降", "end": "取消|辞|卖|去世|分手"}

KINDS = tuple(_WORDS)
"""Kinds of words that tell whether a sentence replaces an older one, or adds to it."""


def _pattern(kind: str) -> re.Pattern[str]:
    words = re.sub(r"\s*\n\s*", "", _WORDS[kind])
    spaced = rf"(?<![\w-])(?:{words})(?![\w-])"
    return re.compile("|".join(filter(None, (spaced, _UNSPACED.get(kind)))))


_PATTERNS = {kind: _pattern(kind) for kind in KINDS}


@lru_cache(maxsize=512)
def kinds_of(text: str) -> frozenset[str]:
    """The kinds of words of change in *text*, of ``KINDS``."""
    folded = fold(text).replace("’", "'")
    return frozenset(kind for kind, pattern in _PATTERNS.items() if pattern.search(folded))


@lru_cache(maxsize=512)
def tells_change(word: str) -> bool:
    """Whether *word*, folded, alone makes a sentence of one of ``KINDS``."""
    return any(pattern.fullmatch(word) for pattern in _PATTERNS.values())


def tell_of_two(older: str, newer: str) -> bool:
    """
    Whether *newer* speaks of something else than *older*, which so holds on.

    One is of the speaker alone, the other of another person alone; or both say by the same verb
    what is or does a subject that is called by a word which the other has not: "Bo's bike is red",
    "Di's bike is blue".
    """
    if any(_is_of_the_other(*both) for both in ((older, newer), (newer, older))):
        return True
    is_alike = verb_of(older) == verb_of(newer) != ""
    return is_alike and _has_own(older, newer) and _has_own(newer, older)


def asks_of_one(question: str, one: str, other: str) -> bool:
    """
    Whether *question* names a thing of which one text tells, and the other tells of another of its
    kind: of the gas bill, not of the water bill.
    """
    return any(
        qualifier not in _stems(told)
        and any(kind == of and word not in _stems(said) for word, of in _qualified(told))
        for qualifier, kind in _qualified(question)
        for said, told in ((one, other), (other, one))
        if (qualifier, kind) in _qualified(said)
    )


@lru_cache(maxsize=64)
def _qualified(text: str) -> frozenset[tuple[str, str]]:
    """Stems of words of *text* and of what stands before each: "gas bill"; but for its verb."""
    verb = verb_of(text)
    return frozenset(
        (stem(word), stem(kind))
        for word, kind in pairwise(words(fold(text)))
        if not (word.isdigit() or tells_change(word) or STOP_WORDS & {word, kind})
        and stem(word) != verb
    )


def _stems(text: str) -> frozenset[str]:
    return frozenset(map(stem, words(fold(text))))


def differ_in_person(people: frozenset[str] | None, *said: tuple[str, str | None]) -> bool:
    """
    Whether of two texts, each with its speaker, one alone is of somebody else than *people*;
    without these, whether one begins with its speaker, and the other is of somebody else.
    """
    if people is None:
        if not any(_OF_OWN.match(fold(text)) for text, _ in said):
            return False
        people = frozenset(word for _, speaker in said for word in words(fold(speaker or "")))
    one, other = said
    return _is_of_another(*one, people | names(other[0])) != _is_of_another(
        *other, people | names(one[0])
    )


def _is_of_another(text: str, speaker: str | None, people: frozenset[str]) -> bool:
    """Whether *text* is of *speaker* alone, or its subject has a name, and none of *people*'s."""
    said = fold(text)
    if _OF_SPEAKER.match(said) and not _OF_MORE.search(said):
        return names(text).union(words(fold(speaker or ""))).isdisjoint(people)
    own = names(text).intersection(subject(text))
    return bool(own) and own.isdisjoint(people) and not _BIDS.match(said)


def _is_of_the_other(one: str, other: str) -> bool:
    """Whether *one* is of the speaker alone, and *other* of another person alone."""
    said, told = fold(one), fold(other)
    return (
        _OF_SPEAKER.match(said) is not None
        and not _OF_MORE.search(said)
        and not names(one)
        and _OF_ANOTHER.match(told) is not None
        and not _SPEAKER.search(told)
    )


def _has_own(one: str, other: str) -> bool:
    """Whether the subject of *one* is called by a word that *other* has not."""
    called = (word for word in subject(one) if word not in STOP_WORDS)
    return not {*index_terms(" ".join(called))} <= {*index_terms(" ".join(tokens_of(other)))}


VALUES = ("money", "time", "day", "number")
"""Types of values that a sentence may give."""

_AMOUNT = r"\d[\d.,]*"
_CURRENCY = r"(?:[€$£¥]|(?:eur|euros?|dollars?|usd|pounds?|quid|bucks|francs?|chf|kr)\b)"
_MONEY = re.compile(rf"[€$£¥]\s?({_AMOUNT})|({_AMOUNT}k?)\s?{_CURRENCY}")
_HOUR = "|".join(word for word in NUMBER_WORDS if word not in ("a", "an"))
_TIME = re.compile(
    r"\b(\d{1,2}(?:[:.]\d\d)?\s?(?:am|pm)|\d{1,2}:\d\d)(?!\w)|\b(noon|midday|midnight)\b"
    rf"|\b(?:at|by|from|till|until) ((?:half past |quarter (?:past|to) )?(?:{_HOUR}))"
    r"(?=\W*$|[.,;!?]| (?:on|in|every|from|now|sharp|o'clock|instead|to(?:day|night|morrow)"
    r"|\w+day)\b)"
)
_DAY = re.compile(
    r"\b(" + "|".join((*WEEKDAYS, *(m for m in MONTHS if m not in ("may", "march")))) + r")s?\b"
    r"|\b(\d{1,2}(?:st|nd|rd|th))\b|\b(\d{4}-\d\d-\d\d)\b"
)


@lru_cache(maxsize=512)
def values_of(text: str) -> Mapping[str, frozenset[str]]:
    """The values of *text* by type; a number of another type is no bare number."""
    folded = fold(text)
    found = {
        "money": _found(_MONEY, folded),
        "time": _found(_TIME, folded),
        "day": _found(_DAY, folded) | dates(text),
    }
    rest = _DAY.sub(" ", _TIME.sub(" ", _MONEY.sub(" ", folded)))
    return found | {"number": numbers(rest)}


def _found(pattern: re.Pattern[str], text: str) -> frozenset[str]:
    return frozenset(
        next(filter(None, match.groups())).rstrip(".,").replace(" ", "")
        for match in pattern.finditer(text)
    )


# ── Whom a question calls the user ──────────────────────────────────────────────────

# A thing of users, not who speaks: "the user table".
_OF_USERS = (
    r"(?:tables?|interface|ids?|accounts?|names?|models?|stor(?:y|ies)|guides?|manual|data|input"
    r"|profiles?|settings|agent|groups?|roles?|service|sessions?|base|experience|tests?)\b"
)
_USER = re.compile(
    rf"\b(?:(?P<verb>does|did|do|has|have|is|are|was|will|can|could|should|would|must|may) )?"
    rf"the user(?P<owner>['’]s)?\b(?! {_OF_USERS})",
    re.IGNORECASE,
)
_OF_FIRST = {"does": "do", "has": "have", "is": "am", "are": "am"}


def asks_of_the_user(question: str) -> bool:
    """Whether *question* names the user, and so means who speaks."""
    return _USER.search(question) is not None


def in_own_words(question: str) -> str:
    """
    *question* with the user as who speaks: of "the user's job" one says "my job".

    What users say of themselves is in the first person, and nearer to such a question.
    """
    return _USER.sub(_first_person, question)


def _first_person(found: re.Match[str]) -> str:
    verb = (found["verb"] or "").lower()
    if found["owner"]:
        return f"{found['verb']} my" if verb else "my"
    return f"{_OF_FIRST.get(verb, verb)} I" if verb else "me"


# Behind these the speaker says the own name, or a fact says the speaker's.
_NAMING = (
    r"(?:\bi(?:['’]m| am)|(?:^|[.,!?])\s*im|\bmy name(?:['’]?s| is)|\bcall me"
    r"|{speaker}(?:['’]s name)? is|^\W*(?:\w+[\s,!.]+)?(?:it['’]?s|this is)) {name}"
    r"(?: [\w'’-]+)?(?=\s*[,.!]|\s*$| (?:and|from|but)\b)"
    r"|^\W*(?:\w+[\s,!.]+)?{name} here\b"
)


@lru_cache(maxsize=64)
def _naming(name: str, speaker: str) -> re.Pattern[str]:
    return re.compile(_NAMING.format(speaker=re.escape(fold(speaker)), name=re.escape(name)))


def gives_name(text: str, name: str, speaker: str) -> bool:
    """Whether *text*, of *speaker*, says that this is one of *name*, folded."""
    said = fold(text)
    return name in said and _naming(name, speaker).search(said) is not None


def about_the_user(question: str, name: str) -> str:
    """*question* with the user in place of one of *name*."""
    return re.sub(rf"\b(?i:{re.escape(name)})\b(?: [A-Z][\w-]*)*", "the user", question)


# ── What asks and names no topic ────────────────────────────────────────────────────────


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

    "I was wondering, can you list the boats, according to Bo? Thanks!" gives "the boats, Bo?". It
    keeps its last index term, and stays as it is where it has more than 1,000 characters.
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
