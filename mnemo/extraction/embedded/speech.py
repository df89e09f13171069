"""Facts from speech: what one speaker's words say, sentence by sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from mnemo._text import STOP_WORDS, fold, one_line, words
from mnemo.extraction.embedded.clauses import bare, has_verb, split_clauses, without_vocatives
from mnemo.extraction.embedded.dates import with_dates
from mnemo.extraction.embedded.elided import with_subject
from mnemo.extraction.embedded.lexicon import ADVERBS, LIGHT
from mnemo.extraction.embedded.persons import Voice, speaks_of_other, speaks_of_self, third_person
from mnemo.extraction.embedded.pronouns import begins_with_pronoun, resolved
from mnemo.extraction.embedded.requests import request_of
from mnemo.extraction.embedded.scene import Scene
from mnemo.extraction.embedded.sentences import sentences

__all__ = ["Said", "Turn", "facts_of_turn"]

PLAIN, HEARSAY, HEDGED = 0.8, 0.6, 0.5
"""Confidence of a plain statement, of hearsay, of a guess; the specification's numbers."""
_MOST_SENTENCES = 120  # of one text; facts per trajectory are far fewer
_LONGEST = 400  # characters; a longer "sentence" is no prose
_FEW = 4  # content words below which a reply is an answer, not a statement


@dataclass(frozen=True, slots=True)
class Turn:
    """
    What one party said at once.

    Attributes:
        text: Excerpt, secrets hidden.
        asked: The question that this may answer, as a quotation or ``Asked …``'s object.
        asker_step: Index of the step of the question.
        talk: Whether two people talk: then plain statements are attributed.
    """

    text: str
    speaker: str
    voice: Voice
    at: datetime
    step: int
    scene: Scene
    asked: str | None = None
    asker_step: int | None = None


@dataclass(frozen=True, slots=True)
class Said:
    """
    A fact before its concepts are known.

    Attributes:
        corrects: Whether it takes back what was said of the same slot before.
    """

    text: str
    confidence: float
    steps: tuple[int, ...]
    speaker: str
    corrects: bool = False


