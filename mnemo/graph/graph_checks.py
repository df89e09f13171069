"""What the rows of a graph agree on: in a store, and as records of an archive that are staged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mnemo.store.archive import StagedRule
from mnemo.store.archive_rows import Kind
from mnemo.store.check import OF_REPO, Rule, absent, misshapen
from mnemo.store.table import ARRIVAL
from mnemo.store.tables import CHANGESETS, EDGES, NODES, VECTORS
from mnemo.store.tx import Tx
from mnemo.values.archive import ArchiveHead
from mnemo.values.fields import count
from mnemo.values.graph import ENDS
from mnemo.values.lookup import lookup_keys
from mnemo.values.vectors import owner_of_vector

_DOCUMENT = "CASE WHEN v.key LIKE '%#_' THEN substr(v.key, 1, length(v.key) - 2) ELSE v.key END"
_OWNER = f"""
CASE WHEN {_DOCUMENT} LIKE '%/observation' THEN substr(v.key, 1, length({_DOCUMENT}) - 12)
     WHEN {_DOCUMENT} LIKE '%/action' THEN substr(v.key, 1, length({_DOCUMENT}) - 7)
     ELSE {_DOCUMENT} END
"""
_NUMBER = f"CASE WHEN v.key LIKE 'message-%' THEN CAST(substr({_OWNER}, 9) AS BIGINT) END"
_DANGLING = f"""
vectors AS v WHERE {absent("nodes n", f"n.repo = v.repo AND n.id IN (v.key, {_OWNER})")}
AND {absent("steps t", f"t.repo = v.repo AND t.node_id = {_OWNER} AND t.gone = 0")}
AND {absent("messages m", f"m.repo = v.repo AND m.no = {_NUMBER}")}
"""
_END = "no = e.{} AND $also repo = e.repo"

RULES: tuple[Rule, ...] = (
    ("vectors whose node, step or message is gone", "v.key", _DANGLING),
    misshapen("vectors", "v.key", f"vectors {OF_REPO}", "r.space_dimensions"),
    misshapen("staged vectors", "v.key", f"moving {OF_REPO}", "r.next_space_dimensions"),
    (
        "edges whose end is gone",
        "e.kind",
        "edges e WHERE "
        + " OR ".join(absent("nodes", _END.format(end)) for end in ("source", "target")),
    ),
    (
        "committed steps without their node",
        "t.node_id",
        f"""steps t WHERE t.committed = 1 AND t.gone = 0
        AND {absent("nodes n", "n.repo = t.repo AND n.id = t.node_id")}""",
    ),
)


def _of_its_space(row: Sequence[Any], head: ArchiveHead) -> None:
    dimensions = head.space.dimensions if head.space else 0
    if len(row[1]) != 4 * dimensions:
        raise ValueError(f"the vector has {len(row[1]) // 4} dimensions, not {dimensions}")


KINDS = (
    Kind(
        "node",
        NODES,
        by="d.no",
        more={"revision": ("INTEGER NOT NULL", count)},
        parts=("keys", "node", "key", lookup_keys),
    ),
    Kind(
        "edge",
        EDGES,
        source="nodes source $join edges d ON d.repo = source.repo AND d.source = source.no "
        "$join nodes target ON target.no = d.target AND $also target.repo = d.repo",
        by="source.no",
        order="source.no, d.target, d.kind",
    ),
    # Messages have other numbers where they are imported: recall embeds them anew.
    Kind(
        "vector",
        VECTORS,
        where="AND d.key NOT LIKE 'message-%'",
        order="d.seq",
        fits=_of_its_space,
        found_by={"owner": "TEXT", "is_side": "INTEGER"},
        find=lambda row, _: owner_of_vector(row[0]),
    ),
    Kind("changeset", CHANGESETS, order=f"d.{ARRIVAL}"),
)

_ALLOWED = ", ".join(
    f"('{kind}', '{source}', '{target}')"
    for kind, pairs in ENDS.items()
    for source, target in sorted(pairs)
)
INDEX = "CREATE INDEX staging.nodes_id ON nodes (id)"
STAGED: tuple[StagedRule, ...] = (
    (
        "it is committed, but its node is not in the archive",
        """SELECT t.line FROM staging.steps t WHERE t.committed = 1 AND t.gone = 0 AND NOT EXISTS
           (SELECT 1 FROM staging.nodes n WHERE n.id = t.node_id) ORDER BY t.n""",
    ),
    (
        "an end of the edge is of a type that it cannot join",
        f"""SELECT e.line FROM staging.edges e
            $join staging.nodes a ON a.id = e.source $join staging.nodes b ON b.id = e.target
            WHERE e.source = e.target OR (e.kind, a.type, b.type) NOT IN (VALUES {_ALLOWED})
            ORDER BY e.n""",
    ),
    (
        "what the vector is of is not in the archive, or gone",
        """SELECT v.line FROM staging.vectors v
           WHERE NOT EXISTS (SELECT 1 FROM staging.nodes n WHERE n.id IN (v.key, v.owner))
           AND NOT EXISTS (SELECT 1 FROM staging.steps t WHERE t.node_id = v.owner
                           AND v.is_side = 1 AND t.gone = 0) ORDER BY v.n""",
    ),
)

MOVE = """
INSERT INTO node_keys (repo, key, node)
SELECT DISTINCT :repo, key, :nodes + node FROM staging.keys ORDER BY 2, 3
"""


def drop_dangling(tx: Tx) -> list[str]:
    """Delete the vectors of what is gone, of all repositories; give what was done."""
    dropped = tx.run(f"DELETE FROM {_DANGLING}").rowcount
    return [f"{dropped} vectors whose node, step or message is gone"] if dropped else []
