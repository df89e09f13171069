"""Logs as lines of JSON, written by threads: to stderr, and to files that are rotated."""

from __future__ import annotations

import json
import logging
import os
import queue
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from logging.handlers import QueueHandler, QueueListener, RotatingFileHandler
from pathlib import Path
from typing import Any

from mnemo.runtime.turns import Turn

MOST_QUEUED = 10_000
"""Lines that wait to be written, at most; of further ones the number is told (S)."""
ROTATED_BYTES = 10_000_000
"""Bytes of a file, after which it is rotated (S)."""
ROTATED_FILES = 10
"""Rotated files that are kept beside it (S)."""
PATIENCE_S = 5.0
"""Seconds after which a process that has the lock of a file hangs (S)."""


class JsonLine(logging.Formatter):
    """A record as one line of JSON, in ASCII."""

    def format(self, record: logging.LogRecord) -> str:
        """Tell time, level and logger, then what the record says."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        told: dict[str, Any] = {"at": at, "level": record.levelname.lower(), "logger": record.name}
        told |= record.msg if isinstance(record.msg, dict) else {"message": record.getMessage()}
        if record.exc_info:
            told["trace"] = self.formatException(record.exc_info)
        return json.dumps(told, default=str)


class _Rotated(RotatingFileHandler):
    """
    A file that is rotated, of whole lines, whichever processes write it; while one of them hangs
    that may be at it, the others write without rotating it.
    """

    _turn, _is_alone = Turn(PATIENCE_S), True

    def emit(self, record: logging.LogRecord) -> None:
        """Write *record* into the file that has the name now."""
        with ExitStack() as stack:
            if sys.platform != "win32":  # where a folder cannot be opened
                folder = os.open(Path(self.baseFilename).parent, os.O_RDONLY)
                stack.callback(os.close, folder)
                self._is_alone = stack.enter_context(self._turn.held(folder))
            super().emit(record)
            if self.stream is not None:
                self.stream.close()
                self.stream = None

    def shouldRollover(self, record: logging.LogRecord) -> int:  # noqa: N802
        """Whether the file is full and may be rotated."""
        return self._is_alone and super().shouldRollover(record)


class _Queued(QueueHandler):
    """Leaves writing to a thread, and tells how many lines found no room."""

    def __init__(self) -> None:
        super().__init__(queue.Queue(MOST_QUEUED))
        self.setFormatter(JsonLine())
        self._lost = 0

    def enqueue(self, record: logging.LogRecord) -> None:
        """Queue *record*, which is a line by now."""
        try:
            if self._lost:
                lost = {"message": f"{self._lost} lines were lost: the log is written too slowly"}
                line = logging.makeLogRecord({"name": record.name, "levelname": "ERROR"})
                line.msg = lost
                self.queue.put_nowait(self.prepare(line))
                self._lost = 0
            self.queue.put_nowait(record)
        except queue.Full:
            self._lost += 1


@contextmanager
def written(level: str, files: Mapping[str, Path]) -> Iterator[None]:
    """Write what mnemo logs from *level* on to stderr as JSON, and loggers to *files* by name."""
    with ExitStack() as stack:
        stack.enter_context(_handled("mnemo", level.upper(), logging.StreamHandler()))
        for name, path in files.items():
            file = _Rotated(
                path, maxBytes=ROTATED_BYTES, backupCount=ROTATED_FILES, encoding="ascii"
            )
            stack.enter_context(_handled(name, "INFO", file))
        yield


@contextmanager
def _handled(name: str, level: str, handler: logging.Handler) -> Iterator[None]:
    logger, queued = logging.getLogger(name), _Queued()
    before = logger.level
    queued.setLevel(level)
    listener = QueueListener(queued.queue, handler)
    listener.start()
    logger.addHandler(queued)
    logger.setLevel(level)
    try:
        yield
    finally:
        logger.removeHandler(queued)
        logger.setLevel(before)
        listener.stop()
        handler.close()
