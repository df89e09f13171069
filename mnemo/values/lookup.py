"""
The keys that a commit finds stored nodes by, so that its cost does not grow with the graph.

A store keeps ``lookup_keys`` of every node in an index and answers ``StoredGraph.nodes(types=…,
keys=…)`` from it. Keys say "look here", never "is the same": whoever finds a node by one still
compares.
"""

from __future__ import annotations

import unicodedata
from hashlib import blake2b

from mnemo.english import slots
from mnemo.runtime.text import one_line, plain
from mnemo.values.graph import Claim, Intent, Node, Procedural, Semantic, Tag

_LONGEST = 200


def lookup_keys(node: Node) -> tuple[str, ...]:
    """The keys of *node*; none for kinds that are only looked up by id."""
    match node:
        case Tag():
            return (label_key(node.label),)
        case Semantic():
            own = (text_key(node.proposition), *map(_bounded, slots.claim_keys(node.proposition)))
            return (*own, *_former_keys(node))
        case Procedural():
            return (text_key(node.condition, node.instruction), *_former_keys(node))
        case Intent():
            return (text_key(node.description),)
        case _:
            return ()


def _former_keys(claim: Claim) -> tuple[str, ...]:
    """Where what restates a former wording of *claim* looks for it."""
    return tuple(dict.fromkeys(map(former_key, claim.former_texts)))


def former_key(text: str) -> str:
    """The lookup key of facts and instructions that said *text* once."""
    return _bounded("<" + plain(text))


def rival_keys(text: str) -> tuple[str, ...]:
    """The lookup keys of facts that may contradict the fact *text*."""
    return tuple(map(_bounded, slots.rival_keys(text)))


def label_key(label: str) -> str:
    """What the spellings of one tag share: compatibility forms, case and blanks folded."""
    return _bounded(one_line(unicodedata.normalize("NFKC", label).casefold()))


def text_key(*parts: str) -> str:
    """What texts share that differ in case, blanks and final points only."""
    return _bounded("=" + "\n".join(plain(part) for part in parts))


def _bounded(key: str) -> str:
    """*key*, or its digest where it is so long that it would bloat an index."""
    if len(key) <= _LONGEST:
        return key
    return "#" + blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
