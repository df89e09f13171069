"""
Large stores, written by the rooms' own functions, for ``scripts/bench scale``; their segments,
asked what is least; vectors and a full text of the same texts, asked exactly.

Words follow Zipf's law, lengths are log-normal around twenty words, times cover two years; one text
in five is a fact, the others are messages of four speakers in threads. A vector is the weighted sum
of two of a bank and noise; the bank is sentences of the guide, embedded once by the default
embedder. A repository's texts depend on its number alone, so it can be made again by itself; each
has those of the one ``DISTINCT`` before it, so that many are copies of some, made in the store.
"""

from __future__ import annotations

import mmap
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from bench_kit import Words, at_once, batches, rows_of
from numpy.typing import NDArray

import mnemo
from mnemo import Config, Message, Semantic
from mnemo.conversation.log import append_drafts, drafts_of
from mnemo.conversation.scope import ThreadScope
from mnemo.graph.apply import apply_write, prepare
from mnemo.index.batches import derived, sign_bits
from mnemo.index.segments import packed, unpacked
from mnemo.log.transcript import TranscriptWriter
from mnemo.log.vectors import check_space, put_vectors
from mnemo.models.local import MiniLMEmbedder
from mnemo.protocols import GraphWrite
from mnemo.runtime.text import STOP_WORDS
from mnemo.store.rows import listed, repo_number, repo_row
from mnemo.store.schema import COLUMNS, CREATE
from mnemo.store.table import ARRIVAL
from mnemo.store.tx import Tx
from mnemo.values.codec import encode_vector
from mnemo.values.feed import message_document

Rows: TypeAlias = NDArray[np.float32]
SPACE = replace(MiniLMEmbedder.space, passage_tokens=None)
BANK, PART, FACTS = 2_000, 10_000, 5
"""Texts of the bank; texts of a repository that are drawn at once; every how manieth is a fact."""
DISTINCT, AT_ONCE = 100, 10
"""Repositories whose texts differ; times that all of these are copied in one transaction."""
NOISE, NEARNESS = 0.3, 0.5
"""Lengths of what is added to the vector of a text, and to that of a question about it."""
BEGIN, DAYS = datetime(2024, 1, 1, tzinfo=UTC), 730.0
SPEAKERS = ("Ana", "Bo", "Chen", "Dara")
_CONFIG = Config()
_NUMBERS = """
SELECT m.no FROM messages m JOIN threads t ON t.no = m.thread AND $also t.repo = m.repo
WHERE t.repo = ? AND t.id IN $texts ORDER BY m.no
"""


class ManyWords(Words):
    """A vocabulary of 50,000."""

    VOCABULARY = 50_000


class Drawn(NamedTuple):
    """Texts, how many words they have, and a vector for each."""

    texts: list[str]
    lengths: NDArray[np.int64]
    vectors: Rows


class Source:
    """Draws the texts of repositories, the same for the same number; *folder* keeps the bank."""

    def __init__(self, folder: Path) -> None:
        self._bank = _bank(folder / "bank.npy")
        words = ManyWords().commonest(ManyWords.VOCABULARY)
        self.rarity = {word: number for number, word in enumerate(words)}
        self._spelled = np.array(words, object)
        shares = np.cumsum(1 / np.arange(1, len(words) + 1))
        self._shares = shares / shares[-1]

    def parts(self, repo: int, count: int) -> Iterator[Drawn]:
        """The *count* texts of a repository."""
        for first in range(0, count, PART):
            chance = np.random.default_rng([repo % DISTINCT, first])
            yield self._drawn(min(PART, count - first), chance)

    def _drawn(self, count: int, chance: np.random.Generator) -> Drawn:
        lengths = np.clip(chance.lognormal(np.log(20), 0.6, count), 1, 200).astype(np.int64)
        words = np.searchsorted(self._shares, chance.random(lengths.sum()))
        spelled, ends = self._spelled[words].tolist(), lengths.cumsum().tolist()
        begins = [0, *ends[:-1]]
        texts = [" ".join(spelled[a:b]) + "." for a, b in zip(begins, ends, strict=True)]
        one, other = chance.integers(len(self._bank), size=(2, count))
        share = chance.uniform(0.3, 0.7, (count, 1)).astype(np.float32)
        mixed = share * self._bank[one] + (1 - share) * self._bank[other]
        return Drawn(texts, lengths, noisy(mixed, NOISE, chance))

    def questions(self, repo: int, count: int, most: int) -> list[Question]:
        """At most so many questions about texts of a repository's first part."""
        drawn = next(self.parts(repo, count))
        telling = ([w for w in text[:-1].split() if w not in STOP_WORDS] for text in drawn.texts)
        able = [(n, words[:4]) for n, words in enumerate(telling) if len(words) >= 4]
        about = [able[n] for n in np.linspace(0, len(able) - 1, min(most, len(able))).astype(int)]
        rows = drawn.vectors[[n for n, _ in about]]
        rows = noisy(rows, NEARNESS, np.random.default_rng(repo))
        return [Question(words, row) for (_, words), row in zip(about, rows, strict=True)]


