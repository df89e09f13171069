"""Segments as files: whole or not there, swept when nothing lists them, done without if need be."""

import errno
import fcntl
import mmap
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from helpers import child_environment
from index.killed_writer import ACTS, GOOD, OTHER, segment

from mnemo import Config, ConfigError
from mnemo.config import IndexConfig
from mnemo.index import files
from mnemo.index.files import SegmentFolder, digest_of
from mnemo.index.segments import unpacked

NAME, OTHER_NAME = digest_of(GOOD), digest_of(OTHER)
LEFT = f".{OTHER_NAME}.1.ab12.tmp"
"""What a writer that died left behind."""


@pytest.fixture
def folder(tmp_path: Path) -> SegmentFolder:
    """A folder that does not exist yet, beside a database."""
    (tmp_path / "m.db").touch(0o640)
    return SegmentFolder.of(tmp_path / "m.db", IndexConfig())


class Made:
    """Gives a segment, and counts how often."""

    def __init__(self, content: bytes = GOOD) -> None:
        self.content = content
        self.times = 0

    def __call__(self) -> bytes:
        self.times += 1
        return self.content


def names_in(folder: SegmentFolder) -> list[str]:
    return sorted(os.listdir(folder.path))


def is_mapped(found: memoryview) -> bool:
    return isinstance(found.obj, mmap.mmap)


# ── Mapped ───────────────────────────────────────────────────────────────────────────


def test_a_segment_is_written_once_and_mapped(folder):
    """By all who ask for it, in folders and files that are as private as the database."""
    make = Made()
    first, again = folder.mapped(NAME, make), folder.mapped(NAME, make)
    assert (bytes(first), bytes(again), make.times) == (GOOD, GOOD, 1)
    assert is_mapped(again)
    assert again.readonly
    assert folder.path.name == "m.db.index"
    modes = [os.stat(path).st_mode & 0o777 for path in (folder.path, folder.path / NAME)]
    assert modes == [0o750, 0o640]
    assert names_in(folder) == [NAME]


def test_all_processes_know_a_folder_by_the_same_name(tmp_path):
    """It has one from the first time that somebody asks; a sweep leaves it."""
    one, other, another = (SegmentFolder(tmp_path / name) for name in ("a", "a", "b"))
    assert one.identity() == other.identity() != another.identity()
    other.mapped(NAME, Made())
    assert one.sweep([])
    assert names_in(other) == ["identity"]
    with pytest.raises(OSError, match="exists"):
        SegmentFolder(tmp_path / "a" / "identity").identity()


def test_a_folder_that_may_not_serve_is_left_alone(folder):
    """What is made is given as it is, and not written."""
    folder.may_serve, make = (lambda: False), Made()
    assert bytes(folder.mapped(NAME, make)) == bytes(folder.mapped(NAME, make)) == GOOD
    assert (make.times, folder.path.exists()) == (2, False)


def test_without_a_database_files_are_the_users_alone(tmp_path):
    """Those of a cache."""
    folder = SegmentFolder(tmp_path / "a" / "b")
    folder.mapped(NAME, Made())
    modes = [os.stat(path).st_mode & 0o777 for path in (folder.path, folder.path / NAME)]
    assert modes == [0o700, 0o600]


@pytest.mark.parametrize("content", [b"", b"x", GOOD[:-1], GOOD + b"x", b"mnemoseg" + GOOD[8:]])
def test_a_damaged_or_foreign_file_is_made_anew(folder, content):
    """Whatever its length."""
    folder.path.mkdir()
    (folder.path / NAME).write_bytes(content)
    assert bytes(folder.mapped(NAME, make := Made())) == GOOD
    assert bytes(folder.mapped(NAME, make)) == GOOD
    assert make.times == 1


