"""Facts as they were said, ``Nora: I teach``, and their clauses as read, ``Nora teaches``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from mnemo.english.clauses import bare, has_verb, split_clauses, with_subject
from mnemo.english.entities import BRACKETS, LEADING
from mnemo.english.sentences import sentences, with_apostrophes
from mnemo.english.verbs import finite_verb, is_gerund, tokens_of
from mnemo.english.words import (
    ADVERBS,
    AUXILIARIES,
    BASE_VERBS,
    MODALS,
    MONTHS,
    PARTICIPLES,
    PREPOSITIONS,
    WEEKDAYS,
    has_noun,
    is_adverb,
    is_past,
    with_s,
    word_set,
)
from mnemo.runtime.text import fold

_SAID_BY = re.compile(
    r"(?P<who>[^\s:\"“][^:\n\"“]{0,59}?)(?: to [^\s:\"“][^:\n\"“]{0,59})?: (?P<words>\S.*)",
    re.DOTALL,
)
_LONGEST_NAME = 4  # words
_LABELLED = re.compile(r"(?P<label>[^\W\d_][\w-]*(?: [\w-]+){0,3}): (?P<value>\S.{0,79})")


def said_by(speaker: str, words: str, *, to: str | None = None) -> str:
    """The proposition that keeps *words* as *speaker* said them: ``Ana to Bo: I wrote to you``."""
    return f"{speaker} to {to}: {words}" if to else f"{speaker}: {words}"


def speaker_of(proposition: str) -> str | None:
    """Who says *proposition*; ``None`` if it is not kept in somebody's words."""
    found = _said(proposition)
    return found["who"] if found else None


def words_of(proposition: str) -> str:
    """*proposition* without the name of who says it."""
    found = _said(proposition)
    return found["words"] if found else proposition


def first_sentence(proposition: str) -> str:
    """*proposition* up to the end of its first sentence, in the same one's words."""
    words = words_of(proposition)
    return proposition.removesuffix(words) + (sentences(words) or [words])[0]


def _said(proposition: str) -> re.Match[str] | None:
    found = _SAID_BY.fullmatch(proposition)
    return found if found and len(found["who"].split()) <= _LONGEST_NAME else None


@lru_cache(maxsize=512)
def canonical_clauses(proposition: str) -> tuple[str, ...]:
    """
    The clauses of *proposition* in order, each in the third person.

    "I", "we", "my" and "our" are the speaker's; what a clause leaves out is restored
    ("Quit the hospital" is of the speaker); ``Deadline: March 10`` is read as ``The
    deadline is March 10``. A proposition in nobody's words is its own only clause.
    """
    speaker = speaker_of(proposition)
    if speaker is None:
        return (proposition,)
    words = words_of(proposition)
    found = [third_person(clause, speaker) for clause in _clauses(words)]
    note = _LABELLED.fullmatch(words) or _LABELLED.fullmatch(proposition)
    return (*found, _valued(note, speaker)) if note and _is_value(note["value"]) else tuple(found)


def _is_value(words: str) -> bool:
    said = with_apostrophes(words)
    return not (_PERSON.search(said) or has_verb(f"it {said}"))


def _clauses(words: str) -> list[str]:
    return [
        with_subject(bare(clause))
        for sentence in sentences(with_apostrophes(words))
        for clause in split_clauses(sentence)
    ]


def _valued(note: re.Match[str], speaker: str) -> str:
    label = note["label"][0].lower() + note["label"][1:]
    owned = third_person(label, speaker)
    return f"{owned if owned != label else f'The {label}'} is {note['value']}"


# ── Who is spoken of ─────────────────────────────────────────────────────────────────

_OTHER = re.compile(
    r"(?<![\w'’./@-])(?:you|your|yours|yourself|yourselves|ya|y['’]all|u|ur)(?![\w]|[./-]\w)", re.I
)
_QUOTED = re.compile(r"\"[^\"]*\"|“[^”]*”|«[^»]*»|`[^`]*`")


