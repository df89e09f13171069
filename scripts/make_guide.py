"""
Write the generated pages of the guide: settings, calls, events, errors, states, figures; pictures.

``--check`` writes nothing and fails when a page is stale; a test does the same.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import groupby, starmap
from operator import itemgetter
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import pictures

import mnemo.config
import mnemo.errors
import mnemo.events
from mnemo.config import Config, Settings
from mnemo.operations import OPERATIONS
from mnemo.operations import Operation as Declared
from mnemo.session.machine import Operation, destination, diagram, refusal
from mnemo.values.journal import SessionState

GUIDE = Path(__file__).parents[1] / "mnemo" / "guide"


def configuration() -> str:
    """Render all settings, section by section; sections of one kind together."""
    found: dict[type[Settings], dict[str, Settings]] = {}
    for path, section in _sections(Config(), "config"):
        found.setdefault(type(section), {})[path] = section
    return "\n\n".join(starmap(_table, found.items()))


def _table(kind: type[Settings], sections: dict[str, Settings]) -> str:
    titles = ", ".join(f"`{path}`" for path in sections)
    summary = _line(inspect.getdoc(kind) or "").partition(" (``")[0].rstrip(".")
    rows = [_setting(kind, name, sections) for name in _own_fields(kind)]
    head = ["| setting | default | range | meaning |", "|---|---|---|---|"]
    return "\n".join([f"## {titles}: {_code(summary)}", "", *head, *rows])


def _sections(section: Settings, path: str) -> Iterator[tuple[str, Settings]]:
    if _own_fields(type(section)):
        yield path, section
    for name in type(section).model_fields:
        value = getattr(section, name)
        if isinstance(value, Settings):
            yield from _sections(value, f"{path}.{name}")


def _own_fields(kind: type[Settings]) -> list[str]:
    return [
        name
        for name, field in kind.model_fields.items()
        if not (isinstance(field.annotation, type) and issubclass(field.annotation, Settings))
    ]


def _setting(kind: type[Settings], name: str, sections: dict[str, Settings]) -> str:
    values = {path.rpartition(".")[2]: _shown(getattr(one, name)) for path, one in sections.items()}
    default = next(iter(values.values()))
    if len(set(values.values())) > 1:
        default = ", ".join(f"{path} {value}" for path, value in values.items())
    cells = (
        f"`{name}`",
        default,
        _range(kind.model_fields[name]),
        _code(_meanings(kind).get(name, "")),
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _shown(value: Any) -> str:
    if isinstance(value, frozenset):
        return ", ".join(f"`{one}`" for one in sorted(value))
    return f"`{getattr(value, '__name__', None) or repr(value)}`"


def _range(field: Any) -> str:
    """The bounds of a number, or the choices of a word."""
    words = [part for part in _arguments(field.annotation) if isinstance(part, str)]
    if words:
        return ", ".join(f"`{word}`" for word in words)
    signs = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤"}
    found: dict[str, None] = {}
    for rule in _rules(field):
        for name, sign in signs.items():
            if getattr(rule, name, None) is not None:
                found[f"{sign} {getattr(rule, name):,}"] = None
    return ", ".join(found)


def _rules(field: Any) -> list[Any]:
    nested = [getattr(part, "__metadata__", ()) for part in _arguments(field.annotation)]
    flat = [*field.metadata, *(rule for rules in nested for rule in rules)]
    return [inner for rule in flat for inner in getattr(rule, "metadata", [rule])]


def _arguments(annotation: Any) -> list[Any]:
    """The parts of a union or a literal, at any depth."""
    inner = get_args(annotation)
    return [annotation, *(part for one in inner for part in _arguments(one))]


@cache
def _meanings(section: type[Settings]) -> dict[str, str]:
    """Field → the text below it, which Python itself does not keep."""
    (body,) = ast.parse(inspect.getsource(section)).body
    assert isinstance(body, ast.ClassDef)
    return {
        ast.unparse(field.target): _line(inspect.cleandoc(str(below.value.value)))
        for field, below in zip(body.body, body.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
    }


def _classes(module: ModuleType) -> list[type]:
    named = [getattr(module, name) for name in module.__all__]
    kinds = [kind for kind in named if isinstance(kind, type)]
    return sorted(kinds, key=lambda kind: inspect.getsourcelines(kind)[1])


def events() -> str:
    """Render the table of all events."""
    base = mnemo.events.Event
    rows = ["| event | fields | sent when |", "|---|---|---|"]
    for kind in _classes(mnemo.events):
        if issubclass(kind, base) and kind is not base:
            own = [name for name in kind.__dataclass_fields__ if name not in base.__annotations__]
            fields = ", ".join(f"`{name}`" for name in own)
            rows.append(f"| `{kind.__name__}` | {fields} | {_summary(kind)} |")
    return "\n".join(rows)


def errors() -> str:
    """Render the table of all errors."""
    rows = ["| error | is a | meaning |", "|---|---|---|"]
    for kind in _classes(mnemo.errors):
        if kind.__name__ != "StaleRevision":  # it never leaves mnemo
            bases = ", ".join(f"`{base.__name__}`" for base in kind.__bases__)
            rows.append(f"| `{kind.__name__}` | {bases} | {_summary(kind)} |")
    return "\n".join(rows)


def _summary(kind: type) -> str:
    return _code(_line(inspect.getdoc(kind) or ""))


def _line(text: str) -> str:
    """The first paragraph of *text* on one line."""
    return " ".join(text.split("\n\n")[0].split())


def _code(text: str) -> str:
    return text.replace("``", "`")


def operations() -> str:
    """Operations down, states across: where each leads, or why it is refused."""
    every = list(SessionState)
    lines = ["| | " + " | ".join(f"`{state}`" for state in every) + " |"]
    lines.append("|" + "---|" * (len(every) + 1))
    for operation in get_args(Operation):
        cells = " | ".join(_cell(state, operation) for state in every)
        lines.append(f"| `{operation}` | {cells} |")
    return "\n".join(lines)


def _cell(state: SessionState, operation: Operation) -> str:
    leads_to = destination(state, operation)
    return f"→ {leads_to}" if leads_to else f"`{refusal(state, operation).reason}`"


def calls(*, listed: bool) -> str:
    """Tables of the operations, those *listed* for further surfaces or the others, by owner."""
    tables: dict[str, list[str]] = {}
    for one in OPERATIONS.values():
        if bool(one.path) is listed:
            tables.setdefault(one.owner, []).append(_call(one, listed=listed))
    head = "| call | right | over HTTP | MCP tool | what it does | cancelled | refused with |"
    if not listed:
        head = "| call | what it does | cancelled | raises |"
    rule = "|" + "---|" * (head.count("|") - 1)
    return "\n\n".join(
        "\n".join([f"{'#' * (2 if listed else 3)} `{_way_to(owner)}`", "", head, rule, *rows])
        for owner, rows in tables.items()
    )


def _way_to(owner: str) -> str:
    ways = {"": "repo", "memory": "memory", "session": "session"}
    return ways.get(owner, f"repo.{owner}").replace("conversation", "conversation(…)")


def _call(one: Declared, *, listed: bool) -> str:
    own = one.function.__name__
    given = [str(p.replace(annotation=p.empty)) for p in [*one.signature.parameters.values()][1:]]
    shown = f"`{own}({', '.join(given)})`"
    surfaces = [one.right, f"`{one.method} /v1{one.path}`", f"`{one.tool}`" if one.tool else ""]
    reasons = ", ".join(f"`{reason}`" for reason in sorted(one.reasons))
    cells = [
        shown,
        *(surfaces if listed else ()),
        one.summary,
        one.cancellation.rstrip("."),
        reasons,
    ]
    return "| " + " | ".join(_code(cell).replace("|", "\\|") for cell in cells) + " |"


# ── Figures ──────────────────────────────────────────────────────────────────────────

KEPT = Path(__file__).with_name("figures.jsonl")
"""What the benches wrote with ``--keep``; the page ``scale`` has those of ``bench_scale``."""
COMMANDS = {"questions": "scripts/bench_questions FILE...", "peers": "scripts/bench_peers FILE"}
"""Begin of a row's name → what measures it; others are rows of ``scripts/bench``."""
SIMULATED = Path(__file__).with_name("simulation.json")
"""What ``scripts/simulate_scale --keep`` wrote."""
TORTURED = Path(__file__).with_name("torture.json")
"""What ``scripts/torture --write`` wrote."""
ENGINES = {"sqlite": "SQLite", "postgres": "PostgreSQL"}
PLOTTED = {
    "open and first recall": "Opening and the first recall, seconds of processor time",
    "recall: mnemo": "A recall, milliseconds of processor time",
    "private memory, each": "Private memory, bytes for each text",
    "appends: processor time of each, until it is indexed": "An append, microseconds likewise",
}
"""End of a figure's name → title of its plot."""
_SIZED = " texts: "
_LOAD = re.compile(r" load ([\d.]+),")
BAR = 40
"""Characters of the longest bar."""


