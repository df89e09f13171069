"""What a distributed engine asks of statements, told from the trees of PostgreSQL's own parser."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pytest

pg_query = pytest.importorskip("pg_query")  # not for every Python
MessageToDict = pytest.importorskip("google.protobuf.json_format").MessageToDict

PgQueryError: type[Exception] = pg_query.PgQueryError
Node: TypeAlias = Mapping[str, Any]


def parsed(script: str) -> list[tuple[str, Node]]:
    """Kind and tree of each statement. *Raises* ``PgQueryError``: it is not PostgreSQL's SQL."""
    tree = MessageToDict(pg_query.parse(script), preserving_proto_field_name=True)
    return [kind for each in tree.get("stmts", ()) for kind in each["stmt"].items()]


@dataclass
class Found:
    """
    What a statement does: its *faults*, and the parameters that say whose rows are meant, by
    number from 1.
    """

    faults: list[str] = field(default_factory=list)
    places: set[int] = field(default_factory=set)


@dataclass
class Scope:
    """The distributed tables of a query by alias, those *bound* to one shard, and what is local."""

    local: frozenset[str]
    outer: Scope | None = None
    is_condition: bool = False
    tables: dict[str, str] = field(default_factory=dict)
    bound: set[str] = field(default_factory=set)


class Checker:
    """
    Finds tables of which a statement does not say whose rows it means.

    *distributed*: Tables by name, each with the column that holds its repository. A table is bound
    where that equals a value, is among values, or equals that of one that is bound. *colocated*:
    A query may be of all shards, but joins nothing of another one: its first table counts as bound.
    """

    def __init__(self, distributed: Mapping[str, str], *, colocated: bool = False) -> None:
        self._distributed = distributed
        self._colocated = colocated

    def look(self, statement: str) -> Found:
        """Look at *statement*, in PostgreSQL's spelling."""
        found = Found()
        for kind, tree in parsed(statement):
            self._statement(kind, tree, None, frozenset(), found)
        return found

    def _statement(
        self,
        kind: str,
        tree: Node,
        outer: Scope | None,
        local: frozenset[str],
        found: Found,
        *,
        is_condition: bool = False,
    ) -> None:
        for each in tree.get("with_clause", {}).get("ctes", ()):
            common = each["common_table_expr"]
            ((of, query),) = common["ctequery"].items()
            self._statement(of, query, outer, local, found)
            local |= {common["ctename"]}
        scope = Scope(local, outer, is_condition)
        if kind == "select_stmt" and tree.get("op", "SETOP_NONE") != "SETOP_NONE":
            for side in ("larg", "rarg"):
                self._statement(kind, tree[side], outer, local, found, is_condition=is_condition)
        elif kind == "select_stmt":
            self._level(scope, tree.get("from_clause", ()), tree.get("where_clause"), found)
            self._within(_without(tree, "from_clause", "where_clause"), scope, found)
        elif kind in ("update_stmt", "delete_stmt"):
            more = (*tree.get("from_clause", ()), *tree.get("using_clause", ()))
            sources = [{"range_var": tree["relation"]}, *more]
            self._level(scope, sources, tree.get("where_clause"), found)
            self._within([tree.get("target_list"), tree.get("returning_list")], scope, found)
            column = self._distributed.get(tree["relation"]["relname"])
            changed = [each["res_target"].get("name") for each in tree.get("target_list", ())]
            if column in changed:
                found.faults.append(f"{tree['relation']['relname']}: a row changes its shard")
        elif kind == "insert_stmt":
            self._insert(tree, scope, found)

    def _insert(self, tree: Node, scope: Scope, found: Found) -> None:
        table = tree["relation"]["relname"]
        if column := self._column(tree["relation"], scope):
            names = [each["res_target"]["name"] for each in tree.get("cols", ())]
            if column not in names:
                found.faults.append(f"{table}: a row is inserted without its {column}")
            else:
                self._note_inserted(tree, names.index(column), found)
            elements = tree.get("on_conflict_clause", {}).get("infer", {}).get("index_elems", ())
            if elements and column not in [e["index_elem"].get("name") for e in elements]:
                found.faults.append(f"{table}: a conflict is looked for without its {column}")
        self._within([tree.get("select_stmt"), tree.get("returning_list")], scope, found)

    def _note_inserted(self, tree: Node, place: int, found: Found) -> None:
        query = tree["select_stmt"]["select_stmt"]
        rows = [row["list"]["items"] for row in query.get("values_lists", ())]
        rows += [[one["res_target"]["val"] for one in query.get("target_list", ())]]
        found.places.update(number for row in rows if row for number in _parameters(row[place]))

    def _column(self, relation: Node, scope: Scope) -> str | None:
        name = relation["relname"]
        is_own = relation.get("schemaname") != "pg_temp" and name not in scope.local
        return self._distributed.get(name) if is_own else None

    def _level(self, scope: Scope, sources: Sequence[Node], where: Any, found: Found) -> None:
        conditions, inner = [where], list[Any]()
        for source in sources:
            self._enter(source, scope, conditions, inner)
        parts = [part for one in conditions if one for part in _conjuncts(one)]
        if self._colocated and not scope.is_condition and scope.tables:
            scope.bound.add(next(iter(scope.tables)))
        while sum(self._binds(part, scope, found) for part in parts):
            pass
        found.faults += [
            f"{table} {alias}: whose rows are meant is not said"
            for alias, table in scope.tables.items()
            if alias not in scope.bound
        ]
        for query in _of_kind(inner, "select_stmt", nested=False):
            self._statement("select_stmt", query, scope, scope.local, found)
        self._within(parts, scope, found)

    def _enter(self, source: Node, scope: Scope, conditions: list[Any], inner: list[Any]) -> None:
        ((kind, node),) = source.items()
        if kind == "join_expr":
            for side in ("larg", "rarg"):
                self._enter(node[side], scope, conditions, inner)
            conditions.append(node.get("quals"))
        elif kind != "range_var":
            inner.append(node)
        elif self._column(node, scope):
            scope.tables[node.get("alias", {}).get("aliasname", node["relname"])] = node["relname"]

    def _binds(self, part: Node, scope: Scope, found: Found) -> bool:
        """Whether the condition *part* binds one more table."""
        before = len(scope.bound)
        expression, link = part.get("a_expr", {}), part.get("sub_link", {})
        if [_name(one) for one in expression.get("name", ())] == ["="]:
            sides = [expression["lexpr"], expression["rexpr"]]
            for one, other in (sides, sides[::-1]):
                self._bind(one, other, scope, found)
        if link.get("sub_link_type") == "ANY_SUBLINK":
            self._bind(link["testexpr"], link["subselect"], scope, found)
        return len(scope.bound) > before

    def _bind(self, one: Node, other: Node, scope: Scope, found: Found) -> None:
        alias = self._owner(one, scope)
        if alias is None or alias in scope.bound:
            return
        if "column_ref" in other:
            level: Scope | None = scope
            while level is not None and (owner := self._owner(other, level)) is None:
                level = level.outer
            if level is not None and owner in level.bound:
                scope.bound.add(alias)
        elif not any(_of_kind(other, "column_ref")):
            scope.bound.add(alias)
            found.places.update(_parameters(other))

    def _owner(self, node: Node, scope: Scope) -> str | None:
        """The alias of the table whose distribution column *node* is."""
        names = [_name(one) for one in node.get("column_ref", {}).get("fields", ())]
        if len(names) == 2:
            table = scope.tables.get(names[0], "")
            return names[0] if self._distributed.get(table) == names[1] else None
        fitting = (a for a, t in scope.tables.items() if [self._distributed[t]] == names)
        return next(fitting, None)

    def _within(self, node: Any, scope: Scope, found: Found) -> None:
        """Look at the queries within expressions."""
        for query in _of_kind(node, "select_stmt", nested=False):
            self._statement("select_stmt", query, scope, scope.local, found, is_condition=True)


def _name(node: Node) -> str:
    return str(node.get("string", {}).get("sval", ""))


def _without(tree: Node, *keys: str) -> Node:
    return {key: value for key, value in tree.items() if key not in (*keys, "with_clause")}


def _conjuncts(condition: Node) -> Iterator[Node]:
    expression = condition.get("bool_expr", {})
    if expression.get("boolop") == "AND_EXPR":
        for each in expression["args"]:
            yield from _conjuncts(each)
    else:
        yield condition


def _of_kind(node: Any, kind: str, *, nested: bool = True) -> Iterator[Node]:
    if isinstance(node, Mapping):
        if kind in node:
            yield node[kind]
            if not nested:
                return
        for value in node.values():
            yield from _of_kind(value, kind, nested=nested)
    elif isinstance(node, Sequence) and not isinstance(node, str):
        for value in node:
            yield from _of_kind(value, kind, nested=nested)


def _parameters(node: Node) -> Iterator[int]:
    return (int(one["number"]) for one in _of_kind(node, "param_ref"))