def first_person(text: str) -> int | None:
    """Where *text* has its first word of the first person, quotations left out."""
    found = _PERSON.search(_QUOTED.sub(lambda quoted: " " * len(quoted.group()), text))
    return found.start() if found else None


def speaks_of_self(text: str) -> bool:
    """Whether *text* has a word of the first person outside quotation marks."""
    return first_person(text) is not None


def speaks_of_other(text: str) -> bool:
    """Whether *text* has a word of the second person outside quotation marks."""
    return _OTHER.search(_QUOTED.sub("", text)) is not None


# Before or behind these the part of a word is not sure: another clause, a list, a person.
_UNCERTAIN = word_set(
    """
    and or but because so if that which who whom whose when while since until though although unless
    whether than what how why where he she they it this his her hers their them its him these those
    there we us our ours mine myself ourselves
    """
)
_LONGEST_CERTAIN = 16  # words and marks


def is_certain(clause: str) -> bool:
    """
    Whether ``third_person`` of *clause* keeps every word's part: it is one clause of "I" or "my",
    its verb of a known form, without another person or a list.
    """
    words = tokens_of(clause)
    folded = [word.lower() for word in words]
    if len(words) > _LONGEST_CERTAIN or not _UNCERTAIN.isdisjoint(folded):
        return False
    if any(not word[0].isalnum() for word in words[:-1]) or speaks_of_other(clause):
        return False
    subjects = [found.start() for found in _PERSON.finditer(clause)]
    verb = finite_verb(words)
    if subjects != [0] or verb is None:
        return False
    known = folded[0] == "my" or folded[0].startswith("i'") or _is_verb(folded[verb])
    return known or verb == len(words) - 1


def _is_verb(word: str) -> bool:
    return word in AUXILIARIES or word in BASE_VERBS or is_past(word) or word.endswith("n't")


# ── The third person ─────────────────────────────────────────────────────────────────

_PERSON = re.compile(
    r"(?<![\w'’./@-])(?:(?P<subject>[Ii]|[Ww]e)(?P<tail>['’](?:m|re|ve|ll|d))?"
    r"|(?P<object>[Mm]e|[Uu]s|[Mm]yself|[Oo]urselves)"
    r"|(?P<owner>[Mm]y|[Mm]ine|[Oo]urs?))(?![\w'’]|[./-]\w)"
)
_WORD = re.compile(r"\s+(?P<verb>[A-Za-z]+(?:['’][a-z]+)?)")
_IDIOM = re.compile(r"\s+(?:no longer|kind of|sort of)(?=\s)", re.IGNORECASE)
_TAILS = {"m": "is", "re": "is", "ve": "has", "ll": "will"}
_SINGULAR = {
    "am": "is", "are": "is", "were": "was", "have": "has", "haven't": "hasn't", "do": "does",
    "don't": "doesn't", "aren't": "isn't", "weren't": "wasn't", "gotta": "has to",
    "wanna": "wants to", "like": "likes",
}  # fmt: skip
# Third person already, or no verb at all.
_STILL = word_set(
    """
    is was has does did had been be gonna alone too not no do the a an my our his her their its this
    that these those and or nor but
    """
)


def third_person(text: str, speaker: str) -> str:
    """*text* with the pronouns of the first person replaced by *speaker*, verbs agreeing."""
    out: list[str] = []
    at = 0
    for found in _PERSON.finditer(text):
        out += (text[at : found.start()], speaker)
        at = found.end()
        if found["owner"]:
            out.append("'s")
        elif found["tail"]:
            out.append(f" {_auxiliary(found['tail'][1:], text[at:])}")
        elif found["subject"] and (verb := _verb_behind(text, at)):
            out += (text[at : verb.start("verb")], _agreed(verb["verb"]))
            at = verb.end("verb")
    return "".join((*out, text[at:]))


def _auxiliary(tail: str, rest: str) -> str:
    if tail != "d":
        return _TAILS[tail]
    following = next((w for w in rest.lower().split() if w not in ADVERBS), "")
    had = following in PARTICIPLES or following == "better" or following.endswith("ed")
    return "had" if had else "would"


