"""Facts from speech: what one turn says, sentence by sentence."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from mnemo.english.clauses import (
    bare,
    has_verb,
    is_imperative,
    split_clauses,
    with_subject,
    without_lead,
    without_vocatives,
)
from mnemo.english.dates import with_dates
from mnemo.english.persons import speaks_of_other, speaks_of_self, third_person
from mnemo.english.pronouns import begins_with_pronoun, hangs, is_expletive, joined_to, with_person
from mnemo.english.sentences import ends_as_question, sentences, with_apostrophes
from mnemo.english.speech_acts import asked_to, is_report, is_small_talk, request_of
from mnemo.english.topics import content_count, has_noun
from mnemo.english.verbs import is_question, may_have_verb, tokens_of
from mnemo.english.words import ADVERBS, LIGHT, is_past, word_set
from mnemo.extraction.embedded.answers import answer_in, is_greeting, quoted, with_detail
from mnemo.extraction.embedded.meeting_notes import noted
from mnemo.extraction.embedded.scene import Scene
from mnemo.extraction.embedded.statements import (
    PLAIN,
    SpeechTurn,
    Statement,
    confidence_of,
    finished,
)
from mnemo.runtime.text import STOP_WORDS, words

__all__ = ["facts_of_agent", "facts_of_turn"]

_MOST_SENTENCES = 120  # of one text; facts per trajectory are far fewer
_LONGEST = 400  # characters; a longer "sentence" is no prose

_CORRECTION = re.compile(
    r"^(?:(?:oh|sorry|wait|oops|no|nope|hmm|well|my bad)[,.!]?\s+){0,3}"
    r"(?:actually|correction|scratch that|i meant|i mean(?:t)?|make that|rather)\b[,:]?\s*",
    re.IGNORECASE,
)
_STAGE = re.compile(r"^[\[(*]\s*(?P<verb>[a-z]+s)\s+(?P<rest>[^\]]{3,300}?)\s*[\])*]+[.!]?$")
_YOU_FIRST = re.compile(r"^(?:you|you['’]\w+|your|ya|y['’]all)\b", re.IGNORECASE)
_YOU_DID = re.compile(
    r"^you (?:\w+ly |just |also )?(?:told|said|asked|recommended|suggested|gave|sent|mentioned"
    r"|promised"
    r"|showed|bought|wrote|forgot|broke|fixed|deleted|created|changed|missed|used|lost|won)\b",
    re.IGNORECASE,
)
_NAME_OR_NUMBER = re.compile(
    r"\d|(?<=[a-z,'’] )[A-Z][a-z]+|\b[A-Z]{2,}\b|^[A-Z][a-z]+ [A-Z][a-z]+|[a-z]\.[a-z]|`|\""
)
_ASKING = re.compile(
    r"^(?:and |so |but )?(?:what(?! (?:i|we|my)\b)|how|why|where|who|which|is|are|do|does|did"
    r"|was|were|can|could|should"
    r"|would|will|have|has|am|any)\b",
    re.IGNORECASE,
)
_REQUEST = re.compile(
    r"^(?:and |so |but )?(?:can|could|would|will|is it possible)\b", re.IGNORECASE
)
# "I have a dog" has one content word and still says something.
_OWNS = re.compile(
    r"^(?:I|we)(?:['’]ve| (?:(?:don['’]t|never|no longer|now|still|also) )?(?:have|own))\b"
    r"|^I(?:['’]m| am) an?\b"
    r"|^(?:I(?:['’]m| am)|we(?:['’]re| are)) (?:(?:now|still|also|not|no longer) )?[\w-]+\W*$",
    re.IGNORECASE,
)
# "I no longer smoke" says all in its verb; so does no verb of talk and no act of the moment.
_HABIT = re.compile(
    r"^(?:I|we) (?:(?:never|always|often|usually|sometimes|rarely|seldom|hardly ever|no longer"
    r"|still|now|also|mostly|do not|don['’]t) )*(?P<verb>[a-z]+)"
    r"(?: (?:out|in|at home|alone|well|badly|a lot|any ?more))*\W*$",
    re.IGNORECASE,
)
_OF_TALK = word_set(
    """
    admit agree apologise apologize assume concur confess disagree doubt forget insist laugh
    promise regret remember suppose surrender swear understand wonder
    """
)
# "I'm so excited to tell you that …": what is told is the fact.
_PREAMBLE = re.compile(
    r"^I(?:['’]m| am)? (?:\w+ )?(?:excited|happy|glad|thrilled|pleased|proud|wanted"
    r"|want) to (?:tell|share|say"
    r"|let|announce)(?: with)?(?: you)?(?: know)?(?: that)?\s+(?=(?:I|we|my)\b)",
    re.IGNORECASE,
)
_PART_END = re.compile(r";\s+|\s+[-–—]+\s+")


def facts_of_turn(turn: SpeechTurn, breathe: Callable[[], None]) -> list[Statement]:
    """
    Give the facts of *turn*, in the order in which they were said.

    Greetings, thanks, praise and plain questions give none. Each fact is made of the
    turn's words, the parties' names, resolved dates and fixed templates.

    Args:
        breathe: Called once per sentence, so that a long turn does not hold the thread.
    """
    heard = _Heard([], [], None)
    may_answer = turn.asked is not None
    said = _sentences(turn.text)
    for sentence in with_detail(said) if may_answer else said:
        breathe()
        if may_answer and not is_greeting(turn, sentence):
            may_answer = False
            first, rest = _first_part(sentence)
            if answer := answer_in(turn, first):
                heard.found.append(answer)
                heard.before.append(answer.text)
                sentence = _own_clause(first, rest)
        for clause in _clauses(sentence):
            _hear(turn, clause, heard)
    return heard.found


@dataclass(slots=True)
class _Heard:
    """
    What a turn has said so far.

    Attributes:
        anchor: The fact that a pronoun of the next clause may mean; ``None`` if the
            last clause gave none.
    """

    found: list[Statement]
    before: list[str]
    anchor: Statement | None


def _hear(turn: SpeechTurn, clause: str, heard: _Heard) -> None:
    said = _fact(turn, clause, heard.before, heard.anchor)
    if isinstance(said, _Joined):
        if heard.found[-1] is heard.anchor:
            heard.found.pop()
        heard.found.append(said.said)
    elif said is not None:
        heard.found.append(said)
        heard.anchor = said
    else:
        heard.anchor = None
    heard.before.append(heard.found[-1].text if said else third_person(clause, turn.voice))


def _own_clause(answer: str, rest: str) -> str:
    """What of an answer is a statement by itself: "I'm a nurse", also behind a "Yes"."""
    clause = without_lead(answer)
    own = speaks_of_self(clause) and has_verb(clause) and not rest
    return clause if own else rest


def _first_part(sentence: str) -> tuple[str, str]:
    """*sentence* up to its first semicolon or dash, and what follows."""
    parts = _PART_END.split(sentence, maxsplit=1)
    return parts[0], parts[1] if len(parts) > 1 else ""


def _clauses(sentence: str) -> list[str]:
    clauses = split_clauses(sentence)
    if not sentence.endswith("?"):
        return clauses
    return [clause for clause in clauses if not _ASKING.match(clause) or _REQUEST.match(clause)]


def _sentences(text: str) -> Sequence[str]:
    found = sentences(with_apostrophes(text))
    if len(found) > _MOST_SENTENCES:
        half = _MOST_SENTENCES // 2
        found = found[:half] + found[-half:]
    return [s for s in found if len(s) <= _LONGEST]


@dataclass(frozen=True, slots=True)
class _Joined:
    """The fact before and this one, which needs it; the first alone is not said again."""

    said: Statement


def _fact(
    turn: SpeechTurn, clause: str, before: Sequence[str], previous: Statement | None
) -> Statement | _Joined | None:
    stage = _STAGE.match(clause)
    if stage:
        return _said(turn, f"{turn.speaker} {stage['verb']} {stage['rest']}", clause)
    note = noted(clause, turn.scene.is_name)
    if note is not None:
        return _said(turn, third_person(note, turn.voice), clause) if note else None
    correction = _CORRECTION.match(clause)
    clause = clause[correction.end() :] if correction else clause
    statement = _statement(turn, clause)
    if statement is None:
        return None
    if not begins_with_pronoun(statement):
        if not hangs(clause):
            return _said(turn, statement, clause, corrects=correction is not None)
        return _hanging(turn, statement, clause, before, previous)
    person = with_person(statement, before, turn.scene.names)
    if person is not None:
        return _said(turn, person, clause)
    return _join(turn, statement, clause, previous)


def _join(
    turn: SpeechTurn, statement: str, clause: str, previous: Statement | None
) -> _Joined | None:
    joined = previous and joined_to(previous.text, statement)
    if not joined or previous is None:
        return None
    said = _said(turn, joined, clause)
    return _Joined(replace(said, confidence=min(said.confidence, previous.confidence)))


def _hanging(
    turn: SpeechTurn, statement: str, clause: str, before: Sequence[str], previous: Statement | None
) -> Statement | _Joined | None:
    """A statement with an "it" inside that only what came before explains."""
    if turn.asked is not None and not before and '"' not in clause:
        return quoted(turn, clause)
    if joined := _join(turn, statement, clause, previous):
        return joined
    enough = _says_enough(clause, turn.scene, 4, named_enough=False)
    return _said(turn, statement, clause) if enough else None


def _statement(turn: SpeechTurn, clause: str) -> str | None:
    """*clause* as a sentence about its speaker or subject; ``None`` if it is not worth keeping."""
    clause = bare(without_vocatives(without_lead(clause), turn.scene.is_name))
    clause = _PREAMBLE.sub("", clause)
    to_agent = not turn.scene.is_talk_of_two
    wish = request_of(clause, turn.voice, to_agent=to_agent)
    if wish is not None:
        return wish
    if not clause or _asks(clause) or is_small_talk(clause):
        return None
    if is_imperative(clause):
        return asked_to(clause, turn.voice) if to_agent and not is_report(clause) else None
    clause = with_subject(clause)
    own = speaks_of_self(clause)
    if _about_other(clause, own) or (turn.voice.you is None and speaks_of_other(clause)):
        return None
    if not has_verb(clause):
        return _as_it_stands(turn, clause)
    attributed = not own and _needs_attribution(turn, clause)
    if attributed and not has_verb(clause.split(", ", 1)[0]):
        return None
    if not _says_enough(clause, turn.scene, 3 if attributed else 2):
        return None
    if attributed and is_expletive(clause):
        return None
    named = third_person(clause, turn.voice)
    return _attributed(turn, named) if attributed else named


def _asks(clause: str) -> bool:
    return ends_as_question(clause) or is_question(tokens_of(clause))


def _as_it_stands(turn: SpeechTurn, clause: str) -> str | None:
    """A statement whose verb may as well be a noun, in its speaker's own words."""
    return f"{turn.speaker} said: {clause}" if may_have_verb(tokens_of(clause)) else None


