"""Facts without a model: what a turn says that can be understood alone, as it was said."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from mnemo.config import Config
from mnemo.english.canonical import (
    first_person,
    is_certain,
    refers_outside,
    said_by,
    speaks_of_other,
    speaks_of_self,
    third_person,
)
from mnemo.english.clauses import (
    bare,
    has_verb,
    is_note,
    is_passing,
    is_small_talk,
    split_clauses,
    wanted_in,
    with_subject,
    without_lead,
    without_vocatives,
)
from mnemo.english.dates import with_dates
from mnemo.english.sentences import ends_as_question, sentences, with_apostrophes
from mnemo.english.verbs import finite_verb, is_gerund, is_question, may_have_verb, tokens_of
from mnemo.english.words import ADVERBS, EVALUATIVE, LIGHT, content_count, is_past, word_set
from mnemo.extraction.output import CONFIDENCE, facts_of_output
from mnemo.extraction.scene import (
    Kind,
    Parties,
    Role,
    Scene,
    call_name,
    excerpt,
    kind_of,
    scene_of,
    without_calls,
    without_code,
    workers,
)
from mnemo.index.corpus import ROLES
from mnemo.runtime.clock import Breather
from mnemo.runtime.text import STOP_WORDS, is_blank, one_line, words
from mnemo.values.steps import Fact, Trajectory

_QUESTION = re.compile(r"(?:^|(?<=[.!?…])\s+|(?<=\n))([^.!?\n]{2,240}\?)")
_FIRST_WORD = re.compile(r"[a-z]+")
_LONGEST_QUESTION = 160  # characters; of one without a mark, and of one that an answer explains


class EmbeddedSemanticExtractor:
    """Extract facts by rules; every word is the steps', a name, a date or a template's."""

    def __init__(self, config: Config) -> None:
        self._parties = Parties.of(config)

    async def extract_facts(self, trajectory: Trajectory) -> list[Fact]:
        """Give the facts in order. *Cancellation*: safe; the thread at work ends by itself."""
        work = partial(_extract, trajectory, self._parties)
        return await workers().run(work, abandon=True)


def _extract(trajectory: Trajectory, parties: Parties) -> list[Fact]:
    scene = scene_of((*trajectory.context, *trajectory.steps), parties)
    breather = Breather()
    said: list[Fact] = []
    for at in range(len(trajectory.context), len(scene.steps)):
        said.extend(_of_step(scene, at, breather.breathe))
        breather.breathe()
    own = {step.index for step in trajectory.steps}
    return [replace(one, steps=tuple(i for i in one.steps if i in own)) for one in said]


def _of_step(scene: Scene, at: int, breathe: Callable[[], None]) -> Iterator[Fact]:
    step = scene.steps[at]
    if not is_blank(step.observation):
        yield from _of_observation(scene, at, breathe)
    if not is_blank(step.action) and call_name(step.action) is None:
        action = without_code(without_calls(excerpt(step.action)))
        if kind_of(action) is Kind.SPEECH:
            yield from facts_of_agent(_turn(action, scene.agent, scene, at), breathe)


def _of_observation(scene: Scene, at: int, breathe: Callable[[], None]) -> Iterator[Fact]:
    step = scene.steps[at]
    text, _, shell = without_code(excerpt(step.observation)).partition("\n$ ")
    output = scene.is_output(at, text)
    told = [*facts_of_output(shell, None, breathe)] if shell else []
    told += facts_of_output(text, scene.call_before(at), breathe) if output else []
    yield from (_fact(fact, CONFIDENCE, step.index) for fact in told)
    if output:
        return
    turn = _turn(text, step.actor, scene, at)
    by_person = scene.speaks(at)
    yield from facts_of_turn(turn, breathe) if by_person else facts_of_agent(turn, breathe)


def _turn(text: str, speaker: str, scene: Scene, at: int) -> SpeechTurn:
    step = scene.steps[at]
    asked = _asked_before(scene, at) if speaker == step.actor else None
    return SpeechTurn(text, speaker, step.at, step.index, scene, asked)


def _asked_before(scene: Scene, at: int) -> tuple[str, str, int] | None:
    """The question that step *at* may answer, who asked it, and in which step."""
    if at == 0:
        return None
    before = scene.steps[at - 1]
    if not is_blank(before.action):
        said, asker = before.action, scene.agent
    elif before.actor == scene.steps[at].actor or scene.role(at - 1) is Role.TOOL:
        return None
    else:
        said, asker = before.observation, before.actor
    question = _question(excerpt(said[-2_000:]))
    return (question, asker, before.index) if question else None


def _question(text: str) -> str | None:
    if "?" not in text:
        last = text[-_LONGEST_QUESTION:].rsplit("\n", 1)[-1]
        asked = next(reversed(sentences(last)), "")
        return one_line(asked) if is_question(tokens_of(asked)) and '"' not in asked else None
    found = _QUESTION.findall(text)
    return one_line(found[-1]) if found and '"' not in found[-1] else None


# ── Turns ────────────────────────────────────────────────────────────────────────────────

PLAIN, HEARSAY, HEDGED = 0.8, 0.6, 0.5
"""Confidence of a plain statement, of hearsay, of a guess; the specification's numbers."""

