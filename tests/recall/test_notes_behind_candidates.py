"""Notes behind the candidates of a recall: one budget, and candidates come first."""

from dataclasses import dataclass
from datetime import UTC, datetime

from helpers import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from mnemo.notes.shelf import NoteHit, NoteRecall
from mnemo.recall.result import behind
from mnemo.runtime.text import count_tokens
from mnemo.values.notes import Note

NOON = datetime(2024, 3, 1, 12, tzinfo=UTC)
TEXTS = st.text(max_size=120)


def found(*bodies: str) -> NoteRecall:
    """A note for each of *bodies*."""
    hits = []
    for number, body in enumerate(bodies):
        note = Note(
            topic=f"topic-{number}",
            description="about it",
            updated_at=NOON,
            last_read_at=None,
            version=1,
            size=len(body),
            body=body,
            created_at=NOON,
            trust="stated",
        )
        hits.append(NoteHit(note, 0.5, body[:40]))
    return NoteRecall(tuple(hits))


@dataclass(frozen=True)
class Talkative:
    """Notes that keep to no budget."""

    hits: tuple[NoteHit, ...]

    def as_text(self, budget_tokens: int | None = None) -> str:
        """More than is wanted."""
        return "notes " * 100


@settings(max_examples=examples(60))
@given(TEXTS, st.lists(TEXTS, max_size=4), st.integers(0, 400))
def test_candidates_stay_and_the_budget_is_kept(text, bodies, budget):
    """Whatever notes say: as many as fit, in whole blocks, behind what was there already."""
    printed = text if count_tokens(text) <= budget else ""
    told = behind(printed, found(*bodies), budget)
    assert told.startswith(printed)
    assert count_tokens(told) <= budget
    if told != printed:
        assert printed == "" or told[len(printed) :].startswith("\n\n")
        assert told.count("BEGIN NOTE topic-") == told.count("END NOTE topic-")


@given(TEXTS, st.lists(TEXTS, min_size=1, max_size=4))
def test_without_a_budget_all_of_both_is_told(text, bodies):
    """Whole bodies, and nothing is left out."""
    notes = found(*bodies)
    told = behind(text, notes, None)
    assert told == (f"{text}\n\n{notes.as_text()}" if text else notes.as_text())


def test_nothing_is_said_where_no_note_was_found_or_asked_for():
    """The text is as it would be without."""
    assert behind("- a fact", None, 100) == "- a fact"
    assert behind("- a fact", NoteRecall(), 100) == "- a fact"
    assert behind("", NoteRecall(), None) == ""


def test_notes_that_keep_to_no_budget_are_left_out():
    """Theirs is the loss."""
    notes = Talkative(found("x").hits)
    assert behind("- a fact", notes, 50) == "- a fact"
    assert behind("- a fact", notes, 500).startswith("- a fact\n\nnotes ")