def _about_other(clause: str, own: bool) -> bool:
    """Praise and advice for the other party, or "you" meaning anyone."""
    if not speaks_of_other(clause):
        return False
    if _YOU_FIRST.match(clause):
        return not _YOU_DID.match(clause)
    return not own


def _says_enough(clause: str, scene: Scene, least: int, *, named_enough: bool = True) -> bool:
    """Whether it has a name, a number or *least* words that carry a topic."""
    folded = words(clause)
    content = [w for w in folded if w not in STOP_WORDS and w not in ADVERBS]
    telling = [w for w in content if w not in LIGHT and not scene.is_name(w)]
    if not telling:
        return False
    named = named_enough and (
        _NAME_OR_NUMBER.search(clause) or _OWNS.match(clause) or _is_habit(clause)
    )
    if least == 2 and len(content) >= 2 and has_noun(clause):
        return True
    return len(telling) >= least or (bool(named) and bool(content))


def _is_habit(clause: str) -> bool:
    found = _HABIT.match(clause)
    return found is not None and not is_past(found["verb"]) and found["verb"] not in _OF_TALK


def _needs_attribution(turn: SpeechTurn, clause: str) -> bool:
    return (
        turn.scene.is_talk_of_two
        and not begins_with_pronoun(clause)
        and not _NAME_OR_NUMBER.search(clause)
    )