def _all_runs() -> list[dict[str, Any]]:
    return [json.loads(line) for line in KEPT.read_text("utf-8").splitlines()]


def _runs(*, of_scale: bool = True) -> list[dict[str, Any]]:
    return [run for run in _all_runs() if run["row"].startswith("scale-") is of_scale]


def figures() -> str:
    """Render a table of each row, a column for each of its settings that differ."""
    lines = []
    for row, some in groupby(_runs(of_scale=False), itemgetter("row")):
        runs = list(some)
        differ = [key for key, first in runs[0]["settings"].items() if _differs(runs, key, first)]
        columns = {
            ", ".join(str(run["settings"][key]) for key in differ): {
                figure["name"]: figure for figure in run["figures"]
            }
            for run in runs
        }
        begin = row.partition("-")[0]
        command = COMMANDS.get(begin, f"scripts/bench {row}")
        grid = _grid(", ".join(differ), columns, _measured)
        lines += [f"## {row}", "", *grid, "", f"`{command}`. {_where(runs)}", ""]
    return "\n".join(lines[:-1])


def _where(runs: list[dict[str, Any]]) -> str:
    """When and where *runs* were measured."""
    places = sorted({f"{run['day']} on {_LOAD.sub('', run['machine'])}" for run in runs})
    loads = sorted(float(load) for run in runs for load in _LOAD.findall(run["machine"]))
    return f"Measured {'; '.join(places)}; load {loads[0]} to {loads[-1]}."