_POINTED = re.compile(r"[.!?][\"”]$")
FINAL = re.compile(r"[\s.!…,;:]+$")


@dataclass(frozen=True, slots=True)
class SpeechTurn:
    """A turn of speech, secrets hidden; *asked*: what it may answer, of whom, and of which step."""

    text: str
    speaker: str
    at: datetime
    step: int
    scene: Scene
    asked: tuple[str, str, int] | None


_HEDGE = re.compile(
    r"\b(?:maybe|might|perhaps|probably|possibly|i think|i guess|i believe|i suppose|not sure"
    r"|i assume|i feel like|kind of want|sounds like|seems like|i doubt|presumably)\b",
    re.IGNORECASE,
)
_HEARSAY = re.compile(
    r"\b(?:(?:he|she|they|someone|somebody|people|everyone|mom|dad|doctor|boss) (?:\w+ )?"
    r"(?:said|says|say|told|tells|claims?|claimed|mentioned|thinks?)|i(?:['’]ve| have)? heard"
    r"|apparently"
    r"|(?<!\bI )(?<!\bwe )(?:said|says|claimed|claims|mentioned)"
    r"|allegedly|supposedly|rumou?r|told me|i(?:['’]ve| have) been told|i was told)\b",
    re.IGNORECASE,
)


def confidence_of(clause: str) -> float:
    """How sure *clause* sounds: a guess, hearsay, or a plain statement."""
    if _HEDGE.search(clause):
        return HEDGED
    return HEARSAY if _HEARSAY.search(clause) else PLAIN


def finished(text: str) -> str:
    """Finish *text* as a sentence: one line, a point behind."""
    text = FINAL.sub("", one_line(text))
    return text if _POINTED.search(text) else text + "."


_LONGEST = 400  # characters; a longer "sentence" is no prose
_LONGEST_JOINED = 60  # words of a fact of several sentences
_SHORT_CLAUSE = 5  # words
_LONGEST_ADDITION = 6  # words

_NAME_OR_NUMBER = re.compile(
    r"\d|(?<=[a-z,'’] )[A-Z][a-z]+|\b[A-Z]{2,}\b|^[A-Z][a-z]+ [A-Z][a-z]+|[a-z]\.[a-z]|`|\""
)
_JUDGES = re.compile(
    r"\b(?:sounds?|seems?|looks?|makes? (?:more )?sense|(?:really|definitely) help(?:s|ed)?)\b",
    re.I,
)
_NUMBER = re.compile(r"\d")
# Verbs of talk, which tell of nothing but it.
_OF_TALK = word_set(
    """
    admit agree apologise apologize assume concur confess disagree doubt forget insist laugh
    learn mind promise regret remember suppose surrender swear understand wonder
    """
)
# "Once I have it set up": a clause that another one needs.
_HALF = re.compile(
    r"^(?:so |and |but )?(?:if|when|whenever|because|although|though|while|unless|once|whether"
    r"|until)\b[^,]*$",
    re.IGNORECASE,
)
_ENDS_OPEN = re.compile(
    r"\b(?:and|or|but|so|the|a|an|of|to|with|because|is|are)\W*$|[:,]\s*$", re.I
)