@pytest.mark.parametrize("at", [*range(0, len(GOOD), 2_048), len(GOOD) - 1])
def test_a_flipped_byte_is_found_by_opening_or_reading(folder, at):
    """Then the file is discarded, and made anew."""
    folder.mapped(NAME, Made())
    damaged = bytearray(GOOD)
    damaged[at] ^= 0x55
    (folder.path / NAME).write_bytes(damaged)
    found = folder.mapped(NAME, make := Made())
    if not make.times:
        _, batches = unpacked(found, at_once=False)
        with pytest.raises(ValueError, match="damaged"):
            [*batches["steps"].names["ids"]]
        folder.discard(NAME)
    assert bytes(folder.mapped(NAME, make)) == GOOD
    assert make.times == 1


def test_links_and_pipes_are_not_followed(folder, tmp_path):
    """A file takes their place."""
    folder.path.mkdir()
    (tmp_path / "elsewhere").write_bytes(GOOD)
    (folder.path / NAME).symlink_to(tmp_path / "elsewhere")
    os.mkfifo(folder.path / OTHER_NAME)
    for name, content in ((NAME, GOOD), (OTHER_NAME, OTHER)):
        assert bytes(folder.mapped(name, make := Made(content))) == content
        assert make.times == 1
        assert (folder.path / name).is_file()
    assert not (folder.path / NAME).is_symlink()


def test_what_has_another_digest_is_refused(folder):
    """The rows are damaged; and a name from them leads nowhere else."""
    with pytest.raises(ValueError, match="another digest"):
        folder.mapped(NAME, Made(OTHER))
    assert names_in(folder) == []
    for name in ("../m.db", "", NAME.upper(), NAME + "\n", "a\0"):
        with pytest.raises(ValueError, match="no digest"):
            folder.mapped(name, Made())


def test_what_making_raises_is_raised(folder):
    """The store's errors are not those of the folder."""

    def make() -> bytes:
        raise RuntimeError("closed")

    with pytest.raises(RuntimeError):
        folder.mapped(NAME, make)
    assert names_in(folder) == []


# ── Without a folder ─────────────────────────────────────────────────────────────────


def a_folder_there(folder: SegmentFolder, _: Any) -> None:
    (folder.path / NAME / "full").mkdir(parents=True)


def a_file_there(folder: SegmentFolder, _: Any) -> None:
    folder.path.write_text("mine")


def no_parent(folder: SegmentFolder, _: Any) -> None:
    folder.path = folder.path / "m.db" / "no"
    folder.path.parent.parent.mkdir()
    folder.path.parent.write_text("a file")


def failing(operation: str, number: int) -> Callable[[SegmentFolder, pytest.MonkeyPatch], None]:
    def fail(folder: SegmentFolder, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: Any, **__: Any) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(os, operation, refuse)

    return fail


@pytest.mark.parametrize(
    "prevent",
    [
        *(a_folder_there, a_file_there, no_parent),
        *(failing(operation, errno.ENOSPC) for operation in ("makedirs", "write", "fsync")),
        *(failing(operation, errno.EROFS) for operation in ("makedirs", "open", "replace")),
        *(failing(operation, errno.EACCES) for operation in ("open", "chmod", "replace")),
    ],
)
def test_without_a_folder_segments_are_held_in_memory(folder, prevent, monkeypatch, caplog):
    """That is said once, and nothing is left behind."""
    with monkeypatch.context() as patch:
        prevent(folder, patch)
        for _ in range(2):
            found = folder.mapped(NAME, make := Made())
            assert (bytes(found), make.times) == (GOOD, 1)
            assert not is_mapped(found)
    assert [record.message.split(":")[0] for record in caplog.records] == [
        "segments are read into memory, not mapped"
    ]
    if folder.path.is_dir():
        assert names_in(folder) in ([], [NAME])
    assert bytes(folder.mapped(NAME, Made())) == GOOD


