"""
Fit the letter pairs that tell random letters from language: ``mnemo/english/letters.json``.

Reads ``scripts/letters.txt``. A table has, for each pair of neighbouring letters, log2 of
its probability in a family of languages over 1/26, in half bits. The family's counts are
smoothed by those of all families, and these by single letters.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import textwrap
from collections import Counter
from pathlib import Path

from mnemo.english import letters
from mnemo.english.letters import LETTERS, NEUTRAL, STEPS_PER_BIT, letter_pairs
from mnemo.runtime.text import fold

TEXT = Path(__file__).with_name("letters.txt")
TABLE = Path(letters.__file__).with_name("letters.json")
SHORTEST_KNOWN = {"Common words": 3, "Terms": 4}
"""Parts whose words are listed, and the fewest letters of one: short random words are words."""
FAMILY_WEIGHT, ALL_WEIGHT = 60, 20
"""Counts that all families, and single letters, weigh beside what was counted."""


def fitted(text: str) -> dict[str, object]:
    """What ``letters.json`` holds, from the text of ``letters.txt``."""
    parts = re.split(r"^= (.+)\n", text, flags=re.MULTILINE)[1:]
    words = {name: words_of(part) for name, part in zip(parts[::2], parts[1::2], strict=True)}
    known = {
        word
        for name, shortest in SHORTEST_KNOWN.items()
        for word in words.pop(name)
        if len(word) >= shortest
    }
    base = base_rates([word for part in words.values() for word in set(part)])
    families = {name: table(part, base) for name, part in words.items()}
    return {"families": families, "known": lines(sorted(known))}


def words_of(part: str) -> list[str]:
    """The words of *part* that are of a to z, folded; names of languages are left out."""
    said = re.sub(r"^(== |#).*\n", "", part, flags=re.MULTILINE)
    return re.findall(r"(?<![^\W_])[a-z]+(?![^\W_])", fold(said).replace("'", ""))


def base_rates(words: list[str]) -> list[list[float]]:
    """The probability of each letter behind each other, over all families."""
    counts = counted(words)
    size = len(LETTERS)
    behind = [
        1 + sum(counts[first * size + second] for first in range(size)) for second in range(size)
    ]
    single = [count / sum(behind) for count in behind]
    return smoothed(counts, [single] * size, ALL_WEIGHT)


def table(words: list[str], base: list[list[float]]) -> list[str]:
    """The rows of a family's table, one for each letter that stands before."""
    rates = smoothed(counted(words), base, FAMILY_WEIGHT)
    return ["".join(map(symbol, row)) for row in rates]


def counted(words: list[str]) -> Counter[int]:
    """How often each pair of letters stands in *words*."""
    return Counter(letter_pairs(words))


def smoothed(counts: Counter[int], prior: list[list[float]], weight: float) -> list[list[float]]:
    """The counts as probabilities of the second letter, with *weight* counts of the prior."""
    size = len(LETTERS)
    rows = [[counts[first * size + second] for second in range(size)] for first in range(size)]
    return [
        [(n + weight * p) / (sum(row) + weight) for n, p in zip(row, before, strict=True)]
        for row, before in zip(rows, prior, strict=True)
    ]


def symbol(rate: float) -> str:
    """The letter that says how much likelier *rate* is than 1/26, from A to Z."""
    steps = round(STEPS_PER_BIT * math.log2(rate * (len(LETTERS) - 1)))
    return chr(min(max(ord(NEUTRAL) + steps, ord("A")), ord("Z")))


def lines(words: list[str]) -> list[str]:
    """The words in lines that a reader can follow."""
    return textwrap.wrap(" ".join(words), 96)


def main() -> int:
    """Write the table, or say whether it is what the text gives."""
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if it differs")
    wanted = json.dumps(fitted(TEXT.read_text("utf-8")), indent=1) + "\n"
    if not parser.parse_args().check:
        TABLE.write_text(wanted, "utf-8")
        return 0
    return int(wanted != TABLE.read_text("utf-8"))


if __name__ == "__main__":
    sys.exit(main())