def _differs(runs: list[dict[str, Any]], key: str, first: Any) -> bool:
    return any(run["settings"].get(key) != first for run in runs)


def _kept() -> dict[str, dict[str, Any]]:
    """Engine → name → figure."""
    found: dict[str, dict[str, Any]] = {engine: {} for engine in ENGINES}
    for run in _runs():
        engine = run["settings"].get("engine", "sqlite")
        found[engine] |= {figure["name"]: figure for figure in run["figures"]}
    return found


def scale() -> str:
    """Render the figures, those of a number of texts in columns, and where they were measured."""
    by_engine, by_size = dict[str, dict[str, Any]](), dict[str, dict[str, Any]]()
    for engine, figures in _kept().items():
        sizes = {name.partition(_SIZED)[0] for name in figures if _SIZED in name}
        columns = {size: f"{ENGINES[engine]}, {size}" for size in sorted(sizes, key=len)}
        by_size |= {column: {} for column in columns.values()}
        for name, figure in figures.items():
            size, sized, what = name.partition(_SIZED)
            found, told = (by_size, columns[size]) if sized else (by_engine, ENGINES[engine])
            found.setdefault(told, {})[what or name] = figure
    tables = [_grid("figure", by_engine, _measured), _grid("texts", by_size, _measured)]
    return "\n".join([*tables[0], "", *tables[1], "", _where(_runs())])


def _grid(
    corner: str, columns: dict[str, dict[str, Any]], cell: Callable[[Any], str] = str
) -> list[str]:
    """A table of what *columns* have, by name."""
    rows = [f"| {corner} | {' | '.join(columns)} |", f"|---{'|---' * len(columns)}|"]
    for name in dict.fromkeys(name for column in columns.values() for name in column):
        cells = (cell(column[name]) if name in column else "–" for column in columns.values())
        rows.append(f"| {name} | {' | '.join(cells)} |")
    return rows


def _measured(figure: dict[str, Any]) -> str:
    told = f"{_number(figure['value'])} {figure['unit']}".strip()
    if figure["met"] is None:
        return told
    sign, goal = ("≤", figure["most"]) if figure["least"] is None else ("≥", figure["least"])
    return f"{told} ({'' if figure['met'] else 'missed: '}{sign} {goal:,g})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def plots() -> str:
    """Draw figures by size, as bars."""
    lines = ["```text"]
    for end, title in PLOTTED.items():
        for engine, figures in _kept().items():
            sizes = {n: f["value"] for n, f in figures.items() if n.endswith(f" texts: {end}")}
            most = max(sizes.values(), default=0)
            lines += [f"{title}, {ENGINES[engine]}"] if sizes else []
            for name, value in sorted(sizes.items(), key=lambda one: len(one[0])):
                bar = "█" * round(BAR * value / most) or "▏"
                lines.append(f"{name.partition(' ')[0]:>11} {bar} {_number(value)}")
    return "\n".join([*lines, "```"])


