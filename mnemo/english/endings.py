"""Endings (sold, quit, mended, died, …) and which statements about their thing each closes."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from mnemo.english.canonical import first_sentence, said_in
from mnemo.english.verbs import finite_verb, tokens_of
from mnemo.english.words import ADVERBS, LIGHT, MONTHS, WEEKDAYS, is_past, word_set
from mnemo.runtime.text import STOP_WORDS, fold, stem


class Kind(StrEnum):
    """What sort of end it is; each ends other statements."""

    LOST = "lost"
    QUIT = "quit"
    DONE = "done"
    MENDED = "mended"
    CANCELLED = "cancelled"
    GONE = "gone"
    FOUND = "found"


@dataclass(frozen=True, slots=True)
class Ending:
    """
    One thing that a clause says to have ended.

    Attributes:
        person: Whose it was, folded; empty: nobody is named.
        words: Stems of the thing's words, the head among them.
        head: Stem of its last noun.
        names: Stems of the names said with it, as in "the trip to Rome".
    """

    kind: Kind
    person: str
    words: frozenset[str]
    head: str
    names: frozenset[str]


@dataclass(frozen=True, slots=True)
class Standing:
    """
    How things stand by a clause in the present tense.

    Attributes:
        person: Of whom it is said, or whose thing it is about, folded; empty: nobody.
        owned: Stems of the subject's words behind its owner: "Nora's old CAR is red".
        verb: Its first verb, folded.
        heads: Stems of the nouns that it is about.
        names: Stems of its names but for the person.
        is_sure: Whether it is so, and not only planned or wished.
    """

    person: str
    owned: frozenset[str]
    verb: str
    words: frozenset[str]
    said: frozenset[str]
    heads: tuple[str, ...]
    names: frozenset[str]
    is_sure: bool


# ── The ways of saying it ────────────────────────────────────────────────────────────

_MENDED = r"fixed|repaired|resolved|solved|mended|patched|sorted out|unblocked|cured|healed"
_GROUP = (
    r"(?:band|choir|orchestra|team|club|group|gym|union|committee|council|church|school|college"
    r"|university|company|firm|agency|office|hospital|clinic|practice|startup|job|position|role"
    r"|army|navy|course|class|party|league|cast|crew|squad|project|shop|store|bank|board)"
)
_EXCHANGED = (
    r"(?:switched|migrated|moved|changed)(?: over| away)? from|replaced|swapped|traded"
    # What is moved may be furniture; who moves all from one to another leaves the one.
    r"|(?:switched|migrated|converted|ported)(?: [\w'’-]+){1,4}? from"
    r"|moved (?:everyone|everybody|everything|all of it|it all|the (?:whole )?team) from"
)
_ENDED: tuple[tuple[Kind, str], ...] = (
    (
        Kind.LOST,
        r"sold(?: off)?|gave away|given away|(?:got|gotten) rid of|threw (?:away|out)|thrown away"
        r"|traded in|swapped|donated|rehomed|scrapped|parted with|lost|wrote off|written off"
        r"|returned|gave back|given back|sent back|auctioned(?: off)?|gave(?= .+ to )",
    ),
    (
        Kind.QUIT,
        r"quit|cancell?ed|gave up|given up|dropped out of|pulled out of|withdrew from"
        r"|(?:un|de)subscribed from|unsubscribed|resigned from|retired from|stopped|deleted"
        r"|uninstalled|(?:switched|moved) (?:over |away )?from|moved out of|graduated from"
        r"|(?:is |are )?done with|outgrew|packed in|walked out of|stepped down from"
        r"|stepped back from|hung up|pulled the plug on|shelved|ditched|abandoned|came off|went off"
        r"|disabled|removed|retired|took down|turned off|switched off|let go of|broke off|closed"
        r"|ended(?! up)|left(?= (?:[\w'’]+ ){1,4}?" + _GROUP + r"\b)",
    ),
    (
        Kind.DONE,
        r"finished|completed|submitted|handed in|turned in|wrapped up|graduated from|graduated"
        r"|paid off|delivered|shipped|defended|passed(?= )",
    ),
    (Kind.MENDED, rf"{_MENDED}|recovered from|got over|gotten over|replaced|cleared"),
    (
        Kind.CANCELLED,
        r"cancell?ed|called off|decided against|turned down|backed out of|pulled out of|bailed on"
        r"|(?:changed|has changed) (?:\w+|\w+['’]s) mind about|shelved|scrapped|dropped",
    ),
    (
        Kind.FOUND,
        r"bought|found|got|gotten|picked up|hired|ordered|received|rented|adopted|signed up for"
        r"|booked|chose|picked",
    ),
)
"""What somebody did to the thing behind it."""
_BEFELL: tuple[tuple[Kind, str], ...] = (
    (Kind.LOST, r"sold|stolen|given away"),
    (Kind.CANCELLED, r"cancell?ed|called off|scrapped|off(?=$|[,.;]| because)"),
    (Kind.DONE, r"finished|completed|(?:all )?done|over(?=$|[,.;])|submitted|delivered|paid off"),
    (Kind.MENDED, rf"{_MENDED}|back up|working again|better now"),
    (Kind.GONE, r"dead|gone(?=$|[,.;])|closed(?: down| for good)|discontinued|decommissioned"),
)
"""What the subject is said to be, to have been made, or to have got."""
_HAPPENED: tuple[tuple[Kind, str], ...] = (
    (Kind.CANCELLED, r"fell through|fallen through|got called off"),
    (Kind.DONE, r"ended(?=$|[,.;]| (?:in|last|on|with)\b)|came to an end"),
    (Kind.MENDED, r"(?:works?|runs?) (?:\w+ )?again|healed|cleared up|went away"),
    (
        Kind.GONE,
        r"died|passed away|expired|(?:closed|shut) down(?=$|[,.;]| (?:in|last|for|after|on|at)\b)"
        r"|went (?:bust|bankrupt|out of business)",
    ),
)
"""What the subject did or underwent."""

_LEAD = (
    r"^(?P<s>[^,;:]{1,80}?) (?:(?:has|have|had|just|finally|recently|already|now|sadly|also"
    r"|officially|actually|successfully|since|never mind) )*"
)
_BE = r"(?:(?:is|are|was|were|got|been) (?:(?:now|finally|already|all|just|being|been) )*)"


def _pattern(lead: str, acts: str, tail: str) -> re.Pattern[str]:
    return re.compile(rf"{lead}(?:{acts})\b{tail}", re.IGNORECASE)


@lru_cache(maxsize=1)
def _rows() -> tuple[tuple[Kind, bool, re.Pattern[str]], ...]:
    """Kind, whether the thing stands behind it, and the pattern of a clause."""
    exchange = _pattern(_LEAD, _EXCHANGED, r" (?P<o>.+?) (?:to|with|by|for) .+")
    active = [(kind, True, _pattern(_LEAD, acts, r" (?P<o>.+)")) for kind, acts in _ENDED]
    passive = [(kind, False, _pattern(_LEAD + _BE, acts, "")) for kind, acts in _BEFELL]
    itself = [(kind, False, _pattern(_LEAD, acts, "")) for kind, acts in _HAPPENED]
    return (*passive, *itself, (Kind.QUIT, True, exchange), *active)


@lru_cache(maxsize=1)
def _any_act() -> re.Pattern[str]:
    """A quick look for any of the ways, where most clauses have none."""
    acts = (acts for _, acts in (*_BEFELL, *_HAPPENED, *_ENDED))
    return _pattern("\\b", "|".join((_EXCHANGED, *acts)), "")


_DENIED = re.compile(r"\b(?:not|never|n['’]t|nearly|almost|if|when|until|before|unless)\b", re.I)

_TROUBLE = word_set(
    """
    broken breaks broke leaks leaking leak failing fails failed down crashes crashing crashed stuck
    hurts hurt sprained ill sick cold flu fever bug error faulty cracked blocked clogged dead
    missing flaky damaged injured injury infected infection pain painful ache aches red unstable
    offline hangs slow
    """
)
_OPEN = word_set(
    """
    student pupil due must need needs halfway writing reading started began preparing studying
    progress owe owes deadline draft underway taking doing studies enrolled working works building
    """
)
_WANTING = word_set("want wants need needs saving looking hopes hope searching hunting")
_PLANNED = word_set("planning plan plans booked going wants hopes")
_STATES = word_set(
    """
    is are has have owns own keeps drives rides uses use plays takes goes attends works work lives
    live studies trains volunteers teaches learns sings dates rents pays wears reads writes runs
    does drinks eats smokes belongs owes needs wants must should will flies starts happens
    """
)
"""Verbs by which things stand so until they end; what one thinks, says and shares does not end."""
_OCCASIONS = word_set("is are has have happens starts takes goes flies booked planned will")
_BEGUN = word_set("got bought adopted started joined booked enrolled signed planned began")
_BETWEEN = ADVERBS | word_set("no longer not")
_VAGUE = word_set(
    """
    old last new whole entire final dear beloved poor own really also too all everything it them him
    her this that these those thing things something one ones finally soon ago week weekend month
    year day days weeks months years morning evening night time again ever never more called named
    first second current every each twice once daily weekly times
    """
).union(MONTHS, WEEKDAYS, ADVERBS, LIGHT)
_INDEFINITE = re.compile(r"^(?:an?|some|any|no|lots|many|several|few|more|most|\d+) ", re.I)
_WORD = re.compile(r"[^\W_]+(?:['’.&/-][^\W_]+)*['’]?|[,;:()–—]")
_OWNED = re.compile(r"^(?P<who>.+?)(?:['’]s|(?<=s)['’]) (?P<what>.+)$")
_STOPS = re.compile(
    r"(?:[,;:(–—]| (?:because|since|so|after|before|when|while|last|yesterday|today|this|next|and"
    r" (?=(?:now|then|I|we|he|she|they|it|[a-z]+(?:ed|s) )\b)|but|as|if|instead)\b).*",
    re.IGNORECASE,
)
_AND = re.compile(r",? (?:and|or) ")
_LIGHT_HEADS = word_set("membership subscription account contract classes lessons course season")
_QUALIFIED = re.compile(r" (?:to|in|at|with|of|for|from|about|near|on|by)\b ?")
_CALENDAR = frozenset((*MONTHS, *WEEKDAYS))
_GOES_ON = word_set(
    ", ; : ( ) – — because since so but although that which who when while if as than where how why"
    " what and"
)
_MOST_HEADS = 4
_LONGEST_SUBJECT = 6
_LONGEST_CORE = 14


# ── Endings ──────────────────────────────────────────────────────────────────────────


@lru_cache(maxsize=512)
def _endings(text: str) -> tuple[Ending, ...]:
    """What *text* says to have ended; nothing in most texts."""
    whole = said_in(text)
    sure = (clause.text for clause in whole.clauses if clause.is_sure)
    found = (end for clause in sure for end in _ends_in(clause, whole.speaker))
    return tuple(dict.fromkeys(found))


def _ends_in(clause: str, speaker: str) -> Iterator[Ending]:
    if not _any_act().search(clause) or _DENIED.search(clause):
        return
    for kind, behind, pattern in _rows():
        if found := pattern.match(clause):
            subject = found["s"]
            own = fold(subject) == speaker and not behind
            if own or finite_verb(tokens_of(subject)) is not None:
                continue
            what, whose = (found["o"], _person(subject)) if behind else (subject, speaker)
            yield from _things(kind, what, whose)


def _things(kind: Kind, said: str, person: str) -> Iterator[Ending]:
    for part in _AND.split(_STOPS.sub("", said)):
        if kind is not Kind.FOUND and _INDEFINITE.match(part):
            continue
        owned = _OWNED.match(part)
        thing, *qualifiers = _QUALIFIED.split(owned["what"] if owned else part)
        nouns = _nouns(thing)
        words = [stem(noun) for noun in nouns]
        whose = _person(owned["who"]) if owned else person
        passed_over = frozenset() if kind is Kind.CANCELLED else _CALENDAR
        names = frozenset(_names(" ".join(qualifiers), passed_over))
        if words:
            yield Ending(kind, whose, frozenset(words), words[-1], names)
        if len(words) > 1 and nouns[-1] in _LIGHT_HEADS:
            yield Ending(kind, whose, frozenset(words[:-1]), words[-2], names)


def _nouns(said: str) -> list[str]:
    words = [fold(word).removesuffix("'s") for word in _WORD.findall(said) if word[0].isalnum()]
    return [word for word in words if word not in STOP_WORDS and word not in _VAGUE]


def _names(said: str, passed_over: Collection[str] = ()) -> Iterator[str]:
    for word in _WORD.findall(said):
        name = fold(word).removesuffix("'s")
        if word[0].isupper() and name not in STOP_WORDS and name not in passed_over:
            yield stem(name)


def _person(said: str) -> str:
    """A subject that may own things; empty if it is a pronoun or an article with a noun."""
    words = fold(said).split()
    known = words and words[0] not in STOP_WORDS and len(words) <= _LONGEST_SUBJECT
    return " ".join(words).removesuffix(" and others") if known else ""


# ── How things stand ─────────────────────────────────────────────────────────────────


@lru_cache(maxsize=512)
def _standings(text: str) -> tuple[Standing, ...]:
    """How things stand by *text*; nothing by what is past, asked, denied or not understood."""
    whole = said_in(text)
    found = (_standing(clause.text, whole.speaker, clause.is_sure) for clause in whole.clauses)
    return tuple(standing for standing in found if standing is not None)


def _standing(clause: str, speaker: str, is_sure: bool) -> Standing | None:
    words = _core(_WORD.findall(clause))
    at = _verb_of(words, speaker)
    if at is None or len(words) > _LONGEST_CORE or _DENIED.search(clause):
        return None
    said = [fold(word).removesuffix("'s") for word in words]
    subject = " ".join(words[:at])
    owned = _OWNED.match(subject)
    person = _person(owned["who"] if owned else subject)
    names = {*_names(" ".join(words[1:]))} - set(map(stem, person.split()))
    return Standing(
        person=person or speaker,
        owned=frozenset(map(stem, _nouns(owned["what"] if owned else "" if person else subject))),
        verb=said[at],
        words=frozenset(stem(word) for word in said),
        said=frozenset(said),
        heads=_heads(words, at, person, speaker),
        names=frozenset(names),
        is_sure=is_sure,
    )


def _core(words: list[str]) -> list[str]:
    """*words* up to where another clause or an aside begins; a name behind a comma is none."""
    ends = (
        at
        for at, word in enumerate(words)
        if at > 1 and word.lower() in _GOES_ON and not _is_called(words[at : at + 3])
    )
    return words[: next(ends, len(words))]


def _is_called(words: list[str]) -> bool:
    """Whether *words* are a comma and the name of what stands before it: "a dog, Rex"."""
    named = words[0] == "," and len(words) > 1 and words[1][0].isupper()
    return named and words[2:] in ([], [","])


def _verb_of(words: list[str], speaker: str) -> int | None:
    """Where the verb of a clause in the present stands, or of one that tells a beginning."""
    for at, word in enumerate(words[: _LONGEST_SUBJECT + 3]):
        lower = word.lower()
        if at == 0 or lower in _BETWEEN:
            continue
        if not word[0].isalnum():
            return None
        if lower in _STATES or lower in _BEGUN or lower in _TROUBLE:
            return at
        if is_past(lower) or fold(" ".join(words[:at])) == speaker:
            return None
    return None


def _heads(words: list[str], verb: int, person: str, speaker: str) -> tuple[str, ...]:
    """Stems of the nouns that end a phrase, and of names."""
    found: dict[str, None] = {}
    whole = set(person.split()[:-1] or speaker.split())
    for at, word in enumerate(words):
        lower = fold(word).removesuffix("'s")
        doing = at == verb + 1 and lower.endswith("ing")
        if at == verb or doing or not word[0].isalnum() or lower in whole or not _nouns(lower):
            continue
        following = words[at + 1] if at + 1 < len(words) else ""
        ends = at + 1 == verb or not following or not _nouns(following) or following[0].isupper()
        if ends or word[0].isupper():
            found.setdefault(stem(lower))
    return tuple(found)[:_MOST_HEADS]


# ── What an ending closes ────────────────────────────────────────────────────────────


def ends(newer: str, older: str) -> bool:
    """
    Whether by *newer*, said after *older*, something of *older* has ended; in doubt not.

    Of several sentences the first is looked at: with what a later one adds it does not end.
    """
    endings = _endings(newer)
    standings = _standings(first_sentence(older)) if endings else ()
    return any(_closes(ending, standing) for ending in endings for standing in standings)


def _closes(ending: Ending, standing: Standing) -> bool:
    if ending.head not in standing.heads or not ending.words <= standing.words:
        return False
    if ending.head in map(stem, standing.person.split()):
        # Only of the dead themselves it is said.
        return ending.kind is Kind.GONE
    if ending.person and standing.person and ending.person != standing.person:
        return False
    if ending.names and standing.names and not ending.names & standing.names:
        return False
    return _FITS[ending.kind](ending, standing)


def _is_owned(ending: Ending, standing: Standing) -> bool:
    return standing.is_sure and _WANTING.isdisjoint(standing.said)


_FITS: Mapping[Kind, Callable[[Ending, Standing], bool]] = {
    Kind.LOST: _is_owned,
    Kind.QUIT: lambda end, now: _is_owned(end, now) and end.head not in now.owned,
    Kind.DONE: lambda end, now: not _OPEN.isdisjoint(now.said),
    Kind.MENDED: lambda end, now: not _TROUBLE.isdisjoint(now.said),
    Kind.CANCELLED: lambda end, now: now.verb in _OCCASIONS or not _PLANNED.isdisjoint(now.said),
    Kind.GONE: lambda end, now: True,
    Kind.FOUND: lambda end, now: not _WANTING.isdisjoint(now.said),
}
"""Kind of end → whether it is an end of how things stand."""


# ── Keys ─────────────────────────────────────────────────────────────────────────────


def ending_keys(text: str) -> tuple[str, ...]:
    """What *text* ends is found under these, one for each thing."""
    return tuple(dict.fromkeys(ending.head for ending in _endings(text)))


def standing_keys(text: str) -> tuple[str, ...]:
    """What ends something of *text* is found under these, one for each thing; a few at most."""
    return tuple(dict.fromkeys(head for one in _standings(text) for head in one.heads))
