"""Metrics of the HTTP service in Prometheus' text format."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import accumulate, chain
from math import isfinite

import anyio
from starlette.types import Message, Scope, Send

from mnemo import JobLevels, Mnemo, NotFound, RepositoryStatistics
from mnemo.events import Event, RecallExecuted
from mnemo.runtime.board import Board
from mnemo.runtime.clock import SystemClock, elapsed
from mnemo.runtime.traffic import traffic
from mnemo.web.logs import REQUEST

BUCKETS_S = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, float("inf"))
"""Upper ends of the classes of durations (S)."""
LAG_BUCKETS_S = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, float("inf"))
"""Upper ends of the classes of the event loop's lag (S)."""
LAG_LOOK_S = 0.05
"""Seconds between two looks at that (S)."""
CLIENT_LEFT = 499
"""Status of a request whose client left before an answer began; nobody reads it (S)."""
STREAMS = ("/v1/events", "/mcp")
"""Routes whose answers last as long as their client listens."""
MOST_READ = 100
"""Repositories whose levels are read anew for one answer, at most (S)."""
LEVELS = {
    "workers": "Processes of the service that answer within five seconds.",
    "open_repositories": "Repositories that are open.",
    "nodes": "Stored nodes.",
    "messages": "Stored messages.",
    "steps": "Stored steps.",
    "open_sessions": "Sessions that are open.",
    "append_backlog": "Steps that wait for annotation.",
    "jobs_waiting": "Threads that wait for extraction.",
    "jobs_running": "Threads that are being extracted.",
    "jobs_dead": "Threads whose extraction was given up.",
    "messages_waiting": "Messages that wait for extraction.",
    "oldest_waiting_seconds": "Seconds for which the first of them has waited.",
    "texts_to_embed": "Texts without a vector.",
    "index_bytes": "Bytes that indexes hold in memory, estimated.",
}


FAMILIES: dict[str, tuple[str, Sequence[float]]] = {
    "mnemo_http_requests_total": ("Requests answered.", ()),
    "mnemo_http_request_seconds": ("Seconds until a request was answered.", BUCKETS_S),
    "mnemo_loop_lag_seconds": ("Seconds that the event loop went on too late.", LAG_BUCKETS_S),
    "mnemo_recall_seconds": ("Seconds until a recall was answered.", BUCKETS_S),
    "mnemo_recalls_empty_total": ("Recalls that found nothing.", ()),
    "mnemo_embedded_texts_total": ("Texts that waited for their vectors, embedded here.", ()),
    "mnemo_embedding_seconds_total": ("Seconds in which embedders were waited for to do so.", ()),
}
"""Counters, and histograms with the upper ends of their classes."""
WITHOUT_LABELS = [*FAMILIES][2:]


OF_PROCESS = ("open_sessions", "append_backlog", "index_bytes")
"""Levels that each process has of its own of a repository; the others are of the store."""


class Metrics:
    """Counts on a board, which other workers of the service count on, too; levels are read."""

    def __init__(self, board: Board | None = None) -> None:
        self._board = board or Board()
        for name in WITHOUT_LABELS:
            self._numbers(name)
        self._embedded = 0, 0.0
        self._levels: dict[str, tuple[float, dict[str, int]]] = {}

    def _numbers(self, name: str, **labels: object) -> memoryview[float]:
        """Those of a counter, or of a histogram: the classes and the sum."""
        return self._board.numbers(name + _labels(**labels), len(FAMILIES[name][1]) + 1)

    def _add(self, name: str, amount: float = 1, **labels: object) -> None:
        with self._board:
            self._numbers(name, **labels)[0] += amount

    def _observe(self, name: str, seconds: float, **labels: object) -> None:
        with self._board:
            numbers = self._numbers(name, **labels)
            numbers[bisect_left(FAMILIES[name][1], seconds)] += 1
            numbers[-1] += seconds

    async def watch(self, memory: Mnemo) -> None:
        """Count recalls and embedded texts, and the event loop's lag, until cancelled."""
        subscription = memory.subscribe(self._happened)
        try:
            while True:
                due = elapsed() + LAG_LOOK_S
                await anyio.sleep(LAG_LOOK_S)
                self._observe("mnemo_loop_lag_seconds", max(0.0, elapsed() - due))
                self._embed()
        finally:
            subscription.cancel()

    def _embed(self) -> None:
        """Count what this process has embedded since."""
        work, (texts, seconds) = traffic(), self._embedded
        if work.embedded != texts:
            self._add("mnemo_embedded_texts_total", work.embedded - texts)
            self._add("mnemo_embedding_seconds_total", work.embedding_s - seconds)
            self._embedded = work.embedded, work.embedding_s

    def _happened(self, event: Event) -> None:
        if not isinstance(event, RecallExecuted):
            return
        self._observe("mnemo_recall_seconds", event.duration_s)
        if not event.result_count:
            self._add("mnemo_recalls_empty_total")
        if request := REQUEST.get():  # the events of a recall are sent from its task
            trace = event.trace or {}
            request.phases |= trace.get("seconds", {})
            if request.use is not None:
                request.use.model_tokens(event.at, trace.get("model_tokens", 0))

    @contextmanager
    def timed(self, scope: Scope, send: Send) -> Iterator[Send]:
        """Count the request of *scope*, which is answered through what is yielded."""
        begun, status = elapsed(), CLIENT_LEFT

        async def counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            yield counted
        finally:
            route = str(getattr(scope.get("route"), "path", "other"))
            self._add("mnemo_http_requests_total", route=route, status=status)
            if route not in STREAMS:
                self._observe("mnemo_http_request_seconds", elapsed() - begun, route=route)

    async def levels(
        self, memory: Mnemo, permits: Callable[[str], bool]
    ) -> dict[str, dict[str, int]]:
        """
        The levels of each open repository that *permits* takes, by id.

        Of more than ``MOST_READ``, those that were read longest ago are read, the others stand as
        they were then. *Cancellation*: safe.
        """
        open_now = frozenset(memory.list_repos())
        self._levels = {id: known for id, known in self._levels.items() if id in open_now}
        permitted = [id for id in open_now if permits(id)]
        ages = {id: self._levels[id][0] if id in self._levels else -1.0 for id in permitted}
        for id in sorted(permitted, key=ages.__getitem__)[:MOST_READ]:
            with suppress(NotFound):  # closed since
                self._levels[id] = (elapsed(), levels_of(await memory.repo(id).statistics()))
        return {id: self._levels[id][1] if id in self._levels else {} for id in permitted}

    def text(
        self, levels: Mapping[str, int], used: Mapping[str, float] | None = None, **labels: str
    ) -> str:
        """All counts, when tokens were *used* last, and *levels* with *labels*."""
        lines = [*self._lines(levels, labels)]
        if used:
            name = "mnemo_token_last_used_timestamp_seconds"
            lines += _head(name, "gauge", "When a token was used last, in Unix seconds.")
            lines += [f"{name}{_labels(token=who)} {at:.0f}" for who, at in used.items()]
        return "\n".join(lines) + "\n"

    def _lines(self, levels: Mapping[str, int], labels: Mapping[str, str]) -> Iterator[str]:
        self._embed()
        counted = list(self._board.items())
        for name, (told, ends) in FAMILIES.items():
            yield from _head(name, "histogram" if ends else "counter", told)
            for full, numbers in counted:
                if full.partition("{")[0] == name:
                    yield from _counted(name, full.removeprefix(name)[1:-1], ends, numbers)
        for level, count in levels.items():
            yield from _head(f"mnemo_{level}", "gauge", LEVELS[level])
            yield f"mnemo_{level}{_labels(**labels)} {count}"


