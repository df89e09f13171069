"""``scripts/convert_archive`` makes a present archive of the last development one."""

import json
from functools import partial
from pathlib import Path

import pytest
from helpers import lines_of, ran

from mnemo import InvalidArchive, Mnemo
from mnemo.testing import HashingEmbedder

ROOT = Path(__file__).parents[2]
OLD = ROOT / "tests" / "data" / "development_archive.jsonl"


convert = partial(ran, ROOT / "scripts" / "convert_archive.py")


@pytest.mark.slow
async def test_what_a_development_version_exported_is_imported(tmp_path):
    """All kinds of record are there again, and the next export gives the converted lines."""
    new = tmp_path / "new.jsonl"
    assert convert(OLD, new).returncode == 0
    lines = new.read_text().splitlines(keepends=True)
    async with Mnemo("memory:", embedder=HashingEmbedder()) as memory:
        with pytest.raises(InvalidArchive, match=r"development version .*convert_archive"):
            await memory.import_repo("r", OLD.read_text().splitlines())
        head = await memory.import_repo("r", lines)
        assert all(head.counts.values())
        assert await lines_of(memory) == lines
        assert (await memory.check()).problems == ()


@pytest.mark.slow
def test_another_file_is_refused(tmp_path):
    """One of a former development version too: it says what to do."""
    first, *rest = OLD.read_text().splitlines(keepends=True)
    former = tmp_path / "former.jsonl"
    former.write_text("".join([json.dumps(json.loads(first) | {"version": 2}), "\n", *rest]))
    (other := tmp_path / "other.jsonl").write_text("{}\n")
    new = tmp_path / "new.jsonl"
    for old, reason in ((former, "export it with the last one"), (other, "no archive of a dev")):
        failed = convert(old, new)
        assert (failed.returncode, reason in failed.stderr) == (1, True)
        assert not new.exists()