def facts_of_turn(turn: SpeechTurn, breathe: Callable[[], None]) -> list[Fact]:
    """
    Give the facts of *turn*, in the order in which they were said.

    Greetings, thanks, praise, requests and questions give none. A fact has the turn's words
    behind the speaker's name, with resolved dates; only a simple clause of "I" or "my" is
    told in the third person. What is pasted behind an "I have written this" gives none.

    *breathe* is called once per sentence, so that a long turn does not hold the thread.
    """
    found: list[Fact] = []
    last: str | None = None
    said = [s for s in sentences(turn.text) if len(s) <= _LONGEST]
    pasted = len(said) > _LONGEST_REPORT and any(map(speaks_of_self, said[:2]))
    for at, sentence in enumerate(said):
        breathe()
        if pasted and not speaks_of_self(sentence):
            last = None
            continue
        clauses = [_trimmed(turn, clause) for clause in split_clauses(without_lead(sentence))]
        answer = None
        if at <= 1 and not any(_stands(turn, clause) for clause in clauses):
            answer = answer_in(turn, said[at:])
        if answer is not None:
            found.append(answer)
            turn = replace(turn, asked=None)
            last = None
            continue
        for place, clause in enumerate(clauses):
            last = _hear(turn, clause, last, found, begins=place == 0)
    return found


def _hear(
    turn: SpeechTurn, clause: str, last: str | None, found: list[Fact], *, begins: bool
) -> str | None:
    """Add the fact of *clause*; give its words. *last*: the words of the fact before it."""
    adds = begins and last is not None and _adds(turn, clause)
    if not (adds or _states(turn, clause)):
        return None
    if adds or refers_outside(with_apostrophes(clause)):
        if last is None or len(f"{last} {clause}".split()) > _LONGEST_JOINED:
            return None
        found.pop()
        clause = f"{FINAL.sub('', last)}. {clause[0].upper()}{clause[1:]}"
    found.append(_told(turn, clause))
    return clause


def _adds(turn: SpeechTurn, words: str) -> bool:
    """Whether *words* are a few that only say more about the sentence before: "Mended since."."""
    few = 0 < len(words.split()) <= _LONGEST_ADDITION and not words.startswith(("[", '"', "“"))
    if not few or is_note(words) or is_small_talk(words) or ends_as_question(words):
        return False
    if has_verb(words):
        plain = not (speaks_of_self(words) or speaks_of_other(words) or wanted_in(words))
        return plain and not _NAME_OR_NUMBER.search(words) and _states(turn, words)
    return _NAME_OR_NUMBER.search(words[:1].lower() + words[1:]) is not None


def _stands(turn: SpeechTurn, clause: str) -> bool:
    return _states(turn, clause) and not refers_outside(with_apostrophes(clause))


def _trimmed(turn: SpeechTurn, clause: str) -> str:
    """*clause* without what only addresses somebody or fills a pause."""
    return bare(without_vocatives(without_lead(clause), turn.scene.is_name))