def _attributed(turn: SpeechTurn, statement: str) -> str:
    first, _, rest = statement.partition(" ")
    # Only a word that is surely no name loses its capital.
    common = first.lower() in STOP_WORDS or first.lower() in ADVERBS or first.endswith("ing")
    lowered = first[0].lower() + first[1:] if common else first
    return f"{turn.speaker} said that {lowered} {rest}".rstrip()


def _said(turn: SpeechTurn, text: str, clause: str, *, corrects: bool = False) -> Statement:
    return Statement(
        text=finished(with_dates(text, turn.at)),
        confidence=confidence_of(clause),
        steps=(turn.step,),
        speaker=turn.speaker,
        corrects=corrects,
    )


# ── The agent's side: only what it states as done ───────────────────────────────────────

_SHORT = 3  # sentences; only a short action may leave out its "I"
_MOST_OF_AGENT = 200
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
    apologized confirmed read
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


def facts_of_agent(turn: SpeechTurn, breathe: Callable[[], None]) -> Iterator[Statement]:
    """
    The acts that *turn*, the agent's words, states as done.

    What it guesses, or says of the other party, is no fact.
    """
    said = [s for s in sentences(turn.text)[:_MOST_OF_AGENT] if not s.endswith("?")]
    for sentence in said:
        breathe()
        clause = bare(sentence)
        if len(said) <= _SHORT:
            clause = with_subject(clause)
        clause = _GUESS_BEHIND.sub("", clause)
        act = _OWN_ACT.match(clause)
        if act is None or act["verb"] in _TALK or not is_past(act["verb"]):
            continue
        if len(clause) > 300 or content_count(clause) < 2:
            continue
        if _OF_OTHER.match(clause[act.end() :]) or confidence_of(clause) < PLAIN:
            continue
        text = finished(with_dates(third_person(clause, turn.voice), turn.at))
        yield Statement(text, PLAIN, (turn.step,), turn.speaker)
