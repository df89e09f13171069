"""What calls on one repository cost beside two others and beside a hundred: the same."""

import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from damaged_stores import erasures, fill, reads, service, writes
from helpers import lines_of
from world import NOON, opened

import mnemo
from mnemo.errors import UsageError
from mnemo.store.sqlite import connection as connections
from mnemo.testing import ManualClock

PACKAGE = str(Path(mnemo.__file__).parent)
FEW, MANY = 2, 100
EACH = 10
"""Of so many steps of SQLite's machine one is counted."""
MORE, BESIDES = 1.1, 20
"""How many times as many may be counted, and how many on top: works may be merged otherwise."""
WHOLE = {
    "owing": "what is due is looked at for all repositories of a service at once",
    "text_damage": "a scrub compares the one index of words with all texts",
}
"""Functions whose cost is the whole store's, and why."""


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Steps that SQLite takes, by the function that it takes them for."""
    taken = Counter[str]()
    plain = connections._open

    def count() -> None:
        frame, names = sys._getframe(1), list[str]()
        while frame is not None and len(names) < 3:
            code = frame.f_code
            if code.co_filename.startswith(PACKAGE) and code.co_filename != connections.__file__:
                names.append(code.co_name)
            frame = frame.f_back
        taken[" < ".join(names)] += 1

    def opened(*arguments: Any) -> Any:
        connection = plain(*arguments)
        connection.set_progress_handler(count, EACH)
        return connection

    monkeypatch.setattr(connections, "_open", opened)
    return taken


@pytest.fixture
async def lines(tmp_path: Path) -> list[str]:
    """The archive of a repository with a row in every table."""
    async with opened(tmp_path / "first.db", ManualClock(NOON)) as kit:
        await fill(kit)
        await kit.store.release(kit.owner)
    async with service(tmp_path / "first.db") as memory:
        return await lines_of(memory)


async def spent(steps: Counter[str], lines: list[str], others: int) -> Counter[str]:
    """What all calls on a repository cost between so many *others*."""
    async with service("memory:") as memory:
        for number in range(others):
            if number == others // 2:
                await memory.import_repo("r", lines)
            await memory.import_repo(f"r{number}", lines)
        steps.clear()
        await memory.import_repo("another", await lines_of(memory))
        repo = await memory.open_repo("r")
        await repo.settle()
        for _, call in (*reads(repo), *writes(repo), *reads(repo), *erasures(repo)):
            with suppress(UsageError):
                await call()
            await repo.settle()
        await memory.close_repo("r")
        await memory.delete_repo("r")
        return +steps


@pytest.mark.long
@pytest.mark.slow
async def test_calls_cost_as_much_beside_a_hundred_others(steps, lines):
    """From the first recall to the deletion: no function has SQLite do more."""
    few, many = await spent(steps, lines, FEW), await spent(steps, lines, MANY)
    dearer = {
        name: (few[name], count)
        for name, count in many.items()
        if count > MORE * few[name] + BESIDES and not name.startswith(tuple(WHOLE))
    }
    assert dearer == {}
