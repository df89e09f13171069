"""
Print a random sample of the facts that extraction makes of files, with their source texts.

With a file of labels the sample's faults are counted by kind. A line of it is the number
of a fact and its fault: ``false``, ``unclear`` (not understood alone) or ``worthless``
(not worth keeping), and a word or more for the kind: ``17 unclear whose plan``. A fact
may have several lines; one that has none is good.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

import anyio
from answers_kit import BadInput, read_talks
from bench_questions import ingest

from mnemo import Mnemo
from mnemo.repository.repository import Repository
from mnemo.runtime.text import one_line
from mnemo.testing import HashingEmbedder

FAULTS = {"false": "true", "unclear": "clear alone", "worthless": "worth keeping"}
"""Fault → what a fact without it is."""
LONGEST_SOURCE = 400
"""Characters of a source that are printed."""


@dataclass(frozen=True)
class Sampled:
    """A fact, its tags, and the texts that it rests on, each with its speaker."""

    fact: str
    tags: tuple[str, ...]
    sources: tuple[str, ...]


async def facts_of(path: Path) -> list[Sampled]:
    """
    The facts of FILE, of dialogues or of remembered messages, in order.

    Raises:
        BadInput: It is neither.
    """
    found: list[Sampled] = []
    async with Mnemo("memory:", embedder=HashingEmbedder()) as memory:
        for talk in read_talks(path):
            repo = await memory.open_repo(talk.id)
            await ingest(repo, talk)
            found += [await _sampled(repo, fact) for fact in await repo.get_nodes(["semantic"])]
    return found


async def _sampled(repo: Repository, fact: Any) -> Sampled:
    linked: list[Any] = await repo.get_linked_nodes([fact.id])
    tags = sorted(node.label for node in linked if node.type == "tag")
    said = [
        f"{step.actor} ({step.at:%Y-%m-%d}): {one_line(step.text)[:LONGEST_SOURCE]}"
        for step in linked
        if step.type == "episodic"
    ]
    return Sampled(fact.proposition, tuple(tags), tuple(said))


def sample_of(files: Sequence[Sequence[Sampled]], size: int, seed: int) -> list[Sampled]:
    """*size* facts at random, as many of each file as of the others, if it has them."""
    chance = random.Random(seed)
    shuffled = [chance.sample(facts, len(facts)) for facts in files]
    turns = zip_longest(*shuffled)
    return [fact for turn in turns for fact in turn if fact is not None][:size]


def faults_of(path: Path, size: int) -> list[tuple[int, str, str]]:
    """
    Number, fault and kind of each line of the labels in *path*.

    Raises:
        BadInput: It cannot be read, or a line is no label.
    """
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: {error}") from error
    found = []
    for line in filter(str.strip, lines):
        number, fault, *kind = line.split()
        if not (number.isdigit() and 1 <= int(number) <= size) or fault not in FAULTS:
            raise BadInput(f"{path}: no label of a fact: {line!r}")
        found.append((int(number), fault, " ".join(kind)))
    return found


def report(faults: Sequence[tuple[int, str, str]], size: int) -> Iterator[str]:
    """The share of facts without each fault, and the faults by kind."""
    for fault, good in FAULTS.items():
        wrong = {number for number, named, _ in faults if named == fault}
        yield f"{good:<14} {1 - len(wrong) / size:6.1%}  ({size - len(wrong)} of {size})"
    for (fault, kind), count in Counter((fault, kind) for _, fault, kind in faults).most_common():
        yield f"{count:4}  {fault}: {kind or '-'}"


async def main(arguments: argparse.Namespace) -> None:
    """Sample, print, and count."""
    files = [await facts_of(path) for path in arguments.files]
    sample = sample_of(files, arguments.sample, arguments.seed)
    print(f"{len(sample)} of {sum(map(len, files))} facts, seed {arguments.seed}")
    for number, one in enumerate(sample, 1):
        print(f"\n{number}. {one.fact}\n   tags: {', '.join(one.tags)}")
        print(*(f"   from {source}" for source in one.sources), sep="\n")
    if arguments.labels is not None:
        print("", *report(faults_of(arguments.labels, len(sample)), len(sample)), sep="\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--sample", type=int, default=300, help="facts that are printed")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--labels", type=Path, help="faults of the sample, one a line")
    try:
        anyio.run(partial(main, parser.parse_args()))
    except BadInput as error:
        sys.exit(str(error))