def test_a_full_disk_is_an_error_and_no_signal(tmp_path):
    """A file that must not grow as it should is not mapped, and not left behind."""
    program = f"""
import os, resource, signal
from pathlib import Path
from index.killed_writer import GOOD
from mnemo.index.files import SegmentFolder
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (len(GOOD) // 2,) * 2)
folder = SegmentFolder(Path({str(tmp_path)!r}))
assert bytes(folder.mapped({NAME!r}, lambda: GOOD)) == GOOD
assert os.listdir(folder.path) == []
"""
    subprocess.run([sys.executable, "-c", program], check=True, env=child_environment())


# ── Swept ────────────────────────────────────────────────────────────────────────────


def test_what_is_not_listed_is_swept(folder):
    """And what died; not what is no segment's. What is mapped stays as it was."""
    folder.mapped(NAME, Made())
    found = folder.mapped(OTHER_NAME, Made(OTHER))
    for name in (LEFT, "notes.txt", ".tmp", "f" * 39):
        (folder.path / name).write_text("x")
    assert folder.sweep({NAME})
    assert names_in(folder) == sorted([NAME, "notes.txt", ".tmp", "f" * 39])
    assert bytes(found) == OTHER
    assert folder.sweep(())
    assert NAME not in names_in(folder)


def test_nothing_is_swept_where_there_is_nothing(folder):
    """Nor made."""
    assert folder.sweep({NAME})
    assert not folder.path.exists()
    folder.path.write_text("mine")
    assert folder.sweep(())


@contextmanager
def locked(folder: SegmentFolder) -> Iterator[None]:
    """As another process that writes holds it."""
    number = os.open(folder.path, os.O_RDONLY)
    fcntl.flock(number, fcntl.LOCK_SH)
    try:
        yield
    finally:
        os.close(number)


def test_while_another_writes_the_folder_is_not_clean(folder):
    """It may write what it read before; what it has not finished stays."""
    folder.mapped(NAME, Made())
    (folder.path / LEFT).write_text("x")
    with locked(folder):
        assert not folder.sweep(())
        assert names_in(folder) == [LEFT]
        assert bytes(folder.mapped(NAME, Made())) == GOOD
    assert folder.sweep(())
    assert names_in(folder) == []


def test_rows_are_read_while_nobody_sweeps(folder):
    """So what was read before an erasure is not written after it."""
    swept = list[bool]()

    def make() -> bytes:
        swept.append(folder.sweep(()))
        return GOOD

    folder.mapped(NAME, make)
    assert swept == [False]