def _verb_behind(text: str, at: int) -> re.Match[str] | None:
    """The word behind a subject, adverbs aside."""
    while found := _WORD.match(text, at):
        idiom = _IDIOM.match(text, at)
        if not (idiom or is_adverb(found["verb"].lower())):
            return found
        at = (idiom or found).end()
    return None


def _agreed(verb: str) -> str:
    lower = verb.lower().replace("’", "'")
    if lower in _SINGULAR:
        return _SINGULAR[lower]
    if lower in MODALS or lower in PREPOSITIONS or lower in PARTICIPLES or is_past(lower):
        return verb
    if "'" in lower or lower.endswith("ing") or len(lower) < 2 or lower in _STILL:
        return verb
    return with_s(verb)


# ── Pronouns that mean something outside ────────────────────────────────────────────────


# "It is important to Ana that …": the pronoun stands for what follows, not for what came before.
_EXPLETIVE = re.compile(
    r"\bit(?:['’]s| is| was| will be|['’]ll be| has been|['’]d be| would be| feels| felt| took"
    r"| takes| turns| comes)"
    r"(?: (?!(?:a|an|the|my|our|one)\b)[\w'’]+){1,3}? (?:to|that|when|how|for (?:\w+ ){1,4}to|if"
    r"|seeing|being|having|knowing|since|out)\b"
    r"|\bit (?:rains|rained|snows|snowed|turns out|takes|took)\b|\bit(?:['’]s| is) (?:raining"
    r"|snowing)\b",
    re.IGNORECASE,
)
_SOMEBODY = word_set("he she him her his hers himself herself")
_SEVERAL = word_set("they them their theirs themselves")
_THING = word_set("it its itself")
_POINTING = word_set("this that these those")
_PEOPLE = word_set(
    """
    mom mum mother dad father parent parents sister sisters brother brothers son sons daughter
    daughters wife husband partner spouse friend friends boyfriend girlfriend fiance cousin cousins
    uncle aunt grandma grandpa grandmother grandfather niece nephew child children kid kids baby
    boss doctor nurse guy guys girl girls boy boys man men woman women person people lady client
    patient student students colleague colleagues family team band dog cat puppy buddy pal everyone
    somebody someone one who
    """
)
_OF_PEOPLE = ("er", "or", "ist", "ian", "mate", "mates", "ers", "ors")
_OBJECTS = word_set("it them")
_BREAKS = word_set(
    ", ; : . - – — ( and but because so that when while if since as where who which after"
)
_TIMES = word_set(
    """
    week weekend month year morning afternoon evening night summer winter spring fall autumn season
    semester term time coming past
    """
).union(MONTHS, WEEKDAYS)
_BE = word_set("is are was were 's will has have can could may might would should")
_TAIL = re.compile(r"'(?:s|re|ve|ll|d|m)$")


def refers_outside(clause: str) -> bool:
    """Whether *clause* refers to what it does not explain: "I told her"."""
    spelled = tokens_of(_EXPLETIVE.sub(" ", clause))
    words = [_TAIL.sub("", word.lower()) for word in spelled]
    return any(
        _points(words, at) and not _explained(words[at], spelled[:at], words[:at])
        for at in range(len(words))
    )


def _explained(word: str, spelled: Sequence[str], before: Sequence[str]) -> bool:
    """Whether something *before* the pointing *word* may be what it means."""
    if word in _POINTING and before and before[-1][0].isalnum():
        return False  # "In this trip", "take this as a prize"
    if word in _OBJECTS:
        # What a verb is done with is not who does it, nor what else is done: "Bo knows it".
        joints = [at for at, other in enumerate(before) if other in _BREAKS]
        # "And" joins nouns, too: "Bo and Ana know it".
        breaks = [
            at
            for at in joints
            if before[at] != "and" or finite_verb(tuple(spelled[:at])) is not None
        ]
        spelled, before = spelled[: breaks[-1]] if breaks else (), before[: (breaks or [0])[-1]]
    names = [at for at, other in enumerate(spelled) if at and other[0].isupper() and other != "I"]
    if spelled and spelled[0][0].isupper() and _is_noun(before[0]):
        names.insert(0, 0)
    if word in _SOMEBODY:
        # Those who write "anika dropped out" name in lower case.
        written = bool(before) and spelled[0][0].islower() and _is_noun(before[0])
        return bool(names) or written or any(_is_person(w) and not _is_many(w) for w in before)
    nouns = list(filter(_is_noun, before))
    if word in _SEVERAL:
        return bool(names) or any(_is_person(w) or w.endswith("s") for w in nouns)
    if word in ("there", "here"):
        return bool(names) or bool({"in", "at", "to"}.intersection(before) and nouns)
    # "I moved and my dog loves it": what was done is meant.
    return bool(names or nouns) or (word == "it" and len(before) > 1)