class Question(NamedTuple):
    """Words that are looked up, and a vector."""

    words: list[str]
    row: Rows

    @property
    def text(self) -> str:
        """What is asked; around the words all is left out of a search."""
        return f"What was said about {' '.join(self.words)}?"


def noisy(rows: Any, size: float, chance: np.random.Generator) -> Rows:
    """Unit rows beside those of *rows*, with noise of this length added to each."""
    noise = chance.standard_normal(rows.shape, np.float32) * np.float32(size / rows.shape[1] ** 0.5)
    mixed = rows / np.linalg.norm(rows, axis=1, keepdims=True) + noise
    unit: Rows = mixed / np.linalg.norm(mixed, axis=1, keepdims=True)
    return unit


def _bank(path: Path) -> Rows:
    """The vectors of sentences of the guide, kept at *path*."""
    if not path.exists():
        pages = sorted((Path(mnemo.__file__).parent / "guide").glob("*.md"))
        said = "\n".join(page.read_text("utf-8") for page in pages).replace(". ", ".\n").split("\n")
        sentences = list(dict.fromkeys(s for s in said if len(s.split()) > 5))
        np.save(path, MiniLMEmbedder.load().embed(sentences[:BANK]))
    rows: Rows = np.load(path)
    return rows


class Given:
    """An embedder at no cost: it knows the vectors of questions, and gives any for other texts."""

    space = SPACE

    def __init__(self, questions: Sequence[Question]) -> None:
        self._rows = {question.text: question.row for question in questions}
        self._other = questions[0].row

    async def embed(
        self, texts: Sequence[str], *, kind: Literal["document", "query"] = "document"
    ) -> Rows:
        return np.array([self._rows.get(text, self._other) for text in texts], np.float32)


# ── Filling ──────────────────────────────────────────────────────────────────────────


def repo_name(number: int) -> str:
    """The id of the repository of a number."""
    return f"user {number}"