def _states(turn: SpeechTurn, words: str) -> bool:
    """Whether *words*, a clause, says something worth keeping about the speaker or the world."""
    if (
        not words
        or words.startswith(("[", '"', "“"))
        or ends_as_question(words)
        or _ENDS_OPEN.search(words)
    ):
        return False
    if is_note(words):
        return True
    clause = with_subject(with_apostrophes(words))
    if is_question(tokens_of(with_apostrophes(words))) or is_small_talk(words):
        return False
    if wanted_in(clause) is not None:
        return False
    if speaks_of_other(clause) and not (_is_deed(clause) and turn.scene.is_talk):
        return False
    if not (has_verb(clause) or may_have_verb(tokens_of(clause))):
        return False
    if _HALF.match(clause) or not _says_enough(clause, turn.scene):
        return False
    if is_passing(clause) and not _NUMBER.search(clause):
        return False
    # What people say to each other about the world is talk, unless it names or counts.
    if turn.scene.is_talk and not _is_own(clause):
        return _is_plain(clause) and (len(turn.scene.people) > 2 or bool(_NUMBER.search(clause)))
    return _tells(clause)


def _is_own(clause: str) -> bool:
    """Whether the subject of *clause* is its speaker or the speaker's: "Last May my cat …"."""
    own = first_person(clause)
    verb = finite_verb(tokens_of(clause))
    if own is None or verb is None or is_gerund(tokens_of(clause)[0].lower()):
        return False
    return len(tokens_of(clause[:own])) <= verb


def _is_plain(clause: str) -> bool:
    """Whether *clause* only states something, of somebody named or with a number."""
    judged = any(word in LIGHT for word in words(clause))
    return not judged and _NAME_OR_NUMBER.search(clause) is not None


def _tells(clause: str) -> bool:
    """Whether *clause* is more than a judgement: of its speaker, or of somebody named."""
    if _is_own(clause):
        return True
    if _JUDGES.search(clause):
        return _NUMBER.search(clause) is not None
    judged = any(word in EVALUATIVE for word in words(clause))
    return not judged or _NAME_OR_NUMBER.search(clause) is not None


def _says_enough(clause: str, scene: Scene) -> bool:
    """Whether it has two words that carry a topic, or one, if it is short or has a name."""
    content = [w for w in words(clause) if w not in STOP_WORDS and w not in ADVERBS]
    telling = [w for w in content if not (w in LIGHT or w in _OF_TALK or scene.is_name(w))]
    if len(telling) >= 2:
        return True
    short = speaks_of_self(clause) and len(clause.split()) <= _SHORT_CLAUSE
    return bool(telling) and (short or _NAME_OR_NUMBER.search(clause) is not None)


def _told(turn: SpeechTurn, words: str) -> Fact:
    clause = with_subject(with_apostrophes(FINAL.sub("", words)))
    own = speaks_of_self(clause)
    is_sentence = not clause[0].islower() and has_verb(clause)
    if own and is_certain(clause):
        text = third_person(clause, turn.speaker)
    elif own or turn.scene.is_talk or not (is_note(words) or is_sentence):
        other = turn.scene.other(turn.speaker) if speaks_of_other(clause) else None
        text = said_by(turn.speaker, words, to=other)
    else:
        text = words
    return _fact(finished(with_dates(text, turn.at)), confidence_of(words), turn.step)


def _fact(text: str, confidence: float, *steps: int) -> Fact:
    """A fact that begins with a capital, also where a role is named: "user lives in Bern."."""
    named = _FIRST_WORD.match(text)
    begun = text[:1].upper() + text[1:] if named and named[0] in ROLES else text
    return Fact(proposition=begun, confidence=confidence, steps=steps)


# ── The agent's side: only what it states as done ───────────────────────────────────────