def _is_noun(word: str) -> bool:
    return word not in ("yes", "no") and not is_gerund(word) and has_noun(word)


def _is_many(word: str) -> bool:
    return word.endswith("s") or word in ("people", "children", "men", "women")


def _is_person(word: str) -> bool:
    return word in _PEOPLE or (len(word) > 4 and word.endswith(_OF_PEOPLE))


def _points(words: Sequence[str], at: int) -> bool:
    """Whether the word *at* means something that is named elsewhere."""
    word, following = words[at], words[at + 1] if at + 1 < len(words) else "."
    ends = not following[0].isalnum()
    if word in _SOMEBODY or word in _SEVERAL or word in _THING:
        return True
    if word in _POINTING:
        if following in _TIMES or (word == "those" and following == "who"):
            return False
        # "That" inside a clause mostly opens another one.
        governed = at > 0 and words[at - 1] in PREPOSITIONS
        asks = at == 1 and words[0] in AUXILIARIES
        return word != "that" or at == 0 or asks or ends or governed or following in _BE
    if word in ("there", "here"):
        # "Jun here, from Utrecht" says who speaks.
        return following not in _BE and following not in ("in", "at") and at > 2 * (word == "here")
    if word == "such":
        return at > 0 and following not in ("a", "an", "as")
    return word in ("one", "ones") and at > 0 and (ends or following in PREPOSITIONS - {"of"})


# ── What a fact says, clause by clause ──────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Clause:
    """
    One clause in the third person.

    Attributes:
        text: Without what stands in brackets, and without words that only introduce it or say
            that it holds now.
        dates: What stood in brackets.
        is_change: Whether it says that something is otherwise than before: "new", "went up".
        is_new_state: Whether it says that of how things are and are done: "now", "instead".
        is_sure: Whether it says so without a hedge.
    """

    text: str
    dates: str
    is_change: bool
    is_new_state: bool
    is_sure: bool


@dataclass(frozen=True, slots=True)
class Said:
    """The *clauses* of a fact and its *speaker*, folded; empty if it is in nobody's words."""

    speaker: str
    clauses: tuple[Clause, ...]


