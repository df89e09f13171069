"""Metrics of the HTTP service in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import Message, Scope, Send

from mnemo import RepositoryStatistics
from mnemo.runtime.clock import elapsed

__all__ = ["Metrics"]

BUCKETS_S = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Metrics:
    """Counts requests by route; levels of repositories are read when they are asked for."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "mnemo_http_requests",
            "Requests answered.",
            ["route", "status"],
            registry=self._registry,
        )
        self._seconds = Histogram(
            "mnemo_http_request_seconds",
            "Seconds until a request was answered, streams aside.",
            ["route"],
            buckets=BUCKETS_S,
            registry=self._registry,
        )

    @contextmanager
    def timed(self, scope: Scope, send: Send) -> Iterator[Send]:
        """Count the request of *scope*, which is answered through what is yielded."""
        begun, status = elapsed(), 0

        async def counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            yield counted
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self._requests.labels(route, str(status)).inc()
            if route != "/v1/events":
                self._seconds.labels(route).observe(elapsed() - begun)

    def text(self, repositories: Mapping[str, RepositoryStatistics]) -> bytes:
        """All counts, and the levels of *repositories* by id."""
        levels = CollectorRegistry()
        gauges = {
            name: Gauge(f"mnemo_{name}", told, ["repo"], registry=levels)
            for name, told in _LEVELS.items()
        }
        for repo_id, found in repositories.items():
            for name, level in _levels(found).items():
                gauges[name].labels(repo_id).set(level)
        return generate_latest(self._registry) + generate_latest(levels)


_LEVELS = {
    "nodes": "Stored nodes.",
    "messages": "Stored messages.",
    "steps": "Stored steps.",
    "open_sessions": "Sessions that are open in this process.",
    "append_backlog": "Steps that wait for annotation.",
    "jobs_waiting": "Threads that wait for extraction.",
    "jobs_running": "Threads that are being extracted.",
    "jobs_dead": "Threads whose extraction was given up.",
    "texts_to_embed": "Texts without a vector.",
}


def _levels(found: RepositoryStatistics) -> dict[str, float]:
    return {
        "nodes": sum(found.nodes.values()),
        "messages": found.messages,
        "steps": found.steps,
        "open_sessions": found.open_sessions,
        "append_backlog": found.append_backlog,
        "jobs_waiting": found.jobs.waiting,
        "jobs_running": found.jobs.running,
        "jobs_dead": found.jobs.dead,
        "texts_to_embed": found.index.waiting,
    }