def _counted(
    name: str, labels: str, ends: Sequence[float], numbers: memoryview[float]
) -> Iterator[str]:
    """The lines of a counter, or of a histogram."""
    label = f"{{{labels}}}" if labels else ""
    if not ends:
        yield f"{name}{label} {_number(numbers[0])}"
        return
    for end, count in zip(ends, accumulate(numbers), strict=False):
        le = f"{end:g}" if isfinite(end) else "+Inf"
        yield f'{name}_bucket{{{labels}{"," if labels else ""}le="{le}"}} {count:.0f}'
    yield f"{name}_sum{label} {numbers[-1]:.6f}"
    yield f"{name}_count{label} {sum(numbers[:-1]):.0f}"


def _number(value: float) -> str:
    return f"{value:.0f}" if value.is_integer() else f"{value:.6f}"


def _head(name: str, kind: str, told: str) -> list[str]:
    return [f"# HELP {name} {told}", f"# TYPE {name} {kind}"]


def _labels(**labels: object) -> str:
    if not labels:
        return ""
    told = ",".join(f'{name}="{_escaped(str(value))}"' for name, value in labels.items())
    return f"{{{told}}}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _backlog(jobs: JobLevels) -> Counter[str]:
    age_s = (SystemClock().now() - jobs.oldest_at).total_seconds() if jobs.oldest_at else 0
    return Counter(
        jobs_waiting=jobs.waiting,
        jobs_running=jobs.running,
        jobs_dead=jobs.dead,
        messages_waiting=jobs.messages,
        oldest_waiting_seconds=max(0, round(age_s)),
    )


def together(
    found: Iterable[Mapping[str, Mapping[str, int]]],
) -> dict[str, Counter[str]]:
    """Levels by repository of several processes: what each has is added up, the rest the same."""
    merged: dict[str, Counter[str]] = {}
    for id, levels in chain.from_iterable(one.items() for one in found):
        known = merged.setdefault(id, Counter())
        for name, count in levels.items():
            added = known[name] + count
            known[name] = added if name in OF_PROCESS else max(known[name], count)
    return merged


async def totals(
    memory: Mnemo, levels: Mapping[str, Mapping[str, int]], permits: Callable[[str], bool]
) -> Counter[str]:
    """The *levels* of open repositories added up, and what all that *permits* takes owe."""
    total = Counter(open_repositories=len(levels))
    for one in levels.values():
        total.update(one)
    owed = (found for id, found in (await memory.backlog()).items() if permits(id))
    return Counter({**total, **_backlog(sum(owed, JobLevels()))})


def levels_of(found: RepositoryStatistics) -> dict[str, int]:
    """The levels of a repository by name."""
    return {
        "nodes": sum(found.nodes.values()),
        "messages": found.messages,
        "steps": found.steps,
        "open_sessions": found.open_sessions,
        "append_backlog": found.append_backlog,
        "texts_to_embed": found.index.waiting,
        "index_bytes": found.index.bytes,
        **_backlog(found.jobs),
    }
