"""What a selection takes of steps and of messages."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from mnemo.values.erasure import Selection

NOON = datetime(2024, 3, 1, 12, tzinfo=UTC)
JAPAN = timezone(timedelta(hours=9))


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ({"session_id": "s"}, [True, True, True]),
        ({"thread_id": "t"}, [False, True, False]),
        ({"before": NOON}, [True, False, False]),
        ({"before": NOON.astimezone(JAPAN)}, [True, False, False]),
        ({"thread_id": "t", "before": NOON + timedelta(days=1)}, [False, True, False]),
        ({"thread_id": "T"}, [False, False, False]),
    ],
)
def test_all_that_is_given_must_hold(given, taken):
    """The thread exactly, the time exclusive and in whatever zone it was given."""
    takes = Selection(**given).takes
    early = NOON - timedelta(seconds=1)
    assert [takes(early), takes(NOON, "t"), takes(NOON, "t:1")] == taken


def test_a_time_without_a_zone_is_utc():
    """Of a step, and of the selection itself."""
    selection = Selection.of(session_id=None, thread_id=None, before=datetime(2024, 3, 1, 12))
    assert selection.before == NOON
    assert selection.takes(datetime(2024, 3, 1, 11)) is True


def test_only_a_thread_alone_goes_whole():
    """Narrowed by a session or a time it is a part of it; so it is with a session."""
    assert Selection(thread_id="t").whole_thread == "t"
    assert Selection(session_id="s").whole_session == "s"
    for given in ({"before": NOON}, {"session_id": "s"}):
        assert Selection(thread_id="t", **given).whole_thread is None
    for given in ({"before": NOON}, {"thread_id": "t"}):
        assert Selection(**({"session_id": "s"} | given)).whole_session is None


def test_a_session_has_no_messages():
    """Only a selection without one reaches them."""
    assert Selection(thread_id="t").takes_messages
    assert Selection(before=NOON).takes_messages
    assert not Selection(session_id="s", thread_id="t").takes_messages