_SHORT = 3  # sentences; only a short action may leave out its "I"
_LONGEST_REPORT = 12  # sentences; a longer text is a draft or an explanation
_LONGEST_DEED = 300  # characters
_OWN_ACT = re.compile(
    r"^(?:I|We)(?:['’]ve| have)?(?: just| now| also| already| successfully| then"
    r"| finally)*\s+(?P<verb>[a-z]+)\b"
)
# Acts of talking, and states of mind: about the conversation, not about the world.
_TALK = word_set(
    """
    asked replied said told answered greeted thanked offered acknowledged responded explained
    mentioned had was were understood thought felt heard saw knew meant hoped wanted tried
    needed appreciated noticed provided shared outlined listed included described been assumed
    apologized confirmed read loved liked enjoyed
    """
)
# "I noted that you like jazz": what it supposes of the other party is no act.
_OF_OTHER = re.compile(
    r"^\s*(?:(?:that|how|why|whether|if)\b.*\b(?:you|your|he|she|they)\b"
    r"|you['’](?:re|ve|d|ll)\b"
    r"|you (?:are|were|have|had|do|did|will|would|can|could|must|should|may|might|like|love|want"
    r"|need|live|work|prefer|hate|enjoy|own|know)\b"
    r"|your [\w' -]{1,40}? (?:is|are|was|were|has|have|will)\b)",
    re.IGNORECASE,
)
# "I updated your profile: you live in Rome": the act, and a guess behind it.
_GUESS_BEHIND = re.compile(
    r"\s*(?:[,;:]|\s[-–—])\s+(?:so |and |but |because |since |that )?(?:you|your|the user)\b.*",
    re.IGNORECASE | re.DOTALL,
)


def _is_deed(clause: str) -> bool:
    """Whether *clause* tells what its speaker has done, not thought or said."""
    act = _OWN_ACT.match(clause)
    if act is None or act["verb"] in _TALK or not is_past(act["verb"]):
        return False
    return not _OF_OTHER.match(clause[act.end() :])


def facts_of_agent(turn: SpeechTurn, breathe: Callable[[], None]) -> Iterator[Fact]:
    """The acts that the agent states as done; no guesses, nothing of the other party."""
    said = [s for s in sentences(turn.text) if not s.endswith("?")]
    for sentence in said if len(said) <= _LONGEST_REPORT else ():
        breathe()
        told = _GUESS_BEHIND.sub("", bare(sentence))
        clause = with_subject(told) if len(said) <= _SHORT else told
        if not _is_deed(clause) or is_small_talk(clause) or refers_outside(clause):
            continue
        if len(clause) > _LONGEST_DEED or content_count(clause) < 2:
            continue
        if confidence_of(clause) == PLAIN:
            yield _told(turn, told)


# ── Short answers ───────────────────────────────────────────────────────────────────────


_FEW = 4  # content words below which a reply is an answer, not a statement
_SHORT_QUESTION = 10  # words; among people a longer one is rather talk
# A question that "yes" answers; one that offers a choice is answered by what is chosen.
_YES_NO_QUESTION = re.compile(
    r"^(?:so |and |but )?(?:is|are|was|were|do|does|did|have|has|had|can|could|will|would|should"
    r"|may|you(?:r|['’]re|['’]ve)?)"
    r"\b(?!.* or )|.*,? (?:right|correct|(?:is|do|are|have|did|was|would|can)n['’]t \w+)\?*$",
    re.IGNORECASE,
)
_YES_NO = re.compile(
    r"^(?:yes|yeah|yea|yep|yup|no(?! (?:worries|problem|idea|doubt|clue))|nope|nah"
    r"|not (?:yet|really|at all|any ?more|often|since)|sure|never(?! mind)|sometimes|rarely"
    r"|of course|absolutely|definitely|certainly|correct"
    r"|(?:i|we) (?:do|am|are|have|did|was|were|can|could|will|would)(?:n['’]?t| not)?(?=\W*$)"
    r"|i['’]?m not(?=\W*$))\b",
    re.IGNORECASE,
)
_DODGES = re.compile(
    r"^(?:\w{1,3},? )?(?:never ?mind|not sure|who knows|maybe|perhaps|hm+\b"
    r"|no (?:idea|clue)|dunno|good question|let me|one (?:moment|second)"
    r"|i (?:don['’]?t|do not) know|(?:it )?depends|why\b|skip|pass$|whatever)",
    re.IGNORECASE,
)
_HAPPENED = re.compile(r"^did you\b(?! ever)", re.I)
_GREETS = re.compile(
    r"^(?:how(?:['’]s|['’]ve| is| are| was| were| have| did)|what(?:['’]s| is) (?:up|new))\b", re.I
)
_BARE = re.compile(r"^(?:yes|yeah|yea|yep|yup|no|nope|nah)\W*$", re.I)
_ANY = re.compile(r"\bany\b", re.I)
_NO = re.compile(r"^(?:no|nope|nah|not|never|i ?['’]?m not|(?:i|we) \w+(?:n['’]?t| not))\b", re.I)
_OF_YOU = re.compile(r"\b(?:you|your)\b", re.I)


