"""LangGraph: ``MnemoStore`` keeps items across threads, ``MnemoSaver`` the states of graphs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from os import PathLike
from typing import Any, Self

import anyio.to_thread

import mnemo
from mnemo import Item as StoredItem
from mnemo import sync as blocking
from mnemo.adapters.handles import Adapter, AnyRepository, LazyService, wait_on
from mnemo.adapters.langgraph_checkpoints import MnemoSaver
from mnemo.runtime.extras import refuse
from mnemo.runtime.validation import portions

try:
    from langgraph.store.base import (
        BaseStore,
        GetOp,
        IndexConfig,
        Item,
        ListNamespacesOp,
        Op,
        PutOp,
        Result,
        SearchItem,
        SearchOp,
        TTLConfig,
        get_text_at_path,
        tokenize_path,
        validate_op_namespace,
    )
except ImportError as error:
    refuse(__name__, "langgraph", error)

__all__ = ["MnemoSaver", "MnemoStore"]

_WHOLE = "$"
_ANY = "*"


class MnemoStore(Adapter, BaseStore):
    """
    A store of LangGraph that keeps its items in a repository, as ``repo.items``.

    A batch of up to 1,000 operations is one transaction, whose reads see what was there before;
    a longer one is one for each thousand, the reads first. A put that returned is durable and
    found. Expired items are hidden at once, whatever ``omit_expired`` says, and deleted by mnemo;
    there is no sweeper to start.

    Args:
        repo: Open, of ``Mnemo`` or of ``mnemo.sync.Mnemo``. With an asynchronous one, make the
            store on its event loop; blocking calls are for other threads.
        index: ``{"fields": […]}``: the paths of the values' texts; ``{}``: the whole value.
            They are embedded by the repository's embedder. ``None``: no semantic search.
        ttl: LangGraph's, in minutes.

    Raises:
        ConfigError: *repo* is no repository, or *index* names an embedder of its own.
        RuntimeError: The repository is asynchronous, and no event loop runs here.
    """

    supports_ttl = True

    def __init__(
        self,
        repo: AnyRepository | LazyService,
        *,
        index: IndexConfig | Mapping[str, Any] | None = None,
        ttl: TTLConfig | None = None,
    ) -> None:
        self._fields = None if index is None else _fields(index)
        self.ttl_config = ttl
        self._attach(repo, mnemo.Repository, blocking.Repository)
        self._loop = asyncio.get_running_loop() if isinstance(repo, mnemo.Repository) else None

    @classmethod
    def from_path(
        cls,
        path: str | PathLike[str],
        *,
        repo_id: str = "default",
        index: IndexConfig | Mapping[str, Any] | None = None,
        ttl: TTLConfig | None = None,
    ) -> Self:
        """
        A store over a file of its own, opened at the first call; close it, or use ``with``.

        Usable from any thread and any event loop.
        """
        return cls(LazyService(path, repo_id), index=index, ttl=ttl)

    # ── Batches ──────────────────────────────────────────────────────────────────────────

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """
        Do *ops*, up to 1,000 in one transaction, reads first; all other methods come here.

        Raises:
            InvalidNamespaceError: A label is empty, holds a dot or is no text; nothing was stored.
            ValueError: A value is not JSON, or an argument is of no use; the thousands before
                its own were stored, nothing else.
            StoreError: Likewise. *Cancellation*: each thousand was stored whole or not at all,
                and none after it.
        """
        given = list(ops)
        # Texts are taken from values that may be large.
        if any(_paths(op, self._fields) for op in given if isinstance(op, PutOp)):
            batch = await anyio.to_thread.run_sync(self._prepared, given)
        else:
            batch = self._prepared(given)
        return batch.results([one for call in batch for one in await self._handle.run(call)])

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """
        ``abatch``, blocking.

        Raises:
            asyncio.InvalidStateError: On the repository's own event loop, which would wait for
                itself.
        """
        if self._loop is None:
            batch = self._prepared(list(ops))
            return batch.results([one for call in batch for one in self._handle.wait(call)])
        return wait_on(self._loop, partial(self.abatch, ops), self)

    def _prepared(self, ops: Sequence[Op]) -> _Batch:
        return _Batch(ops, [_operation(op, self._fields) for op in ops])


class _Batch:
    """Operations of LangGraph with those of mnemo, which are run reads first."""

    def __init__(self, ops: Sequence[Op], operations: Sequence[mnemo.ItemOperation]) -> None:
        self._ops = ops
        self._order = sorted(range(len(ops)), key=lambda place: isinstance(ops[place], PutOp))
        self._operations = [operations[place] for place in self._order]

    def __iter__(self) -> Iterator[Callable[[Any], Any]]:
        """The calls of the repository."""
        for some in portions(self._operations):
            yield lambda repo, some=some: repo.items.batch(some)  # type: ignore[misc]

    def results(self, found: Sequence[Any]) -> list[Result]:
        """What LangGraph expects, in the order of its operations."""
        results: list[Result] = [None] * len(self._ops)
        for place, result in zip(self._order, found, strict=True):
            results[place] = _result(self._ops[place], result)
        return results


def _fields(index: Mapping[str, Any]) -> list[str]:
    """The paths of *index*. *Raises* ``ConfigError``."""
    if foreign := sorted({"embed", "dims"} & set(index)):
        raise mnemo.ConfigError(
            f"index[{foreign[0]!r}] is not taken: items are embedded as everything in the "
            "repository; give the embedder to Mnemo(…, embedder=…)"
        )
    if unknown := sorted(set(index) - {"fields"}):
        raise mnemo.ConfigError(f"index has no {', '.join(map(repr, unknown))}; known: 'fields'")
    fields = index.get("fields")
    fields = [_WHOLE] if fields is None else fields
    if isinstance(fields, str) or not all(isinstance(path, str) for path in fields):
        raise mnemo.ConfigError(f"index['fields'] must be a list of paths, not {fields!r}")
    return list(fields)


# ── Operations ───────────────────────────────────────────────────────────────────────────


def _operation(op: Op, fields: Sequence[str] | None) -> mnemo.ItemOperation:
    """What mnemo is asked for. *Raises* ``ValueError``: it is no operation, or of no use."""
    validate_op_namespace(op)
    match op:
        case GetOp():
            return mnemo.GetItem(namespace=op.namespace, key=op.key, refresh=op.refresh_ttl)
        case PutOp():
            return _put(op, fields)
        case SearchOp():
            is_semantic = fields is not None and op.query is not None and op.query.strip()
            return mnemo.SearchItems(
                prefix=op.namespace_prefix,
                query=op.query if is_semantic else None,
                filter=op.filter,
                limit=op.limit,
                offset=op.offset,
                refresh=op.refresh_ttl,
            )
        case ListNamespacesOp():
            return _listing(op)
        case _:
            raise ValueError(f"unknown operation: {type(op).__name__}")


def _put(op: PutOp, fields: Sequence[str] | None) -> mnemo.ItemOperation:
    if op.value is None:
        return mnemo.DeleteItem(namespace=op.namespace, key=op.key)
    return mnemo.PutItem(
        namespace=op.namespace,
        key=op.key,
        value=op.value,
        texts=_texts(op.value, _paths(op, fields)) or None,
        ttl_s=None if op.ttl is None else 60 * op.ttl,
    )


def _paths(op: PutOp, fields: Sequence[str] | None) -> Sequence[str]:
    """The paths of the texts that *op* is found by."""
    if fields is None or op.index is False:
        return ()
    return fields if op.index is None else op.index


def _texts(value: Any, paths: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for path in paths:
        try:
            texts = get_text_at_path(value, path if path == _WHOLE else tokenize_path(path))
        except TypeError:
            # The value is not JSON: the put itself is refused, and says why.
            return {}
        several = len(texts) > 1
        found |= {f"{path}.{n}" if several else path: text for n, text in enumerate(texts)}
    return found


def _listing(op: ListNamespacesOp) -> mnemo.ListNamespaces:
    paths: dict[str, list[Sequence[str]]] = {"prefix": [], "suffix": []}
    for condition in op.match_conditions or ():
        if condition.match_type not in paths:
            raise ValueError(f"unsupported match type: {condition.match_type}")
        paths[condition.match_type].append(condition.path)
    prefix = _united(paths["prefix"])
    suffix = _united([path[::-1] for path in paths["suffix"]])
    is_possible = prefix is not None and suffix is not None
    return mnemo.ListNamespaces(
        prefix=prefix or (),
        suffix=(suffix or ())[::-1],
        max_depth=op.max_depth,
        limit=op.limit if is_possible else 0,
        offset=op.offset,
    )


def _united(paths: Sequence[Sequence[str]]) -> Sequence[str | None] | None:
    """One path that says what all of *paths* say; ``None``: they contradict each other."""
    united: list[str | None] = []
    for path in paths:
        united += [None] * (len(path) - len(united))
        for place, label in enumerate(path):
            if label != _ANY and united[place] not in (None, label):
                return None
            united[place] = united[place] if label == _ANY else label
    return united


# ── Results ──────────────────────────────────────────────────────────────────────────────


def _result(op: Op, found: Any) -> Result:
    match op:
        case GetOp():
            return None if found is None else Item(**_named(found))
        case SearchOp():
            return [SearchItem(**_named(item), score=item.score) for item in found]
        case ListNamespacesOp():
            namespaces: list[tuple[str, ...]] = found
            return namespaces
        case _:
            return None


def _named(item: StoredItem) -> dict[str, Any]:
    return {
        "namespace": item.namespace,
        "key": item.key,
        "value": dict(item.value),
        "created_at": item.created_at,
        "updated_at": item.updated_at,
    }