_HEDGE = re.compile(
    r"\b(?:maybe|might|perhaps|probably|possibly|i think|i guess|i believe|i suppose|not sure"
    r"|i assume|i feel like|kind of want|sounds like|seems like|i doubt|presumably)\b",
    re.IGNORECASE,
)
_HEARSAY = re.compile(
    r"\b(?:(?:he|she|they|someone|somebody|people|everyone|mom|dad|doctor|boss) (?:\w+ )?"
    r"(?:said|says|say|told|tells|claims?|claimed|mentioned|thinks?)|i(?:['’]ve| have)? heard"
    r"|apparently"
    r"|allegedly|supposedly|rumou?r|told me|i(?:['’]ve| have) been told|i was told)\b",
    re.IGNORECASE,
)
_CORRECTION = re.compile(
    r"^(?:(?:oh|sorry|wait|oops|no|nope|hmm|well|my bad)[,.!]?\s+){0,3}"
    r"(?:actually|correction|scratch that|i meant|i mean(?:t)?|make that|rather)\b[,:]?\s*",
    re.IGNORECASE,
)
_NO_SENTENCE = re.compile(r"^(?:let['’]?s|let us|let me|here(?:['’]s| is| are)|see you|talk to you"
    r"|take care|good (?:luck|morning|night|evening|afternoon|bye)|have (?:a|fun)|keep (?:it|up"
    r"|me|going|on)"
    r"|can['’]t wait|cannot wait|sounds? |looks? |nice |great |good |love |loving |glad |happy to"
    r"|so (?:glad|happy|proud|cool|sorry|excited|great|nice|sweet|inspiring)|wishing |sending "
    r"|hope "
    r"|hoping (?:you|it|that you)|enjoy |don['’]t (?:worry|give up|forget)|way to go|best of luck"
    r"|thank|thanks|thx|congrat|welcome|no (?:worries|problem|doubt|doubts)|you['’]re welcome"
    r"|my pleasure"
    r"|sorry (?:to|for|about)|how (?:\w+ )|what (?:a|an) |i (?:totally |completely |fully "
    r"|couldn['’]t |"
    r"100% |so )?agree|agreed|totally agree|such a |believe me|trust me|long time no|guess what"
    r"|never give up"
    r"|check (?:it|this|them) out|look at|take a look|feel free|remember,? |imagine |same here"
    r"|me too"
    r"|glad|go for it|you got this|you can do|you['’]ve got this|note that |please note)",
    re.IGNORECASE,
)  # fmt: skip
_KIND_WORDS = re.compile(
    r"\b(?:i['’]?m|i am|we['’]?re|i was|i feel)\s+(?:\w+\s+){0,2}(?:glad|happy|proud|sorry"
    r"|excited|thrilled"
    r"|stoked|pleased|here)\s+(?:for|that|of|to hear|to see|to help|you|your|about your)\b"
    r"|\bi(?:['’]m| am)? (?:really |so |truly |totally |also |just |definitely )?"
    r"(?:appreciate|hope you|hope your|wish you|hear you|bet|know what you|see what you"
    r"|love (?:that|your|how"
    r" you|the way you)|admire|can imagine|understand|get it|know you|know how|can['’]t (?:agree"
    r"|wait to (?:hear"
    r"|see (?:you|what|how|it|them|that)))|look forward to hear|looking forward to (?:hear|it"
    r"|see(?:ing)? you)"
    r"|would love to (?:hear|see|know)|['’]d love to (?:hear|see|know)|wanted to (?:tell|share"
    r"|let|ask|say|check)"
    r"|want to (?:tell|hear|ask|let you)|(?:got|have|had)(?: \w+){0,2} (?:news|question"
    r"|something to (?:tell|share))"
    r"|have to (?:say|admit|go|run)|gotta (?:go|run)|will let you know|let you know"
    r"|keep you (?:posted|updated)"
    r"|don['’]t know what to say|thank you|agree)\b"
    r"|\bi['’]ll (?:let you know|keep you|be there for|talk|check it out|keep that|try that"
    r"|give it|do my best)\b"
    r"|\bmeans? (?:a lot|so much|the world)\b|\bgood (?:for|to see|to hear|to know)\b"
    r"|\bgreat (?:to see|to hear)\b",
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
_QUESTION_END = re.compile(r"\?[\"'”’)\]!?]*$")
_FINAL = re.compile(r"[\s.!…,;:]+$")
_ASKED = re.compile(
    r"^asked (?:\w+ )?(?:for|about|whether|if|when|where|what|how|who|which)\b", re.I
)


def facts_of_turn(turn: Turn) -> Iterator[Said]:
    """
    Give the facts of *turn*, in the order in which they were said.

    Greetings, thanks, praise and plain questions give none. Each fact is made of the
    turn's words, the parties' names, resolved dates and fixed templates.
    """
    before: list[str] = []
    previous: Said | None = None
    for at, sentence in enumerate(_sentences(turn.text)):
        if at == 0 and (answer := _answer(turn, sentence)):
            yield answer
            before.append(answer.text)
            continue
        for clause in split_clauses(sentence):
            said = _fact(turn, clause, before, previous)
            if said is not None:
                yield said
            previous = said
            before.append(said.text if said else clause)


def _sentences(text: str) -> Sequence[str]:
    found = sentences(text)
    if len(found) > _MOST_SENTENCES:
        half = _MOST_SENTENCES // 2
        found = found[:half] + found[-half:]
    return [s for s in found if len(s) <= _LONGEST]


def _fact(turn: Turn, clause: str, before: Sequence[str], previous: Said | None) -> Said | None:
    stage = _STAGE.match(clause)
    if stage:
        return _said(turn, f"{turn.speaker} {stage['verb']} {stage['rest']}", clause)
    correction = _CORRECTION.match(clause)
    clause = clause[correction.end() :] if correction else clause
    statement = _statement(turn, clause)
    if statement is None:
        return None
    if begins_with_pronoun(statement):
        statement = resolved(statement, before, previous.text if previous else None)
        if statement is None:
            return None
    return _said(turn, statement, clause, corrects=correction is not None)


def _statement(turn: Turn, clause: str) -> str | None:
    """*clause* as a sentence about its speaker or subject; ``None`` if it is not worth keeping."""
    clause = bare(without_vocatives(bare(clause), turn.scene.is_name))
    clause = one_line(clause)
    wish = request_of(clause, turn.voice, to_agent=not turn.scene.is_talk_of_two)
    if wish is not None:
        return wish
    if _QUESTION_END.search(clause) or _NO_SENTENCE.match(clause) or _KIND_WORDS.search(clause):
        return None
    clause = with_subject(clause)
    own = speaks_of_self(clause)
    if _about_other(clause, own) or not _says_enough(clause, turn.scene):
        return None
    if turn.voice.you is None and speaks_of_other(clause):
        return None
    named = third_person(clause, turn.voice)
    return named if own or not _needs_attribution(turn, clause) else _attributed(turn, named)


def _about_other(clause: str, own: bool) -> bool:
    """Praise and advice for the other party, or "you" meaning anyone."""
    if not speaks_of_other(clause):
        return False
    if _YOU_FIRST.match(clause):
        return not _YOU_DID.match(clause)
    return not own


def _says_enough(clause: str, scene: Scene) -> bool:
    folded = words(clause)
    content = [w for w in folded if w not in STOP_WORDS and w not in ADVERBS]
    telling = [w for w in content if w not in LIGHT and not scene.is_name(w)]
    if len(content) < 2 and not _NAME_OR_NUMBER.search(clause):
        return False
    return has_verb(clause) and (len(telling) >= 2 or (bool(telling) and len(content) >= 2))


def _needs_attribution(turn: Turn, clause: str) -> bool:
    return (
        turn.scene.is_talk_of_two
        and not begins_with_pronoun(clause)
        and not _NAME_OR_NUMBER.search(clause)
    )


def _attributed(turn: Turn, statement: str) -> str:
    first, _, rest = statement.partition(" ")
    lowered = first if first[1:] != first[1:].lower() else first[0].lower() + first[1:]
    return f"{turn.speaker} said that {lowered} {rest}".rstrip()


def _said(turn: Turn, text: str, clause: str, *, corrects: bool = False) -> Said:
    return Said(
        text=finished(with_dates(text, turn.at)),
        confidence=_confidence(clause),
        steps=(turn.step,),
        speaker=turn.speaker,
        corrects=corrects,
    )


def finished(text: str) -> str:
    """*text* as a sentence: a capital in front, a point behind."""
    text = _FINAL.sub("", one_line(text))
    if text[:1].islower() and not re.match(r"\S*[A-Z0-9._/]", text):
        text = text[0].upper() + text[1:]
    return text + "."


def _confidence(clause: str) -> float:
    if _HEDGE.search(clause):
        return HEDGED
    return HEARSAY if _HEARSAY.search(clause) else PLAIN


def _answer(turn: Turn, sentence: str) -> Said | None:
    """The fact that a short answer makes together with its question."""
    if turn.asked is None or _QUESTION_END.search(sentence):
        return None
    answer = _FINAL.sub("", without_vocatives(sentence, turn.scene.is_name))
    content = [w for w in words(answer) if w not in STOP_WORDS]
    asked = [w for w in words(turn.asked) if w not in STOP_WORDS and w not in LIGHT]
    telling = [w for w in content if w not in LIGHT]
    if not answer or '"' in answer or (len(content) >= _FEW and has_verb(answer)):
        return None
    if len(content) > 3 * _FEW or not (telling or (asked and _YES_NO.match(answer))):
        return None
    question = turn.asked if _ASKED.match(turn.asked) else f'Asked "{turn.asked}"'
    text = f'{_capital(question)}, {turn.speaker} answered "{with_dates(answer, turn.at)}".'
    steps = (turn.step,) if turn.asker_step is None else (turn.asker_step, turn.step)
    return Said(text, _confidence(sentence), steps, turn.speaker)


_YES_NO = re.compile(
    r"^(?:yes|yeah|yep|no|nope|not (?:yet|really)|sure|never|of course|absolutely)\b", re.I
)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def folded_key(text: str) -> str:
    """What two facts share that say the same: case, blanks and the final point aside."""
    return fold(_FINAL.sub("", one_line(text)))