_LONGEST = 600
_ASKS_OR_QUOTES = frozenset('?"“”？')
_HEDGES = word_set(
    "might may maybe perhaps probably possibly would could unless if wants want hopes hope planning"
    " considering thinks thought believes wonders wondering guess supposedly"
)
"""Words by which a clause claims nothing for certain; in lower case, unlike the month of May."""
_LETTERS = re.compile(r"[^\W\d_]+")
_PLANS = re.compile(r"\bplans? (?:to|on|for)\b")
_FINAL = re.compile(r"[.!\s]+$")
# Behind a statement these say that it holds, which the present tense does too.
_NOW = (
    r"now|nowadays|these days|again|instead|from now on"
    r"|since (?:yesterday|last \w+|this \w+|(?:mon|tues|wednes|thurs|fri|satur|sun)day)"
)
_LASTING = re.compile(
    rf",? (?:{_NOW}|currently|at present|at the moment|right now|for now|as of (?:now|today)"
    r"|already|any ?more|though|too)$"
)
_IS_NEW = re.compile(rf"\b(?:{_NOW})\b", re.IGNORECASE)
_OPENING = re.compile(
    r"^(?:(?:actually|sadly|unfortunately|luckily|finally|officially|correction|update"
    r"|(?:good|bad|big|sad|great) news|news|by the way|btw|fyi|so|well|ok|okay|and|but|also"
    r"|meanwhile|in the end|from now on|as of (?:now|today))"
    r"(?:[,:;!]+ ?|\.+ | [–—-]+ ?| (?=[A-Z])))+",
    re.IGNORECASE,
)
_CHANGE = re.compile(
    r"\b(?:now|new|again|any ?more|no longer|instead|chang(?:ed|es)|went|gone|goes|ris(?:en|es)"
    r"|rose|raised|increased|lowered|reduced|cut|dropped|fell|fallen|became|become|turned|moved"
    r"|switched|took over|taken over|takes over|another|only|left|already|back|up to|down to|since"
    r"|from now on|updated|extended|postponed|promoted|instead|third|fourth|fifth|born|actually)\b",
    re.IGNORECASE,
)
_ALSO = re.compile(r"\b(?:also|too|as well|another|both|besides|in addition)\b", re.IGNORECASE)
_OTHERS = re.compile(r" and others(?:(?P<owner>['’])|(?= ))")


@lru_cache(maxsize=256)
def said_in(text: str) -> Said:
    """Read *text*; a clause that asks or quotes is left out, and so is a long text."""
    if len(text) > _LONGEST:
        return Said("", ())
    speaker = speaker_of(text)
    clauses = _joined(canonical_clauses(text))
    plain = (made for clause in clauses for made in _plain(clause))
    return Said(fold(speaker or ""), tuple(dict.fromkeys(plain)))


def _plain(clause: str) -> Iterator[Clause]:
    if not _ASKS_OR_QUOTES.isdisjoint(clause):
        return
    dates = " ".join(BRACKETS.findall(clause))
    bare = re.sub(r"\s+", " ", BRACKETS.sub(" ", clause)).replace(" ,", ",")
    bare = _OTHERS.sub(_speaker_alone, LEADING.sub("", _OPENING.sub("", bare.strip())))
    is_change = _CHANGE.search(bare) is not None
    for part in _parts(_FINAL.sub("", bare)):
        is_sure = _HEDGES.isdisjoint(_LETTERS.findall(part)) and _PLANS.search(part) is None
        is_new = _IS_NEW.search(part) is not None and _ALSO.search(part) is None
        for text in _said_plainly(_LASTING.sub("", _LASTING.sub("", part))):
            yield Clause(text, dates, is_change, is_new, is_sure)


def _speaker_alone(others: re.Match[str]) -> str:
    """ "Ana and others" is what Ana calls "we": what holds for them holds for her."""
    return "'s" if others["owner"] else ""


# ── Two clauses behind a comma ───────────────────────────────────────────────────────

_JOINT = re.compile(r"(?:,|;| [–—-]|,? (?:and|but|so))+ (?=(?:[A-Z][\w'’]+|the|he|she) )")


def _parts(clause: str) -> Iterator[str]:
    """*clause*, cut where behind a comma another with a subject and a verb begins."""
    at = 0
    for joint in _JOINT.finditer(clause):
        left, right = clause[at : joint.start()], clause[joint.end() :]
        verb = finite_verb(tokens_of(right))
        if verb is not None and 1 <= verb <= 3 and finite_verb(tokens_of(left)) is not None:
            yield left
            at = joint.end()
    yield clause[at:]


# ── "It has changed, it is …" ────────────────────────────────────────────────────────

_CHANGED_TO = (
    r"(?i)^(?P<what>.+?) (?:(?:has|have|had|is|was|been|just|now|recently) )*(?:changed|updated)"
    r"(?: \w+)?(?:[,;:.–—-]| and)* (?:it|that|this|the new one|they)(?: is|['’]s| are)"
    r" (?:now )?(?P<v>.+)$"
)
_GOT_NEW = (
    r"^(?P<who>[^\s,;:]+(?: [^\s,;:]+){0,3}?) (?:(?:has|have|got|gotten|just|now) )+an? new"
    r" (?P<what>[\w-]+(?: [\w-]+){0,2}?)(?:[,;:–—-]| and| which is| of)+ (?:it(?: is|['’]s) )?"
    r"(?P<v>.+)$"
)
_REFERS = re.compile(r"^(?:it|that|this|the new one)(?: is|['’]s) (?:now )?", re.IGNORECASE)
_IS_CHANGED = re.compile(r"\b(?:changed|updated|a new \w+(?: \w+)?)[.!]?$")