def test_what_cannot_be_deleted_now_is_deleted_later(folder, monkeypatch):
    """Some systems do not remove a file that is mapped."""
    folder.mapped(NAME, Made())
    folder.mapped(OTHER_NAME, Made(OTHER))
    unlink = os.unlink

    def refuse(path: Path) -> None:
        if Path(path).name == NAME:
            raise PermissionError(errno.EACCES, "in use")
        unlink(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", refuse)
        assert not folder.sweep(())
        assert names_in(folder) == [NAME]
    assert folder.sweep(())


def test_where_folders_cannot_be_locked_files_are_mapped_and_swept(folder, monkeypatch):
    """As on Windows, where an open file is not deleted."""
    monkeypatch.setattr(files, "_ON_WINDOWS", True)
    assert is_mapped(folder.mapped(NAME, Made()))
    (folder.path / LEFT).write_text("x")
    assert folder.sweep(())
    assert names_in(folder) == []


def test_a_cache_is_bounded(tmp_path):
    """What was mapped last stays."""
    contents = [segment(f"s{number}") for number in range(4)]
    names = [*map(digest_of, contents)]
    folder = SegmentFolder(tmp_path, most_bytes=sum(map(len, contents)) - len(contents[0]) + 9)
    (tmp_path / "notes.txt").write_bytes(bytes(10 * len(GOOD)))
    for at, (name, content) in enumerate(zip(names[:3], contents, strict=False)):
        folder.mapped(name, Made(content))
        os.utime(tmp_path / name, (at, at))
    folder.mapped(names[0], Made())
    folder.mapped(names[3], Made(contents[3]))
    assert names_in(folder) == sorted([names[0], names[2], names[3], "notes.txt"])


# ── Where ────────────────────────────────────────────────────────────────────────────


def test_each_store_has_a_folder_of_its_own(tmp_path, monkeypatch):
    """Beside its file, in the one that is configured, or in the user's cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "platform", "linux")
    (tmp_path / "link.db").symlink_to(tmp_path / "m.db")
    given = IndexConfig(folder=str(tmp_path / "given"))

    def path(place: Path | str, config: IndexConfig) -> Path:
        return SegmentFolder.of(place, config).path

    for config, parent in ((given, tmp_path / "given"), (IndexConfig(), tmp_path)):
        places = [tmp_path / "m.db", tmp_path / "link.db", tmp_path / "other.db"]
        of_file, of_link, of_other = (path(place, config) for place in places)
        assert of_file == of_link != of_other
        assert of_file.parent == parent
    one, other = (path(name, IndexConfig()) for name in ("one at host", "other at host"))
    assert one != other
    assert one.parent == tmp_path / "cache" / "mnemo"
    assert path("one at host", given).parent == tmp_path / "given"


@pytest.mark.parametrize(
    ("system", "expected"),
    [
        ("linux", ".cache/mnemo"),
        ("darwin", "Library/Caches/mnemo"),
        ("win32", "AppData/Local/mnemo"),
    ],
)
def test_the_cache_is_where_the_system_has_it(system, expected, tmp_path, monkeypatch):
    """Of the user."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for variable in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(files, "_ON_WINDOWS", system == "win32")
    assert SegmentFolder.of("a store", IndexConfig()).path.parent == tmp_path / expected


@pytest.mark.parametrize("folder", ["", " ", "a\0b", "x" * 300])
def test_no_folder_has_such_a_name(folder):
    """It is refused at once."""
    with pytest.raises(ConfigError, match="folder"):
        Config(index={"folder": folder})


# ── Killed ───────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
@pytest.mark.parametrize("act", ACTS)
def test_killed_before_any_operation_nothing_half_is_mapped(act, tmp_path):
    """Another process maps it or makes it anew, and sweeps what is left."""
    program = Path(files.__file__).parents[2] / "tests/index/killed_writer.py"
    command = [sys.executable, str(program), str(tmp_path), act]
    subprocess.run(command, check=True, env=child_environment())
    lives = sorted(path for path in tmp_path.iterdir() if path.name.isdecimal())
    assert len(lives) >= 8
    for life in lives:
        folder = SegmentFolder(life, like=tmp_path / "m.db")
        for name, content in ((NAME, GOOD), (OTHER_NAME, OTHER)):
            if (life / name).exists() and act != "mend":
                assert (life / name).read_bytes() == content
        assert bytes(found := folder.mapped(NAME, Made())) == GOOD
        assert is_mapped(found)
        assert folder.sweep({NAME})
        assert names_in(folder) == [NAME]


@pytest.mark.slow
def test_many_processes_write_sweep_and_map_at_once(tmp_path):
    """Each has what it asked for, and nothing is left but that."""
    program = f"""
import sys
from pathlib import Path
from index.killed_writer import segment
from mnemo.index.files import SegmentFolder, digest_of
folder = SegmentFolder(Path({str(tmp_path)!r}) / "index")
for number in range(60):
    content = segment(f"s{{number % 3}}")
    name = digest_of(content)
    assert bytes(folder.mapped(name, lambda: content)) == content
    if number % 5 == int(sys.argv[1]):
        folder.sweep({{name}})
"""
    environment = child_environment()
    children = [
        subprocess.Popen([sys.executable, "-c", program, str(number)], env=environment)
        for number in range(3)
    ]
    assert [child.wait() for child in children] == [0, 0, 0]
    folder = SegmentFolder(tmp_path / "index")
    assert folder.sweep(())
    assert names_in(folder) == []
