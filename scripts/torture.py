"""
Run one hostile script over several memories, and write who loses what.

Each peer runs in an environment and in processes of its own (``torture_peer.py``), at its default
setting and at its most durable one, where it has one. What a peer has no call for is "not
supported", apart from what it lost. Intervals are Wilson's, at 95 %.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from statistics import median
from time import monotonic, perf_counter
from typing import Any

from bench_kit import Words, headline, machine, percentile
from bench_peers import PEERS, ROOT, PeerFailed, environment
from torture_kit import (
    CannotAsk,
    Nursery,
    Outcome,
    PeerError,
    Subject,
    Worker,
    missing,
    new_folder,
    small_disk,
)

KEPT = ROOT / "scripts" / "torture.json"


@dataclass(frozen=True)
class Sizes:
    """How much of each part is done."""

    kills: int = 200
    rounds: int = 5
    adds: int = 100
    many: int = 10_000
    limit_s: float = 900


QUICK = Sizes(kills=3, rounds=1, adds=12, many=40)
WORDS = Words(11)


def token() -> str:
    """A word that no other text has."""
    return "zq" + "".join(random.choices("bdfgkmprtvxz", k=10))


def numbered(prefix: str, count: int) -> list[tuple[str, str]]:
    """Ids, and texts that differ from all others."""
    return [(f"{prefix}-{n}", f"{token()} {WORDS.sentence()}") for n in range(count)]


# ── The script ───────────────────────────────────────────────────────────────────────


def kills(subject: Subject, sizes: Sizes) -> Outcome:
    """Killed while it adds: what had been acknowledged is there when it is opened again."""
    out, until = Outcome(), monotonic() + sizes.limit_s
    while out.tries < sizes.kills and monotonic() < until:
        with new_folder() as folder:
            _killed_often(subject, folder, min(25, sizes.kills - out.tries), until, out)
    return out


def _killed_often(subject: Subject, folder: Path, count: int, until: float, out: Outcome) -> None:
    """Kill it so often in one folder; each time it is opened again shows what the last one cost."""
    acknowledged = list[str]()
    for number in range(count + 1):
        worker = None
        try:
            worker = subject.open(folder)
            stored = worker.ask("texts") if number else []
        except PeerError as error:
            if worker is not None:
                worker.end()
            return out.count("does not open again", error)
        gone = missing(acknowledged, stored)
        if number:
            out.count(
                "lost acknowledged adds" if gone else None, f"{len(gone)} adds" if gone else None
            )
        if number == count or monotonic() > until:
            return worker.end()
        acknowledged = [*stored, *_killed(worker, numbered(f"k{number}", 60))]
    return None


def _killed(worker: Worker, adds: Sequence[tuple[str, str]]) -> list[str]:
    """The texts that were acknowledged before the kill, at a chance moment of many adds."""
    for add in adds:
        worker.send("add", *add)
    answers = worker.replies(len(adds))
    said = list(islice(answers, random.randint(1, 20)))
    threading.Event().wait(random.uniform(0, 0.01))
    worker.kill()
    said += answers
    return [text for (_, text), error in zip(adds, said, strict=False) if error is None]


def two_processes(subject: Subject, sizes: Sizes) -> Outcome:
    """Two processes add to one store at once: what each was told is stored is there."""
    out = Outcome()
    for _ in range(sizes.rounds):
        with new_folder() as folder, ExitStack() as stack:
            with subject.opened(folder) as first:
                first.ask("add", "seed", "The first text makes the files.")
            one = stack.enter_context(subject.opened(folder))
            try:
                other = stack.enter_context(subject.opened(folder))
            except PeerError as error:
                out.count("refused to open", error)
                continue
            acknowledged = _added((one, other), sizes.adds, out)
            stack.close()
            try:
                gone = set(missing(acknowledged, subject.stored(folder)))
            except PeerError as error:
                out.count("does not open again", error)
                continue
            for text in acknowledged:
                out.count("lost" if text in gone else None)
    return out


def _added(workers: Sequence[Worker], count: int, out: Outcome) -> list[str]:
    """What workers that add at once acknowledged; errors are counted."""
    given = {worker: numbered(f"w{n}", count) for n, worker in enumerate(workers)}
    for turn in zip(*given.values(), strict=True):
        for worker, add in zip(workers, turn, strict=True):
            worker.send("add", *add)
    acknowledged = list[str]()
    for worker, adds in given.items():
        for (_, text), error in zip(adds, worker.replies(count), strict=False):
            if error is None:
                acknowledged.append(text)
            else:
                out.count("told as an error", error)
    return acknowledged


def seen_by_other(subject: Subject, sizes: Sizes) -> Outcome:
    """A process that is open finds by search what another has just been told is stored."""
    out = Outcome()
    with new_folder() as folder, subject.opened(folder) as writer:
        writer.ask("add", "seed", "The first text makes the files.")
        writer.ask("settle")
        try:
            with subject.opened(folder) as reader:
                reader.ask("search", "the first text")
                for id, text in numbered("s", sizes.adds):
                    writer.ask("add", id, text)
                    found = reader.ask("search", text)
                    out.count(None if id in found else "not found")
        except PeerError as error:
            out.count("refused to open", error)
    return out


def reader(subject: Subject, sizes: Sizes) -> Outcome:
    """A process that lists while another adds: each list has all that was acknowledged before."""
    out = Outcome()
    with new_folder() as folder, subject.opened(folder) as writer:
        writer.ask("add", "seed", "The first text makes the files.")
        try:
            with subject.opened(folder) as looking:
                adds = numbered("r", 2 * sizes.adds)
                for add in adds:
                    writer.send("add", *add)
                acknowledged = list[str]()
                for (_, text), error in zip(adds, writer.replies(len(adds)), strict=False):
                    if error is not None:
                        out.count("an add failed", error)
                        continue
                    acknowledged.append(text)
                    if len(acknowledged) % 10 == 0:
                        _looked(looking, acknowledged, out)
        except PeerError as error:
            out.count("refused to open", error)
    return out


def _looked(looking: Worker, acknowledged: Sequence[str], out: Outcome) -> None:
    try:
        gone = missing(acknowledged, looking.ask("texts"))
    except PeerError as error:
        out.count("a list failed", error)
    else:
        out.count("a list lacked some" if gone else None)


def full_disk(subject: Subject, sizes: Sizes) -> Outcome:
    """The disk fills while it adds, and is freed: nothing acknowledged is lost, adds go on."""
    out, refused, until = Outcome(), 0, monotonic() + sizes.limit_s
    while out.tries < sizes.rounds and monotonic() < until:
        with small_disk() as (folder, fill, how):
            with subject.opened(folder) as worker:
                acknowledged, _ = _added_slowly(worker, "before")
                fill(worker, True)
                more, errors = _added_slowly(worker, "full")
                refused += len(errors)
                fill(worker, False)
                last, errors = _added_slowly(worker, "after")
            try:
                gone = missing(acknowledged + more + last, subject.stored(folder))
            except PeerError as error:
                out.count("does not open again", error)
                continue
            wrong = "lost acknowledged adds" if gone else "needs a restart" if errors else None
            out.count(wrong, errors[0] if errors else None)
    out.note = "; ".join(filter(None, (f"{how}, {refused} adds refused", out.note)))
    return out


def _added_slowly(worker: Worker, prefix: str) -> tuple[list[str], list[PeerError]]:
    """What it acknowledged of some long texts, and its errors, of which three are enough."""
    acknowledged, errors = list[str](), list[PeerError]()
    for id, text in numbered(prefix, 20):
        try:
            worker.ask("add", id, long := f"{text} " * 20)
            acknowledged.append(long)
        except PeerError as error:
            errors.append(error)
            if len(errors) == 3:
                break
    return acknowledged, errors


def erased(subject: Subject, sizes: Sizes) -> Outcome:
    """A text is deleted and the memory closed: its bytes are in no file of the folder."""
    out = Outcome()
    for _ in range(sizes.rounds):
        with new_folder() as folder:
            secret = token()
            with subject.opened(folder) as worker:
                for add in numbered("e", 30):
                    worker.ask("add", *add)
                worker.ask("add", "doomed", f"The password is {secret} for now.")
                worker.ask("settle")
                worker.ask("delete", "doomed")
            left = _holding(folder, secret)
            listed = any(secret in text for text in subject.stored(folder))
            wrong = "listed again" if listed else "bytes left" if left else None
            out.count(wrong, f"in {', '.join(left)}" if left else None)
    return out


def _holding(folder: Path, secret: str) -> list[str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return [path.name for path in files if secret.encode() in path.read_bytes()]


def twice(subject: Subject, sizes: Sizes) -> Outcome:
    """The same add, with the same id, is repeated, as after a timeout: it is stored once."""
    out = Outcome()
    with new_folder() as folder:
        adds = numbered("t", sizes.adds)
        with subject.opened(folder) as worker:
            for add in adds:
                worker.ask("add", *add)
                try:
                    worker.ask("add", *add)
                except PeerError as error:
                    out.count("told as an error", error)
        stored = Counter(subject.stored(folder))
        for _, text in adds[out.tries :]:
            out.count(None if stored[text] == 1 else "twice" if stored[text] else "lost")
    return out


def at_once(subject: Subject, sizes: Sizes) -> Outcome:
    """Asked for right after the acknowledgement, in the same process: it is found."""
    out = Outcome()
    with new_folder() as folder, subject.opened(folder) as worker:
        for id, text in numbered("o", sizes.adds):
            worker.ask("add", id, text)
            found = worker.ask("search", text)
            out.count(None if id in found else "not found")
    return out


def many(subject: Subject, sizes: Sizes) -> Outcome:
    """Many adds one after the other: found by four of their words, and what that costs."""
    out, took = Outcome(), list[float]()
    words = Words(11)  # each memory is given and asked the same
    texts = [(f"m-{n}", words.sentence()) for n in range(sizes.many)]
    with new_folder() as folder, subject.opened(folder) as worker:
        began, done = perf_counter(), 0
        for start in range(0, len(texts), 20):
            for add in texts[start : start + 20]:
                worker.send("add", *add)
            done += sum(error is None for error in worker.replies(len(texts[start : start + 20])))
            if perf_counter() - began > sizes.limit_s:
                break
        rate, load = done / (perf_counter() - began), os.getloadavg()[0]
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6
        out.note = f"{done:,} adds at {rate:,.0f}/s at load {load:.1f}, {size:,.0f} MB"
        try:
            worker.ask("settle")
            told = [add for add in texts[:done] if len(words.telling(add[1])) >= 4]
            for id, text in random.Random(3).sample(told, min(50, len(told))):
                worker.send("search", words.question(text))
                answer = worker.reply()
                took.append(answer["ms"])
                out.count(None if id in answer["value"] else "not found")
        except CannotAsk:
            out.note += "; no search"
            return out
    out.note += f"; a search p50 {median(took):.1f} ms, p95 {percentile(took, 0.95):.1f} ms"
    return out


NAMES = ("Ana", "Bruno", "Carla", "Dmitri", "Esra", "Felix", "Greta", "Hugo", "Ines", "Jonas")
PLACES = ("Porto", "Lisbon", "Oslo", "Vienna", "Madrid", "Prague", "Dublin", "Zurich", "Milan")
CHANGES = {
    "lives in": ("{0} lives in {1}.", "{0} lives in {1} now.", "Where does {0} live?"),
    "moved to": ("{0} lives in {1}.", "{0} has moved to {1}.", "Where does {0} live?"),
}


def changed(subject: Subject, sizes: Sizes) -> Outcome:
    """A fact is told, then told anew; asked for, without a model, the new one stands first."""
    out = Outcome()
    with new_folder() as folder, subject.opened(folder) as worker:
        for way, (before, after, question) in CHANGES.items():
            people = [f"{name}{way[0].upper()}" for name in NAMES][: sizes.adds]
            for person in people:
                worker.ask("add", f"{person} old", before.format(person, random.choice(PLACES[:4])))
            for id, text in numbered(way.replace(" ", "-"), 20):
                worker.ask("add", id, text)
            for person in people:
                worker.ask("add", f"{person} new", after.format(person, random.choice(PLACES[4:])))
            worker.ask("settle")
            for person in people:
                found = worker.ask("search", question.format(person))
                first = next((id for id in found if id.startswith(person)), None)
                wrong = "neither found" if first is None else "the old one first"
                out.count(None if first == f"{person} new" else wrong)
    return out


NAMED = [name for name in PEERS if name != "langgraph-memory"]
"""A memory that ends with its process has nothing to lose."""

Part = Callable[[Subject, Sizes], Outcome]
PARTS: dict[str, Part] = {
    "acknowledged, then SIGKILL: all of it found": kills,
    "two processes add to one store: acknowledged and kept": two_processes,
    "… found by search in the other at once": seen_by_other,
    "lists complete while another process adds": reader,
    "the disk fills and is freed: nothing lost, goes on": full_disk,
    "deleted: its bytes in no file": erased,
    "the same add twice: stored once": twice,
    "found by search at once after the acknowledgement": at_once,
    "10,000 adds: found by four words": many,
    "a fact changed: the new one first, without a model": changed,
}


def outcome(part: Part, subject: Subject, sizes: Sizes) -> Outcome:
    """What comes of a part, which may not be supported, or fail in a way that it does not ask."""
    try:
        return part(subject, sizes)
    except CannotAsk:
        return Outcome(supported=False)
    except PeerError as error:
        return Outcome(note=f"failed: {' '.join(str(error).split())[:110]}")


# ── Rows ─────────────────────────────────────────────────────────────────────────────

Kept = dict[str, dict[str, Any]]
"""Name of a peer and its setting → versions, durability, day, machine, and what each part told."""


def tortured(name: str, python: Path, options: argparse.Namespace) -> Kept:
    """The rows of a peer: at its default, and at its most durable setting if it has one."""
    sizes = QUICK if options.quick else Sizes()
    sizes = replace(sizes, kills=options.kills or sizes.kills, limit_s=60 * options.minutes)
    rows: Kept = {}
    with closing(Nursery(name, python)) as nursery:
        for setting in ("default", "durable"):
            subject = Subject(nursery, setting)
            with new_folder() as folder, subject.opened(folder) as worker:
                told = worker.told
            if any(row["durability"] == told["durability"] for row in rows.values()):
                continue
            parts = dict(_told(subject, sizes, options.part))
            when = {"day": datetime.now(UTC).date().isoformat(), "machine": headline(machine())}
            rows[f"{name}, {setting}"] = told | when | {"parts": parts}
    return rows


def _told(subject: Subject, sizes: Sizes, words: str) -> Iterator[tuple[str, str]]:
    """What each part with these words came to."""
    for title, part in PARTS.items():
        if words in title:
            told = str(outcome(part, subject, sizes))
            print(f"{subject.nursery.name}, {subject.setting}: {title}: {told}", file=sys.stderr)
            yield title, told


def keep(rows: Kept) -> None:
    """Put rows beside those that are kept; parts that were not run stay as they were."""
    kept: Kept = json.loads(KEPT.read_text("utf-8")) if KEPT.exists() else {}
    for name, row in rows.items():
        parts = kept.get(name, {}).get("parts", {}) | row["parts"]
        kept[name] = row | {"parts": parts}
    KEPT.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", "utf-8")


def main() -> int:
    """Print what came of it; 1 if a peer could not be installed or opened."""
    parser = argparse.ArgumentParser(prog="torture", description=__doc__.split("\n\n")[0])
    parser.add_argument("peers", nargs="+", choices=NAMED, metavar="PEER", help=", ".join(NAMED))
    parser.add_argument("--quick", action="store_true", help="so little that it says nothing")
    parser.add_argument("--kills", type=int, help="instead of 200")
    parser.add_argument(
        "--minutes", type=float, default=15, help="after which kills, and many adds, end anyway"
    )
    parser.add_argument("--part", default="", metavar="WORDS", help="only parts with these words")
    parser.add_argument("--folder", type=Path, help="of the environments; else as bench_peers")
    parser.add_argument("--python", type=Path, help="run all in this one; install nothing")
    parser.add_argument("--write", action="store_true", help="into the guide's page")
    options = parser.parse_args()
    folder = options.folder or Path(os.environ.get("MNEMO_PEERS", ROOT / ".venv-peers"))
    failed, rows = 0, dict[str, dict[str, Any]]()
    for name in options.peers:
        try:
            rows |= tortured(name, options.python or environment(name, folder)[0], options)
        except (PeerFailed, PeerError) as error:
            print(f"{name} failed: {error}", file=sys.stderr)
            failed = 1
    print(json.dumps(rows, indent=1, ensure_ascii=False))
    if options.write:
        keep(rows)
        subprocess.run([sys.executable, ROOT / "scripts" / "make_guide.py"], check=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
