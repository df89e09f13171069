"""What values say of themselves: in a ``repr``, and in a notebook."""

from datetime import UTC, datetime

from mnemo import Candidate, Page, RecallResult, Remembered, SearchHit, SourceRef, Tag
from mnemo.recall.result import RecallTrace
from mnemo.runtime.text import counted, shown
from mnemo.values.messages import StoredMessage

AT = datetime(2026, 1, 2, tzinfo=UTC)
LONG = "<script>alert(1)</script> & so on, " * 500
SOURCE = SourceRef("s1", "e1", 0, AT, "Ada", None, LONG)


def result(*texts: str) -> RecallResult:
    """A recall that found a tag for each of *texts*."""
    found = [Candidate(Tag(text), 0.5, 0.5, "initial", 0, [SOURCE]) for text in texts]
    return RecallResult("episodic", (), found, None, RecallTrace("episodic", "caller", (), 0))


def test_a_repr_is_one_short_line():
    """However long the texts and ids are that a value holds."""
    message = StoredMessage(
        id="m1", thread_id="t", seq=0, epoch=0, role="user", content=LONG, at=AT, recorded_at=AT
    )
    hit = SearchHit(message_id=LONG, session_id=LONG, kind="text", at=AT, snippet=LONG, score=0.5)
    values = (
        SOURCE,
        hit,
        Remembered(messages=(message,) * 9, thread_id=LONG, node_ids=(LONG,) * 9),
        result(*[LONG] * 9),
    )
    for value in values:
        assert len(repr(value)) <= 200, type(value)
        assert "\n" not in repr(value)
    assert repr(SOURCE).startswith("<SourceRef s1#0 2026-01-02: '<script>")


def test_a_count_of_one_is_singular():
    """In reprs too."""
    assert repr(result("a")) == "<RecallResult episodic, 1 candidate>"
    assert repr(result("a", "b")) == "<RecallResult episodic, 2 candidates>"
    assert counted(1, "memory", "memories") == "1 memory"
    assert counted(0, "memory", "memories") == "0 memories"


def test_a_notebook_shows_tables_of_escaped_text():
    """Stored text is no markup in a result, nor in a page."""
    for value in (result(LONG), Page((SOURCE,), None)):
        shown_as = value._repr_html_()
        assert shown_as.startswith("<table>")
        assert "<script>" not in shown_as
        assert "&lt;script&gt;" in shown_as


def test_a_shown_text_is_cut_with_a_mark():
    """At sixty characters, on one line."""
    assert shown("a\nb") == "a b"
    assert shown("x" * 60) == "x" * 60
    assert shown("x" * 61) == "x" * 59 + "…"