async def fill(store: Any, source: Source, repos: Sequence[int], each: int) -> None:
    """
    Write *each* texts to each of *repos* of a store that is not open yet; close it.

    If these are all from 0 to a multiple of ``DISTINCT``, the first ones are written by the rooms'
    functions, and the others are copies of their rows.
    """
    owner = await store.open()

    async def write(repo: int) -> None:
        for place, drawn in enumerate(source.parts(repo, each)):
            work = partial(_write, repo=repo_name(repo), first=place * PART, each=each, drawn=drawn)
            await store.engine.writing(work)

    is_copied = [*repos] == [*range(len(repos))] and not len(repos) % DISTINCT
    written = repos[:DISTINCT] if is_copied else repos
    try:
        for some in batches(written, max(1, PART // each)):  # which are written together
            await at_once(write, some)
        for times in batches(range(1, len(repos) // DISTINCT) if is_copied else (), AT_ONCE):
            await store.engine.writing(partial(_copy, times=times))
        await store.release(owner)
    finally:
        await store.aclose()


def definitions() -> dict[str, list[str]]:
    """The statements that make each table of the schema, with its indexes."""
    found: dict[str, list[str]] = {}
    for statement in CREATE:
        if (named := re.search(r"CREATE TABLE (\w+)|ON (\w+) \(", statement)) is not None:
            found.setdefault(named[1] or named[2], []).append(statement)
    return found


async def make_again(store: Any, tables: Sequence[str]) -> None:
    """Make *tables*, which nothing was written to or what can be made anew, of a kept store."""

    def make(tx: Tx) -> None:
        for table in tables:
            for statement in (f"DROP TABLE IF EXISTS {table}", *definitions()[table]):
                tx.run(statement)

    owner = await store.open()
    try:
        await store.engine.writing(make)
        await store.release(owner)
    finally:
        await store.aclose()


def _write(tx: Tx, repo: str, first: int, each: int, drawn: Drawn) -> None:
    at = [BEGIN + timedelta(DAYS * (first + n) / each) for n in range(len(drawn.texts))]
    messages = len(at) - len(at) // FACTS
    _say(tx, repo, first, drawn, at[:messages])
    facts = zip(drawn.texts[messages:], drawn.vectors[messages:], at[messages:], strict=True)
    _learn(tx, repo, [Semantic(t, vector=v, valid_from=a) for t, v, a in facts])


def _say(tx: Tx, repo: str, first: int, drawn: Drawn, at: Sequence[datetime]) -> None:
    writer = TranscriptWriter(tx, repo, datetime.now(UTC))
    counts, threads = drawn.lengths.tolist(), list[str]()
    said = [
        Message(
            "assistant" if n % 2 else "user",
            drawn.texts[n],
            id=f"message {first + n}",
            actor=None if n % 2 else SPEAKERS[n // 2 % len(SPEAKERS)],
            at=when,
            token_count=counts[n],
        )
        for n, when in enumerate(at)
    ]
    for some in batches(said, max(20, min(500, len(said) // 4))):
        threads.append(f"thread of {some[0].id}")
        scope = ThreadScope.stored(writer, threads[-1], _CONFIG)
        append_drafts(writer, scope, drafts_of(some, len))
    writer.flush()
    number = repo_number(tx, repo)
    rows = tx.run(_NUMBERS, (number, listed(threads))).fetchall()
    sides = ("observation", "action")
    vectors = {
        f"{message_document(no)}/{sides[n % 2]}": encode_vector(drawn.vectors[n])
        for n, (no,) in enumerate(rows)
    }
    check_space(tx, repo, SPACE, vectors.values())
    put_vectors(tx, number, vectors)


def _learn(tx: Tx, repo: str, facts: Sequence[Semantic]) -> None:
    revision, now = repo_row(tx, repo)[1], datetime.now(UTC)
    write = GraphWrite(
        changeset_id=f"changeset {revision}",
        expected_revision=revision,
        nodes=tuple(facts),
        node_ids=tuple(fact.id for fact in facts),
        space=SPACE,
    )
    apply_write(tx, repo, prepare(write, now), "", lambda _: now)


# What the columns of a copy are; a table's name stands for what is added to its numbers.
_AT = "$position(t.key, '/')"
_COPIES: Mapping[str, Mapping[str, str]] = {
    "repos": {
        "no": "t.no + {repos}",
        "id": "'user ' || (CAST(substr(t.id, 6) AS INTEGER) + {distinct} * k.value)",
    },
    "threads": {"no": "t.no + {threads}"},
    "messages": {"no": "t.no + {messages}", "thread": "t.thread + {threads}"},
    "texts": {"no": "t.no + 4 * {messages}"},
    "nodes": {"no": "t.no + {nodes}"},
    "node_keys": {"node": "t.node + {nodes}"},
    "changesets": {},
    "vectors": {
        "key": f"""CASE WHEN t.key LIKE 'message-%' THEN 'message-' ||
            (CAST(substr(t.key, 9, {_AT} - 9) AS INTEGER) + {{messages}}) || substr(t.key, {_AT})
            ELSE t.key END"""
    },
}
FILLED = frozenset(_COPIES)
"""The tables that rows are written to."""
_ORDER = {"node_keys": "t.repo, t.key", "changesets": "t.repo", "vectors": "t.seq"}
_ENDS = "SELECT min(no), max(no) FROM {} WHERE {} <= ?"
_COPY = """
INSERT INTO {} ({}) SELECT {} FROM $numbers k CROSS JOIN {} t WHERE t.{} <= ? ORDER BY k.value, {}
"""


def _copy(tx: Tx, times: Sequence[int]) -> None:
    """Copy all rows of the first ``DISTINCT`` repositories; *times*: which copies these are."""
    # Numbers that each repository counts by itself stay what they are.
    own = getattr(tx.dialect, "FOLLOWED", ())
    added: dict[str, Any] = {"distinct": DISTINCT} | dict.fromkeys(own, 0)
    for table in ("repos", "threads", "messages", "nodes"):
        if table in own:
            continue
        owner = "no" if table == "repos" else "repo"
        first, last = tx.run(_ENDS.format(table, owner), (DISTINCT,)).fetchone()
        each = last - first + 1
        numbered = "names" if own and table == "repos" else table
        begin = tx.dialect.reserve(tx, numbered, {0: len(times) * each})[0] + 1 - first
        added[table] = f"({begin} + {each} * (k.value - {times[0]}))"
    columns = {table: [c.name for c in found] for table, found in COLUMNS.items()}
    columns["repos"] += [f"{table}_no" for table in own]
    columns["texts"] = [*tx.dialect.text_columns]
    for table, changed in _COPIES.items():
        owner = "no" if table == "repos" else "repo"
        given = {owner: f"t.{owner} + {{repos}}"} | changed
        is_counted_anew = table == "vectors" and not own
        counted = ("seq", ARRIVAL) if is_counted_anew else (ARRIVAL,)
        names = [name for name in columns[table] if name not in counted]
        values = ", ".join(given.get(name, f"t.{name}") for name in names).format(**added)
        order = _ORDER.get(table, "t.no")
        statement = _COPY.format(table, ", ".join(names), values, table, owner, order)
        tx.run(statement, (listed(times), DISTINCT))
    if own:
        tx.run("INSERT INTO names (no, id) SELECT no, id FROM repos ON CONFLICT DO NOTHING")


# ── Segments, mapped by what is least ────────────────────────────────────────────────

BEST, NEAR = 200, 4_000
"""Candidates by words and by vectors; by sign bits, of which these are the nearest."""
_SEGMENTS = "SELECT no, bytes FROM segments WHERE chain = 'steps' ORDER BY repo, no, part"


def write_segments(folder: Path, store: str) -> int:
    """Write the large segments of a store as files that can be mapped; give how many."""
    count = 0
    for number, rows in groupby(rows_of(store, _SEGMENTS), key=itemgetter(0)):
        head, batches = unpacked(b"".join(bytes(row[1]) for row in rows))
        if "codes" in batches["steps"].columns:
            whole = {"steps": derived(batches["steps"])}
            (folder / f"{number}.segment").write_bytes(packed(head, whole, findable=True))
            count += 1
    return count


class Mapped:
    """A segment in a file, nothing of which is checked."""

    def __init__(self, file: Path) -> None:
        with file.open("rb") as opened:
            data = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
        self.batch: Any = unpacked(data, at_once=False)[1]["steps"]

    def __len__(self) -> int:
        return len(self.batch)

    def __getitem__(self, column: str) -> NDArray[Any]:
        array: NDArray[Any] = self.batch.columns.stored[column]._array
        return array

    def holding(self, term: int) -> slice:
        """Where the postings of a term are; -1: of none."""
        return slice(*self["begins"][term + 1 : term + 3].tolist()) if term >= 0 else slice(0)


def ask_segments(folder: Path, terms: Sequence[str], row: Rows) -> list[str]:
    """Map them, and give the ten best: BM25, and sign bits before eight bits a number."""
    parts = [Mapped(file) for file in sorted(folder.glob("*.segment"))]
    ends = np.cumsum([0, *map(len, parts)])
    lengths = np.concatenate([part["lengths"] for part in parts]).astype(np.float32)
    found = [part.batch.names["terms"].find(terms).tolist() for part in parts]
    scores, usual = np.zeros(len(lengths), np.float32), float(lengths.mean())
    for numbers in zip(*found, strict=True):
        places = [part.holding(term) for part, term in zip(parts, numbers, strict=True)]
        holding = sum(len(part["documents"][at]) for part, at in zip(parts, places, strict=True))
        idf = np.log(1 + (len(lengths) - holding + 0.5) / (holding + 0.5))
        for part, at, end in zip(parts, places, ends.tolist(), strict=False):
            documents = part["documents"][at].astype(np.int64) + end
            tf = part["counts"][at].astype(np.float32)
            scores[documents] += idf * tf * 2.2 / (tf + 0.3 + 0.9 * lengths[documents] / usual)
    away = [
        np.bitwise_count(part["signs"] ^ sign_bits((row - part["middle"])[None])).sum(0, np.uint16)
        for part in parts
    ]
    near = np.sort(best(-np.concatenate(away).astype(np.int16), NEAR))
    begins = np.cumsum([0, *map(len, away)])
    for part, begin, end, first in zip(parts, begins, begins[1:], ends.tolist(), strict=False):
        rows = near[(near >= begin) & (near < end)] - begin
        cosines = part["scales"][rows] * (part["codes"][rows].astype(np.float32) @ row)
        np.maximum.at(of_vectors := np.zeros(len(part), np.float32), part["owners"][rows], cosines)
        scores[first : first + len(part)] += of_vectors
    where = [(n, np.searchsorted(ends, n, "right") - 1) for n in best(scores, 10).tolist()]
    return [parts[part].batch.names["ids"][n - int(ends[part])] for n, part in where]


# ── Exact ────────────────────────────────────────────────────────────────────────────

_FULL_TEXT = """
CREATE VIRTUAL TABLE texts USING fts5(text, content = '', tokenize = 'porter unicode61')
"""
_BY_WORDS = f"SELECT rowid FROM texts WHERE texts MATCH ? ORDER BY rank LIMIT {BEST}"


def write_exact(folder: Path, source: Source, count: int) -> None:
    """Write vectors, and a full text, of the first *count* texts of the repository 0."""
    parts = list(source.parts(0, count))
    told = ((text,) for drawn in parts for text in drawn.texts)
    with closing(sqlite3.connect(folder / "texts.db")) as texts, texts:
        texts.execute(_FULL_TEXT)
        texts.executemany("INSERT INTO texts (text) VALUES (?)", told)
    np.save(folder / "vectors.npy", np.concatenate([drawn.vectors for drawn in parts]))


class Exact:
    """All vectors in memory, and FTS5 over the same texts."""

    def __init__(self, folder: Path) -> None:
        self._rows, self._texts = (
            np.load(folder / "vectors.npy"),
            sqlite3.connect(folder / "texts.db"),
        )

    def ask(self, words: Sequence[str], row: Rows) -> tuple[Any, list[Any]]:
        """The best by cosine, and by words."""
        query = " OR ".join(f'"{word}"' for word in words)
        return best(self._rows @ row, BEST), self._texts.execute(_BY_WORDS, (query,)).fetchall()


def best(scores: Any, most: int) -> NDArray[np.int64]:
    """The places of the highest scores, at most so many, falling."""
    some = np.argpartition(-scores, most)[:most] if most < len(scores) else np.arange(len(scores))
    found: NDArray[np.int64] = some[np.argsort(-scores[some], kind="stable")]
    return found
