"""The one table: legality, projection, refusals and the diagram come from it."""

import pytest
from transitions import MachineError

from mnemo import SessionState
from mnemo.session.machine import TABLE, Lifecycle, destination, diagram, hoped, project
from mnemo.values.journal import (
    Act,
    ChangesetStaged,
    EpisodeClosed,
    EpisodeDiscarded,
    EpisodeStarted,
    ExtractionAbandoned,
    ExtractionRetried,
)

OPERATIONS = ("start_episode", "append", "close", "commit", "discard")


def test_the_machine_and_the_table_agree():
    """For every state and trigger the machine moves exactly as the table says."""
    for state in SessionState:
        for trigger in {row.trigger for row in TABLE}:
            life = Lifecycle(state)
            expected = destination(state, trigger)
            if expected is None:
                with pytest.raises(MachineError):
                    life.fire(trigger)
            else:
                assert life.fire(trigger) == (state, expected)


def test_there_is_no_shortcut_out_of_collecting():
    """collecting is left by close alone."""
    ways = {row.trigger for row in TABLE if row.source is SessionState.COLLECTING}
    assert ways == {"append", "close"}


@pytest.mark.parametrize("auto", [False, True])
def test_projection_only_allows_what_the_table_allows(auto):
    """An operation is projectable exactly where the table has a row for it."""
    for state in SessionState:
        for operation in OPERATIONS:
            legal = destination(state, operation) is not None
            assert (project(state, operation, auto=auto) is not None) == legal


def test_work_in_flight_is_hoped_to_succeed():
    """extracting settles in ready, under auto-commit in idle; other states stay."""
    assert hoped(SessionState.EXTRACTING, auto=False) is SessionState.READY
    assert hoped(SessionState.EXTRACTING, auto=True) is SessionState.IDLE
    assert hoped(SessionState.FAILED, auto=True) is SessionState.FAILED


def test_a_queued_close_and_commit_project_past_extraction():
    """close leads to ready (auto-commit: idle), a commit in failed to idle."""
    assert project(SessionState.COLLECTING, "close", auto=False) is SessionState.READY
    assert project(SessionState.COLLECTING, "close", auto=True) is SessionState.IDLE
    assert project(SessionState.FAILED, "commit", auto=False) is SessionState.IDLE
    assert project(SessionState.READY, "commit", auto=False) is SessionState.IDLE


def test_an_act_is_written_with_the_state_that_the_table_leads_to():
    """What the journal enters is what the machine enters."""
    acts = (
        (EpisodeStarted, SessionState.IDLE, "start_episode"),
        (EpisodeClosed, SessionState.COLLECTING, "close"),
        (ChangesetStaged, SessionState.EXTRACTING, "extracted"),
        (ExtractionAbandoned, SessionState.EXTRACTING, "extraction_failed"),
        (ExtractionRetried, SessionState.FAILED, "commit"),
        (EpisodeDiscarded, SessionState.READY, "discard"),
        (EpisodeDiscarded, SessionState.FAILED, "discard"),
    )
    for act, source, trigger in acts:
        assert act.leads_to is destination(source, trigger)
    known = {a.__name__ for a in Act.__subclasses__() if a.leads_to}
    assert {act.__name__ for act, _, _ in acts} == known


def test_the_diagram_shows_every_row():
    """The drawn diagram has one arrow per row of the table."""
    arrows = [line for line in diagram().splitlines() if "-->" in line]
    assert len(arrows) == len(TABLE) + 1
