"""The corpus as segments: which documents are to be kept, and what kept ones were."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace
from itertools import islice, takewhile
from sys import getsizeof
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mnemo.index.batches import derived, joined, those, with_codes
from mnemo.index.columns import Ints, Mask, Numbers, ascending
from mnemo.index.corpus import Document, DocumentsView, thread_chain
from mnemo.index.corpus_writer import NODE, Corpus, Documents, Steps
from mnemo.index.erased import ALONE, without
from mnemo.index.held import Held
from mnemo.index.large import CLAIMS, EXACT, LARGE, Segment
from mnemo.index.owed import Debt
from mnemo.index.segment_rows import Kept
from mnemo.index.segments import (
    MOST_DOCUMENTS,
    NAMED,
    SEALED_FROM,
    Batch,
    Batches,
    Chain,
    Head,
    absorbed,
    narrowed,
    packed,
    unpacked,
)
from mnemo.runtime.clock import Breather, breathed
from mnemo.values.feed import FeedCursor
from mnemo.values.graph import Intent, Node, Vector
from mnemo.values.steps import PARTS
from mnemo.values.vectors import passage_key, vector_keys

log = logging.getLogger("mnemo")

_FRESH = {"alive": True, "linked": -1}
"""Columns that are not kept, and what they begin as."""
_OF_SIDES = {"valid_to": math.inf, "by_hand": False, "last": 0.0}
"""Likewise of steps and messages; *last* is *first*."""


Made: TypeAlias = tuple[Head, bytes, Sequence[Kept]]
"""A segment, and which of those kept before stay before it; the others are in it."""
_START = FeedCursor()
_LAST = 2**62


# ── What is to be kept ────────────────────────────────────────────────────────────────


def segment(
    corpus: Corpus, chain: Chain, kept: Sequence[Kept], cursor: FeedCursor, **known: Any
) -> tuple[int, Made | None]:
    """
    How many documents came behind the segments *kept* of *chain*, and if these are enough, the one
    that is to be put there. *cursor*: How far the feed was read; *known*: The rest of the ``Head``.
    """
    new = sum(map(len, _since(corpus, chain, kept[-1].until if kept else _START).values()))
    if new < SEALED_FROM:
        return new, None
    sizes = [one.documents for one in kept if one.digest is None]
    stay = kept[: len(kept) - absorbed(sizes, new)]
    after, until = stay[-1].until if stay else _START, replace(cursor, vector=0)
    numbers = _since(corpus, chain, after)
    if chain == "nodes":
        until = replace(until, step=0, message=0)
        batches = {kind: _nodes(corpus, kind, some) for kind, some in numbers.items() if len(some)}
    else:
        until, first = replace(until, revision=0), numbers["steps"]
        if len(first) > MOST_DOCUMENTS:
            first = _first(corpus.steps, first, MOST_DOCUMENTS)
            until = _reached(corpus.steps, first, after, until)
        batches = {"steps": _steps(corpus, first, after, until)}
    documents = sum(map(len, batches.values()))
    head = Head(chain=chain, after=after, until=until, documents=documents, **known)
    return new, (head, packed(head, batches), stay)


def large_segment(
    held: Held, chain: Chain, cursor: FeedCursor, *, least: int, **known: Any
) -> Made | None:
    """
    The large segment that is to be put behind those of *chain*, or in the place of the last one
    and with it, if at least *least* documents wait for that.
    """
    # What of nodes is damaged is read again when it is put right.
    if held.documents <= EXACT or (chain == "nodes" and held.damaged):
        return None
    after = held.end(chain)
    of_chain = _large_steps if chain == "steps" else _large_nodes
    made = of_chain(held, after, cursor, least)
    if made is None:
        return None
    until, new = made
    stay = held.listed[chain]
    last = held.large[chain][-1] if stay else None
    if last is not None and len(last) + sum(map(len, new.values())) <= LARGE:
        # What left the steps leaves the segment with what repeats it: elsewhere.
        living = {kind: sealed.living for kind, sealed in last.sealed.items()}
        if chain == "nodes" or all(sealed.is_whole for sealed in last.sealed.values()):
            new, after, stay = _united(living | {**last.others}, new), last.head.after, stay[:-1]
    batches = {
        kind: derived(batch) if "codes" in batch.columns else batch for kind, batch in new.items()
    }
    documents = sum(map(len, batches.values()))
    head = Head(chain=chain, after=after, until=until, documents=documents, **known)
    return head, packed(head, batches, findable=True), stay


def _united(earlier: Batches, later: Batches) -> Batches:
    """Both, of each node what it was later."""
    both = _without_replaced([earlier, later])
    kinds = earlier.keys() | later.keys()
    return {kind: joined([some[kind] for some in both if kind in some]) for kind in kinds}


def _large_steps(
    held: Held, after: FeedCursor, cursor: FeedCursor, least: int
) -> tuple[FeedCursor, Batches] | None:
    """
    The first steps and messages behind *after* that have their vectors, and up to where they are.
    What the embedder does not take is named alone.
    """
    corpus, steps = held.corpus, held.corpus.steps
    numbers = _since(corpus, "steps", after)["steps"]
    owing, alone = list[int](), set[str]()
    for key, debt in corpus.owed.items():
        if debt.group is steps and key in held.refused:
            alone.add(debt.node_id)
        elif debt.group is steps:
            owing.append(debt.number)
    numbers = numbers[numbers < min(np.intersect1d(owing, numbers), default=steps.count)]
    stands = np.array([steps.ids[number] in alone for number in numbers.tolist()], np.bool_)
    alones, numbers = numbers[stands], numbers[~stands]
    if len(numbers) < least or ALONE * (len(alones) + len(steps.unread)) > LARGE:
        return None
    numbers = _first(steps, numbers, LARGE)
    alones = alones[alones < numbers[-1]]
    until = replace(cursor, vector=0, revision=0)
    until = _reached(steps, ascending(numbers, alones), after, until)
    batch = _steps(corpus, numbers, after, until)
    named = [(id, "", "", 0) for id in sorted({steps.ids[number] for number in alones.tolist()})]
    batch = replace(batch, repeats=[*batch.repeats, *named])
    return until, {"steps": _with_codes(steps, batch, numbers)}


def _large_nodes(
    held: Held, after: FeedCursor, cursor: FeedCursor, least: int
) -> tuple[FeedCursor, Batches] | None:
    """
    The nodes of the first revisions behind *after* whose facts and instructions have vectors, or
    cannot have any; and up to where they are.
    """
    corpus = held.corpus
    found: dict[Any, Numbers] = _since(corpus, "nodes", after)
    born = {kind: corpus.nodes[kind].columns["born"].view() for kind in found}
    until = cursor.revision
    for key, debt in corpus.owed.items():
        for kind in CLAIMS:
            group = corpus.nodes[kind]
            if debt.group is group and key not in held.refused and group.is_alive(debt.number):
                until = min(until, int(born[kind][debt.number]) - 1)
    waiting = np.sort(np.concatenate([born[kind][found[kind]] for kind in CLAIMS]))
    waiting = waiting[waiting <= until]
    if len(waiting) < least:
        return None
    until = int(waiting[min(LARGE, len(waiting)) - 1])
    batches = {}
    for kind, numbers in found.items():
        chosen = numbers[born[kind][numbers] <= until]
        if len(chosen):
            batch = _nodes(corpus, kind, chosen)
            if kind in CLAIMS:
                batch = _with_codes(corpus.nodes[kind], batch, chosen)
            batches[kind] = batch
    return replace(cursor, vector=0, step=0, message=0, revision=until), batches


def _with_codes(group: Documents, batch: Batch, numbers: Numbers) -> Batch:
    """*batch*, which has the documents *numbers* of a group, with their vectors."""
    rows, owners, passages = group.view().vectors_of(numbers)
    order = np.lexsort((passages, owners))
    counts = np.bincount(np.searchsorted(numbers, owners), minlength=len(numbers))
    return with_codes(batch, counts, rows[order])


def shed(held: Held, chain: Chain, until: FeedCursor) -> None:
    """Keep in memory those documents of *chain* that came after *until*, where large ones end."""
    if chain == "steps":
        _shed_steps(held, until)
    else:
        for kind in CLAIMS:
            _shed_claims(held.corpus, kind, until)


def _shed_claims(corpus: Corpus, kind: Any, until: FeedCursor) -> None:
    group = corpus.nodes[kind]
    numbers = _born_after(group, until.revision)
    batch = _nodes(corpus, kind, numbers)
    nodes = {group.ids[number]: group.nodes[number] for number in numbers.tolist()}
    known = _known_vectors(group.view(), numbers)
    corpus.renew_claims(kind)
    _restore_nodes(corpus, kind, batch, {id: node for id, node in nodes.items() if node})
    corpus.add_vectors(known)


def _shed_steps(held: Held, until: FeedCursor) -> None:
    corpus, large = held.corpus, held.large["steps"]
    alone = held.alone(large)
    steps, numbers = corpus.steps, _since(corpus, "steps", until)["steps"]
    named = np.array([n for id in alone for n in steps.documents.get(id, ())], np.int64)
    living = _since(corpus, "steps", _START)["steps"]
    numbers = ascending(numbers, named[np.isin(named, living)])
    batch = _steps(corpus, numbers, until, replace(until, step=_LAST))
    known = _known_vectors(steps.view(), numbers)
    corpus.renew_steps([one.sealed["steps"].centre for one in large])
    _restore_steps(corpus, batch)
    corpus.add_vectors(known)


def _known_vectors(view: DocumentsView, numbers: Numbers) -> dict[str, Vector]:
    """The vectors of documents *numbers*, by their keys."""
    rows, owners, passages = view.vectors_of(numbers)
    of_each = zip(rows, owners.tolist(), passages.tolist(), strict=True)
    return {
        passage_key(view.key(number), passage): row for row, number, passage in breathed(of_each)
    }


def _since(corpus: Corpus, chain: Chain, after: FeedCursor) -> dict[Any, Numbers]:
    """The living documents of what the feed brought behind *after*, by type."""
    if chain == "nodes":
        groups = corpus.nodes.items()
        return {kind: _born_after(group, after.revision) for kind, group in groups}
    steps = corpus.steps
    begun = np.where(_are_messages(steps), after.message, after.step)
    return {"steps": _born_after(steps, begun)}


def _born_after(group: Documents, after: int | NDArray[np.int64]) -> Numbers:
    born, alive = group.columns["born"].view(), group.columns["alive"].view()
    return np.flatnonzero(alive & (born > after))


def _first(steps: Steps, numbers: Numbers, most: int) -> Numbers:
    """The first *most* of *numbers*, and the other side of the last one."""
    while most < len(numbers) and steps.ids[numbers[most]] == steps.ids[numbers[most - 1]]:
        most += 1
    return numbers[:most]


def _reached(steps: Steps, numbers: Numbers, after: FeedCursor, until: FeedCursor) -> FeedCursor:
    """How far from *after* towards *until* the feed has come with the last of *numbers*."""
    born, said = steps.columns["born"].view()[numbers], _are_messages(steps)[numbers]
    step = int(born[~said].max(initial=after.step))
    message = int(born[said].max(initial=after.message))
    return replace(until, step=step, message=message)


def _are_messages(steps: Steps) -> Mask:
    said = [chain.startswith(thread_chain("")) for chain in steps.sessions]
    return np.asarray(np.asarray(said, np.bool_)[steps.columns["session"].view()])


def _steps(corpus: Corpus, numbers: Numbers, after: FeedCursor, until: FeedCursor) -> Batch:
    """
    The documents *numbers*, the steps between the cursors that repeat a message, and damaged rows,
    wherever these are.
    """
    steps = corpus.steps
    # In the order of the feed; all that lie behind are few of many.
    behind = takewhile(lambda entry: entry[1][1] > after.step, reversed(steps.repeating.items()))
    repeats = [
        (step, steps.aliases[step], session, born)
        for step, (session, born) in behind
        if born <= until.step
    ][::-1]
    repeats += ((id, "", row, 0) for row, id in steps.unread.items())
    return replace(_columns(corpus, steps, numbers), repeats=repeats)


def _columns(corpus: Corpus, group: Documents, numbers: Numbers) -> Batch:
    """The columns and terms of *numbers*."""
    known: dict[str, Any] = {
        "chains": corpus.steps.sessions,
        "actors": corpus.steps.actors,
        "metadata": group.facets.texts,
        "terms": group.lexicon.numbers,
    }
    left_out = {*_FRESH, *(_OF_SIDES if isinstance(group, Steps) else ())}
    columns = {
        name: column.view()[numbers]
        for name, column in group.columns.items()
        if name not in left_out
    }
    columns |= {"born": narrowed(columns["born"]), "terms": _terms_of(group, numbers)}
    names = {"ids": [group.ids[number] for number in numbers.tolist()]}
    for kind, named in NAMED.items():
        if named[0] in columns:
            places = np.stack([columns[name] for name in named])
            used = ascending(places.ravel() + 1) - 1
            of_kind = list(known[kind])  # in order of their numbers
            names[kind] = [of_kind[number] for number in used.tolist() if number >= 0]
            local = np.searchsorted(used, places) + int(used[:1].min(initial=0) >= 0)
            columns |= zip(named, map(narrowed, local), strict=True)  # 0 is none
    return Batch(columns, names)


def _terms_of(group: Documents, numbers: Numbers) -> Ints:
    """The terms of the documents *numbers*, end to end."""
    lengths = group.columns["lengths"].view().astype(np.int64)
    begins, taken = (np.cumsum(lengths) - lengths)[numbers], lengths[numbers]
    first = int(begins[0]) if len(begins) else 0
    gaps = np.repeat(begins - first - (np.cumsum(taken) - taken), taken)
    return np.array(group.terms[first:], np.int32)[gaps + np.arange(len(gaps))]


def _nodes(corpus: Corpus, kind: Any, numbers: Numbers) -> Batch:
    """The documents *numbers* of nodes, with their changesets and the ids of steps behind each."""
    group, batch = corpus.nodes[kind], _columns(corpus, corpus.nodes[kind], numbers)
    pairs = corpus.behind.get(kind)
    steps = pairs.steps_of({*numbers.tolist()}, corpus.steps) if pairs is not None else {}
    behind = [sorted(steps.get(number, ())) for number in numbers.tolist()]
    counts = narrowed(np.array([len(ids) for ids in behind], np.int64))
    names = {
        "origins": [group.origins.get(number, "") for number in numbers.tolist()],
        "behind": [id for ids in behind for id in ids],
    }
    return Batch({**batch.columns, "behind": counts}, {**batch.names, **names})


# ── What kept ones were ───────────────────────────────────────────────────────────────


def take_up(
    corpus: Corpus,
    stored: Sequence[bytes],
    nodes: Mapping[str, Node],
    reading: str,
    after: FeedCursor,
) -> tuple[Head | None, int, bool]:
    """
    Append the documents of *stored* segments, which owe their vectors, as far as they follow on
    *after* and one another and were made by this *reading*; the last one's head, how many they
    were, and whether the next one was made by another reading.
    """
    heads, all_batches, is_foreign = list[Head](), list[Batches](), False
    for one in stored:
        try:
            head, batches = unpacked(one)
            _check_nodes(batches, nodes)
        except ValueError as error:
            log.warning("a part of the index is read anew: %s", error)
            break
        is_foreign = head.reading != reading
        if is_foreign or head.after != (heads[-1].until if heads else after):
            break
        heads.append(head)
        all_batches.append(batches)
    for batches in _without_replaced(all_batches):
        for kind, batch in batches.items():
            if kind == "steps":
                _restore_steps(corpus, batch)
            else:
                _restore_nodes(corpus, kind, batch, nodes)
    return heads[-1] if heads else None, len(heads), is_foreign


def restore_others(corpus: Corpus, large: Sequence[Segment], nodes: Mapping[str, Node]) -> None:
    """Append the documents of large segments that are held in memory, if *nodes* has them."""
    for batches in _without_replaced([one.others for one in large]):
        for kind, batch in batches.items():
            there = np.array([id in nodes for id in batch.names["ids"]], np.bool_)
            _restore_nodes(corpus, kind, batch if there.all() else those(batch, there), nodes)


def lies_between(chain: Chain, after: FeedCursor, one: FeedCursor, until: FeedCursor) -> bool:
    """Whether what *chain* has up to *one* is what it has up to *after*, or more up to *until*."""
    is_nodes = chain == "nodes"
    ends = [(end.revision,) if is_nodes else (end.step, end.message) for end in (after, one, until)]
    return all(a <= b <= c for a, b, c in zip(*ends, strict=True))


def reached(ends: Sequence[FeedCursor], removal: int, vector: int) -> FeedCursor:
    """
    Where the feed is to be read on from behind what chains hold that end at *ends*, of which
    everything is gone up to *removal*, and vectors up to *vector* are known.
    """
    whole = FeedCursor(*map(max, *map(astuple, (_START, *ends))))
    return replace(whole, removal=removal, vector=vector)


def _check_nodes(batches: Batches, nodes: Mapping[str, Node]) -> None:
    ids = (id for kind, batch in batches.items() if kind != "steps" for id in batch.names["ids"])
    if missing := {*ids}.difference(nodes):
        raise ValueError(f"nodes that are not there: {sorted(missing)[:3]}")


def _without_replaced(all_batches: Sequence[Batches]) -> list[Batches]:
    """*all_batches* without the documents of nodes that a later one has anew."""
    found, later = list[Batches](), set[str]()
    for batches in reversed(all_batches):
        found.append(without(batches, later) if later else batches)
        later.update(*(one.names["ids"] for kind, one in batches.items() if kind != "steps"))
    return found[::-1]


def _restore_steps(corpus: Corpus, batch: Batch) -> None:
    steps, columns = corpus.steps, dict(batch.columns)
    columns |= {name: np.full(len(batch), value) for name, value in _OF_SIDES.items()}
    columns["last"] = columns["first"]
    added = _appended(steps, replace(batch, columns=columns))
    for (number, id), side in breathed(zip(added, columns["acted"].tolist(), strict=True)):
        for step in steps.repeats.get(id, ()):
            steps.join(step, [number])
        for behind in corpus.behind.values():
            behind.arrived(id, number)
        _owe(corpus, steps, number, f"{id}/{PARTS[side]}")
    for id, message, session, born in batch.repeats:
        if message:
            steps.add_repeat(id, message, session, born)
        else:
            steps.unread[session] = id


def _restore_nodes(corpus: Corpus, kind: Any, batch: Batch, nodes: Mapping[str, Node]) -> None:
    group, names, breather = corpus.nodes[kind], batch.names, Breather()
    for id in group.documents.keys() & {*names["ids"]}:
        for key in vector_keys([id]):
            corpus.owed.take(key)
        group.end(group.documents[id])
    counts, steps = batch.columns["behind"].tolist(), iter(names["behind"])
    added = zip(_appended(group, batch), counts, names["origins"], strict=True)
    for (number, id), count, origin in added:
        node = group.nodes[number] = replace(nodes[id], vector=None)
        group.texts += NODE + getsizeof(node.text)
        if origin:
            group.origins[number] = origin
        if (pairs := corpus.behind.get(kind)) is not None:
            pairs.add(number, islice(steps, count), corpus.steps)
        if isinstance(node, Intent):
            bare = Document(key=id, id=id, text="", meaning="", node=node)
            corpus.put_wordings(node, bare, breather)
        _owe(corpus, group, number, id)


def _appended(group: Documents, batch: Batch) -> list[tuple[int, str]]:
    """Append the columns, terms and ids of *batch*; give the numbers with the ids."""
    names, columns = batch.names, dict(batch.columns)
    numbered: dict[str, Any] = {"metadata": group.facets.number_of}
    if isinstance(group, Steps):
        numbered |= {"chains": group.sessions.__getitem__, "actors": group.actors.__getitem__}
    for kind, number_of in numbered.items():
        known = np.array([-1, *map(number_of, names[kind])], np.int32)
        columns |= {name: known[columns[name]] for name in NAMED[kind]}
    columns |= {name: np.full(len(batch), value) for name, value in _FRESH.items()}
    for name, column in group.columns.items():
        column.extend(columns[name])
    number = group.lexicon.numbers
    terms = [-1, *(number.setdefault(term, len(number)) for term in names["terms"])]
    group.terms.frombytes(np.array(terms, np.int32)[columns["terms"]].tobytes())
    ids = [*names["ids"]]
    added = [*enumerate(ids, group.count)]
    group.ids += ids
    group.nodes += [None] * len(ids)
    group.living += len(ids)
    for document, id in added:
        group.documents[id] = (*group.documents.get(id, ()), document)
    return added


def _owe(corpus: Corpus, group: Documents, number: int, key: str) -> None:
    """Wait for the vectors of a document."""
    for passage in range(int(group.columns["passages"].view()[number])):
        corpus.owed.add(passage_key(key, passage), Debt(group, number, passage, None))