def _joined(clauses: tuple[str, ...]) -> Iterator[str]:
    """*clauses*, with one that begins with "it is" joined to the change that it explains."""
    before = ""
    for clause in clauses:
        if before and _IS_CHANGED.search(before) and _REFERS.match(clause):
            clause = f"{_FINAL.sub('', before)}, {clause}"
        elif before:
            yield before
        before = clause
    if before:
        yield before


# ── The same in another order ────────────────────────────────────────────────────────

_PERSONS = (
    r"(?:boss|manager|supervisor|team ?lead|line manager|wife|husband|partner|girlfriend|boyfriend"
    r"|fianc[ée]e?|landlord|landlady|doctor|dentist|therapist|coach|teacher|tutor|mentor|assistant"
    r"|accountant|lawyer|flatmate|roommate|neighbour|neighbor)"
)
_CAPITAL = r"[^\W\d_a-z][\w'’.-]*"
_NAMED = rf"{_CAPITAL}(?: {_CAPITAL}){{0,2}}"
_OWNER = rf"(?P<s>{_CAPITAL}(?: [\w-]+){{0,2}})['’]s"
_ORDERS = [
    (re.compile(said), order)
    for said, order in (
        (_CHANGED_TO, r"\g<what> is \g<v>"),
        (_GOT_NEW, r"\g<who>'s \g<what> is \g<v>"),
        (
            rf"^(?P<v>{_NAMED}) (?:is|became|has become) (?:now )?{_OWNER} "
            rf"(?:(?:new|current|present) )*(?P<a>{_PERSONS})$",
            r"\g<s>'s \g<a> is \g<v>",
        ),
        (
            rf"^{_OWNER} (?P<a>(?:new )?{_PERSONS}),? (?P<v>{_NAMED}),? [a-z].*$",
            r"\g<s>'s \g<a> is \g<v>",
        ),
        (
            rf"^(?P<v>[^,;]{{1,40}}?) (?:is|are) (?:now )?{_OWNER} (?P<a>(?:(?:new|current) )*"
            r"favou?rite [\w-]+(?: [\w-]+)?)$",
            r"\g<s>'s \g<a> is \g<v>",
        ),
        (
            rf"^.*\b(?:reach|call|text|phone|ring) (?P<s>{_NAMED}) (?:now )?(?:on|at|under)"
            r" (?P<v>[\d+][\d ()/.-]+)$",
            r"\g<s>'s phone number is \g<v>",
        ),
        (rf"^(?P<s>{_NAMED}) (?:now )?reports to (?P<v>{_NAMED})$", r"\g<s>'s boss is \g<v>"),
        (r"^(?P<s>.+?) (?:is|are) (?:called|named) (?P<v>.+)$", r"\g<s> is \g<v>"),
        (
            rf"^(?P<a>{_CAPITAL}) and (?P<b>{_CAPITAL}) (?:have |has |just )*"
            r"(?P<v>broke|broken|split|separated)(?: up)?\b.*$",
            r"\g<a> broke up with \g<b>",
        ),
    )
]
_BOTH_WAYS = re.compile(rf"^(?P<a>{_CAPITAL}) broke up with (?P<b>{_CAPITAL})$")


def _said_plainly(text: str) -> Iterator[str]:
    """*text*, and what it says in the order in which others say it."""
    yield text
    for pattern, order in _ORDERS:
        if found := pattern.match(text):
            plain = found.expand(order)
            yield plain
            if both := _BOTH_WAYS.match(plain):
                yield f"{both['b']} broke up with {both['a']}"
