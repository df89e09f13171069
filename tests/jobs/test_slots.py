"""Places for jobs, and who is woken for one."""

import pytest

from mnemo.errors import UsageError
from mnemo.jobs.slots import JobSlots


class Repository:
    """One that claims a job whenever it is woken, as long as it has some."""

    def __init__(self, slots: JobSlots, id: str, jobs: int) -> None:
        self.slots, self.id, self.jobs, self.woken = slots, id, jobs, 0
        slots.enter(id, self.look, 1.0)

    def look(self) -> None:
        self.woken += 1
        if not self.jobs:
            self.slots.go_on()
        elif self.slots.take(self.id, 1):
            self.jobs -= 1
            self.slots.busy[self.id] += 1


def of(most: int | None, **jobs: int) -> tuple[JobSlots, dict[str, Repository]]:
    slots = JobSlots(most)
    return slots, {id: Repository(slots, id, number) for id, number in jobs.items()}


def test_no_more_are_woken_than_there_are_places():
    """The others wait in their order, and are woken by the ends of jobs."""
    slots, repos = of(1, a=1, b=1, c=1)
    slots.wake("abc")
    assert [repo.woken for repo in repos.values()] == [1, 0, 0]
    slots.end("a")
    assert [repo.woken for repo in repos.values()] == [1, 1, 0]
    slots.end("b")
    assert [repo.jobs for repo in repos.values()] == [0, 0, 0]


def test_a_place_that_is_not_used_goes_to_the_next():
    """One that is woken and finds nothing passes it on; so does one that is closed."""
    slots, repos = of(1, a=1, b=0, c=1, d=1)
    slots.wake("abcd")
    slots.end("a")
    assert [repo.jobs for repo in repos.values()] == [0, 0, 0, 1]
    slots.leave("d", repos["d"].look)
    slots.end("c")
    assert (repos["d"].woken, slots.running, dict(slots.busy)) == (0, 0, {})


def test_one_that_was_opened_again_while_it_closed_stays():
    """The one that closes, late or twice, takes only itself away."""
    slots, repos = of(None, a=1)
    again = Repository(slots, "a", 1)
    slots.leave("a", repos["a"].look)
    slots.wake("a")
    assert (repos["a"].jobs, again.jobs, slots.poll_s) == (1, 0, 1.0)
    slots.leave("a", again.look)
    assert slots.poll_s == float("inf")


def test_one_that_finds_no_place_is_woken_for_the_next():
    """Also if it was woken by its own writes."""
    slots, repos = of(1, a=1, b=1)
    repos["a"].look()
    repos["b"].look()
    assert repos["b"].jobs == 1
    slots.end("a")
    assert repos["b"].jobs == 0


def test_a_job_that_embeds_holds_no_place():
    """As many of them as there are places; whoever waits is woken."""
    slots, repos = of(1, a=1, b=1)
    assert slots.take("c", 1)
    slots.wake("ab")
    slots.begin("c", "embed")
    assert ([repo.jobs for repo in repos.values()], slots.may_embed) == ([0, 1], False)
    slots.end("c", "embed")
    assert ([repo.jobs for repo in repos.values()], slots.may_embed) == ([0, 1], True)
    slots.end("a")
    assert (repos["b"].jobs, slots.running) == (0, 1)


def test_without_a_bound_all_are_woken():
    """Only those that are open here."""
    slots, repos = of(None, a=1, b=1)
    slots.wake("abx")
    assert [repo.jobs for repo in repos.values()] == [0, 0]


def test_a_worker_claims_its_kinds_alone_and_once():
    """A second one, or one without places, is refused."""
    slots = JobSlots()
    with slots.working(["extract"], 2.0):
        assert (slots.kinds, slots.poll_s) == (["extract"], 2.0)
        with pytest.raises(UsageError, match="already"), slots.working(None, 1.0):
            pass
    assert (slots.kinds, slots.poll_s) == (None, float("inf"))