def answer_in(turn: SpeechTurn, said: Sequence[str]) -> Fact | None:
    """The fact of a short answer, ``Bo: Do you smoke? Ana: No.``, which *said* begins with."""
    question, asker, asked_in = turn.asked or ("", "", 0)
    if not 0 < len(question) <= _LONGEST_QUESTION:
        return None
    if ends_as_question(said[0]) or '"' in said[0] or _DODGES.match(bare(said[0])):
        return None
    answer = FINAL.sub("", without_vocatives(_with_detail(said), turn.scene.is_name))
    content = [w for w in words(_YES_NO.sub("", answer)) if w not in STOP_WORDS]
    if len(content) > 2 * _FEW or _has_own_verb(answer):
        return None
    if (
        speaks_of_other(answer)
        or is_small_talk(answer)
        or (content and is_small_talk(bare(without_lead(answer))))
    ):
        return None
    if not _tells_together(turn, question, answer, content):
        return None
    told = with_dates(said_by(turn.speaker, one_line(answer)), turn.at)
    asked = FINAL.sub("", one_line(question))
    text = said_by(asker, f"{asked if asked.endswith('?') else f'{asked}?'} {told}")
    return _fact(finished(text), confidence_of(answer), *sorted({asked_in, turn.step}))


def _judges(answer: str) -> bool:
    return any(word in LIGHT for word in words(_YES_NO.sub("", answer)))


def _has_own_verb(answer: str) -> bool:
    """Whether *answer* has a verb besides that of its yes or no: "no I don't", "yes she is"."""
    detail = _YES_NO.sub("", _YES_NO.sub("", answer, count=1).lstrip(" ,"), count=1)
    short = detail != answer and len(detail.split()) <= 2
    return not short and has_verb(detail)


def _with_detail(said: Sequence[str]) -> str:
    """The answer, with the fragment behind a bare "Yes.": "Yes. Peanuts"."""
    behind = said[1] if len(said) > 1 and _BARE.match(said[0]) else ""
    if not behind or has_verb(behind) or len(behind.split()) > _FEW:
        return said[0]
    return f"{said[0]} {behind}"


def _tells_together(turn: SpeechTurn, question: str, answer: str, content: Sequence[str]) -> bool:
    """Whether question and answer together say something."""
    telling = [w for w in content if w not in LIGHT and not turn.scene.is_name(w)]
    asked = [w for w in words(question) if w not in STOP_WORDS and w not in LIGHT]
    question = without_lead(question)
    yes_no = _YES_NO_QUESTION.match(question) is not None
    of_you = _OF_YOU.search(question) is not None
    if refers_outside(question) or _GREETS.match(question):
        return False
    if turn.scene.is_talk and _HAPPENED.match(question):
        return False
    if turn.scene.is_talk and (len(question.split()) > _SHORT_QUESTION or _judges(answer)):
        return False
    if _YES_NO.match(answer):
        plain = bool(telling) or len(answer.split()) <= _FEW - 1
        # "Do you have any hobbies?" is not answered by a mere yes.
        which = not telling and _ANY.search(question) and not _NO.match(answer)
        return plain and yes_no and not which and len(asked) >= (1 if of_you else 2)
    if refers_outside(answer) or (yes_no and not (of_you and asked and telling)):
        return False
    return bool(telling) and bool(asked or of_you)