def users() -> str:
    """Render what ``scripts/simulate_scale --keep`` printed: sizes, and the first limits."""
    sizes, unit, told = dict[str, dict[str, str]](), dict[str, dict[str, str]](), list[str]()
    for engine, run in json.loads(SIMULATED.read_text("utf-8")).items():
        name, costs = ENGINES[engine], run["costs"]
        unit[f"{name}, ms"] = _unit_costs(costs)
        for place, number in enumerate(run["users"]):
            cells = {what: some[place] for what, some in run["rows"].items()}
            sizes[f"{name}, {number:,} users"] = cells
        for what, limits in run["first"].items():
            first, *others = (f"{one} at {number}" for one, number in limits.items())
            told.append(
                f"- {name}: the first limit of {what} is its **{first} users**; then"
                f" {', '.join(others)}."
            )
        place = f"{costs['day']} on {costs['machine']}"
        told.append(f"- {name}: unit costs were measured {place}.")
    whole = [*_grid("unit cost, of the service + of the server", unit), "", *_grid("", sizes)]
    return "\n".join([*whole, "", *told])


def _unit_costs(costs: dict[str, Any]) -> dict[str, str]:
    """What is done → processor time; of a repository of a number of texts, by that."""
    by_size = {"recall": "a recall", "cold": "a recall whose index is read", "append": "an append"}
    once = {
        "job": "a job of two messages",
        "question": "to embed a question",
        "embed": f"to embed a text, {costs['texts']:.1f} of them in a turn",
    }
    pairs = {
        f"{title}, {size:,} texts": pair
        for what, title in by_size.items()
        for size, pair in zip(costs["documents"], costs[what], strict=True)
        if what != "append" or size == costs["documents"][1]
    }
    pairs |= {title: costs[what] for what, title in once.items()}
    return {
        title: f"{own:.1f}" + (f" + {server:.1f}" if server else "")
        for title, (own, server) in pairs.items()
    }


def torture() -> str:
    """Render what ``scripts/torture --write`` kept: parts down, memories across."""
    kept: dict[str, dict[str, Any]] = json.loads(TORTURED.read_text("utf-8"))
    columns, told = dict[str, dict[str, str]](), list[str]()
    for name, row in kept.items():
        peer, setting = name.split(", ")
        cells = columns.setdefault(peer, {})
        for part, outcome in row["parts"].items():
            known = cells.setdefault(part, outcome)
            cells[part] = known if known == outcome else f"{known}<br>{setting}: {outcome}"
        places = f"{row['day']} on {row['machine']}"
        told.append(f"- {name} ({row['durability']}): {row['version']}; {places}.")
    return "\n".join([*_grid("part", columns), "", *told])


PARTS: dict[str, dict[str, Callable[[], str]]] = {
    "calls": {"listed": partial(calls, listed=True), "others": partial(calls, listed=False)},
    "configuration": {"settings": configuration},
    "events": {"events": events},
    "errors": {"errors": errors},
    "figures": {"figures": figures},
    "scale": {"figures": scale, "plots": plots, "users": users},
    "torture": {"outcomes": torture},
    "states": {"diagram": lambda: f"```mermaid\n{diagram()}\n```", "operations": operations},
}
"""Page → name of a generated part → what makes it."""


def renewed(page: str, text: str) -> str:
    """*text* of *page* with what stands between the marks of each part made anew."""
    for name, make in PARTS[page].items():
        marked = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)", re.DOTALL)
        made = make()
        text, count = marked.subn(lambda m, made=made: f"{m[1]}{made}\n{m[2]}", text)
        if count != 1:
            raise ValueError(f"the page {page!r} has no part {name!r}")
    return text


PICTURES = {
    "states": pictures.states,
    "flow": pictures.flow,
    "window": pictures.window,
    "recall": lambda: pictures.recall_plot(_all_runs()),
}
"""Picture → what draws it."""


def parts() -> Iterator[tuple[Path, str, str]]:
    """Each generated file: its path, what stands there, what should."""
    for page in PARTS:
        path = GUIDE / f"{page}.md"
        text = path.read_text("utf-8")
        yield path, text, renewed(page, text)
    for name, draw in PICTURES.items():
        path = pictures.FOLDER / f"{name}.svg"
        yield path, path.read_text("utf-8") if path.exists() else "", draw()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if a page is stale")
    check = parser.parse_args().check
    stale = False
    for path, there, new in parts():
        if new != there:
            stale = True
            print(f"{'stale' if check else 'written'}: {path.name}")
            if not check:
                path.write_text(new, encoding="utf-8")
    return int(check and stale)


if __name__ == "__main__":
    sys.exit(main())
