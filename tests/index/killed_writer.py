"""
Does one thing with a folder of segments, again and again, killed before a later file operation each
time: in ``FOLDER/0``, ``FOLDER/1``, … until it comes to its end. Usage: FOLDER ACT.
"""

import fcntl
import mmap
import os
import signal
import sys
import traceback
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from mnemo.index.files import SegmentFolder, digest_of
from mnemo.index.segments import Batch, Head, packed
from mnemo.values.feed import FeedCursor

OPERATIONS = ("mkdir", "open", "write", "fsync", "chmod", "replace", "unlink", "listdir", "utime")


def segment(name: str, documents: int = 2_000) -> bytes:
    """A segment of some blocks."""
    names = {"ids": [f"{name}-{number}" for number in range(documents)]}
    head = Head(
        repo=1, chain="steps", after=FeedCursor(), until=FeedCursor(), reading="r",
        documents=documents,
    )  # fmt: skip
    return packed(head, {"steps": Batch({}, names)})


GOOD, OTHER = segment("good"), segment("other")


def write(folder: SegmentFolder) -> None:
    """Where there is nothing yet."""
    folder.mapped(digest_of(GOOD), lambda: GOOD)


def mend(folder: SegmentFolder) -> None:
    """Where a damaged file is."""
    folder.path.mkdir()
    (folder.path / digest_of(GOOD)).write_bytes(OTHER[:-1])
    write(folder)


def evict(folder: SegmentFolder) -> None:
    """Where there is no room for two."""
    bounded = SegmentFolder(folder.path, like=folder._like, most_bytes=len(GOOD) + 1)
    bounded.mapped(digest_of(OTHER), lambda: OTHER)
    write(bounded)


def sweep(folder: SegmentFolder) -> None:
    """What is listed no more, and what died."""
    write(folder)
    folder.mapped(digest_of(OTHER), lambda: OTHER)
    (folder.path / f".{digest_of(OTHER)}.1.abcd.tmp").write_bytes(OTHER[:9])
    folder.sweep({digest_of(GOOD)})


ACTS = {"write": write, "mend": mend, "evict": evict, "sweep": sweep}


def killed_before(number: int) -> Callable[[], None]:
    """
    Have this process killed before so many more operations, a writing one half done; what is given
    counts as one when it is called.
    """
    left = iter(range(number))

    def before(half: Callable[[], Any] = lambda: None) -> None:
        if next(left, None) is None:
            half()
            os.kill(os.getpid(), signal.SIGKILL)

    def guarded(operation: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any, **named: Any) -> Any:
            if operation is writing:
                before(lambda: writing(given[0], given[1][: len(given[1]) // 2]))
            else:
                before()
            return operation(*given, **named)

        return run

    writing = os.write
    for name in OPERATIONS:
        setattr(os, name, guarded(getattr(os, name)))
    fcntl.flock = guarded(fcntl.flock)
    mmap.mmap = guarded(mmap.mmap)  # type: ignore[misc, assignment]
    return before


def main(place: Path, act: str) -> None:
    database = place / "m.db"
    database.touch(0o640)
    for number in count():
        pid = os.fork()
        if not pid:
            try:
                killed_before(number)
                ACTS[act](SegmentFolder(place / str(number), like=database))
                os._exit(0)
            except BaseException:
                traceback.print_exc()
            os._exit(1)
        _, ended = os.waitpid(pid, 0)
        if ended != signal.SIGKILL:
            sys.exit(bool(ended))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
