"""Turns belong to pieces of talk, by which neighbours and the kind of text are told."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from mnemo.index.pieces import CHAT, DOCUMENT, GAP_S, HEAD_WORDS, NOTE, Pieces

Turn = tuple[str, str, float, int]
"""Thread, speaker, minute, words."""


def pieces_of(
    turns: Sequence[Turn], gone: Sequence[int] = (), asking: Sequence[int] = ()
) -> Pieces:
    """The pieces of *turns*: those at *gone* do not exist, those at *asking* are questions."""
    threads = sorted({thread for thread, *_ in turns})
    speakers = sorted({speaker for _, speaker, *_ in turns})
    exists = np.ones(len(turns), np.bool_)
    exists[list(gone)] = False
    return Pieces.of(
        exists,
        session=np.array([threads.index(t) for t, *_ in turns], np.int32),
        first=np.array([60 * minute for *_, minute, _ in turns], np.float64),
        actor=np.array([speakers.index(s) for _, s, *_ in turns], np.int32),
        log_words=np.array([math.log(words + HEAD_WORDS) for *_, words in turns], np.float32),
        asks=np.isin(np.arange(len(turns)), asking),
    )


def talk(*words: int, speakers: str = "ab", every: float = 1, thread: str = "t") -> list[Turn]:
    """Turns of so many *words*, by *speakers* in turn."""
    return [(thread, speakers[n % len(speakers)], every * n, w) for n, w in enumerate(words)]


@pytest.mark.parametrize(
    ("turns", "kinds"),
    [
        (talk(12), [NOTE]),
        (talk(79), [NOTE]),
        (talk(80), [DOCUMENT]),
        (talk(12, 14, 9), [CHAT] * 3),
        (talk(12, 300, 9), [CHAT] * 3),
        (talk(12, 300, 200), [DOCUMENT] * 3),
        (talk(12, 300, 9, 200, speakers="a"), [NOTE, DOCUMENT, NOTE, DOCUMENT]),
        (talk(12, 14, every=361), [NOTE, NOTE]),
        (talk(12, 14, every=360), [CHAT, CHAT]),
        (talk(12, 100, every=361), [NOTE, DOCUMENT]),
        ([], []),
    ],
)
def test_the_kind_of_a_text_is_that_of_its_piece(turns, kinds):
    """Short turns of two make a chat; what one says alone stands for itself, by its length."""
    assert pieces_of(turns).kind.tolist() == kinds


@pytest.mark.parametrize(
    ("count", "asking", "kind"), [(20, 2, CHAT), (21, 2, NOTE), (9, 1, NOTE), (2, 2, CHAT)]
)
def test_a_talk_without_names_asks(count, asking, kind):
    """One unnamed speaker: two questions, and a tenth of all turns, make it a chat."""
    pieces = pieces_of(talk(*[9] * count, speakers="a"), asking=range(asking))
    assert set(pieces.kind) == {kind}


def test_six_hours_of_silence_end_a_piece():
    """Neighbours are those of the same piece."""
    minutes = [0, 1, 1 + GAP_S / 60, 800, 801]
    turns = [("t", "ab"[n % 2], minute, 9) for n, minute in enumerate(minutes)]
    pieces = pieces_of(turns)
    assert pieces.piece.tolist() == [0, 0, 0, 1, 1]
    assert pieces.previous.tolist() == [-1, 0, 1, -1, 3]
    assert pieces.next.tolist() == [1, 2, -1, 4, -1]
    assert pieces.count == 2


def test_threads_that_are_written_at_once_are_apart():
    """Turns have neighbours of their own thread, in the order of their arrival."""
    both = zip(talk(9, 9), talk(90, 90, thread="u"), strict=True)
    turns = [turn for pair in both for turn in pair]
    pieces = pieces_of(turns)
    assert pieces.previous.tolist() == [-1, -1, 0, 1]
    assert pieces.kind.tolist() == [CHAT, DOCUMENT, CHAT, DOCUMENT]


def test_what_is_gone_is_no_neighbour():
    """Those around it become neighbours, and what only it made a chat is one no more."""
    pieces = pieces_of(talk(9, 9, 9), gone=[1])
    assert pieces.previous.tolist() == [-1, -1, 0]
    assert pieces.next.tolist() == [2, -1, -1]
    assert pieces.piece.tolist() == [0, -1, 0]
    assert pieces.kind[[0, 2]].tolist() == [NOTE, NOTE]
    assert pieces_of(talk(9, 9), gone=[0, 1]).count == 0


def test_the_median_of_a_piece_decides():
    """Of an even number of turns it lies between the two in the middle."""
    assert set(pieces_of(talk(9, 9, 90, 300)).kind) == {CHAT}
    assert set(pieces_of(talk(9, 85, 90, 300)).kind) == {DOCUMENT}


def test_a_turn_of_sixty_words_is_long():
    """The day and the speaker before it do not count."""
    assert pieces_of(talk(59, 60)).long.tolist() == [False, True]
