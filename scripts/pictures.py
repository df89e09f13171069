"""
The pictures of the README and the guide: session states, drawn from the machine's table; the way of
a text; the budget of a window, drawn from its settings; what recall finds beside other rankings,
drawn from ``scripts/figures.jsonl``. ``scripts/make_guide`` writes them.

Run as a program, with Chromium, it takes a picture of the inspector, too.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import anyio

from mnemo import Mnemo
from mnemo.config import ViewportConfig
from mnemo.context.zones import Budget
from mnemo.session.machine import TABLE

FOLDER = Path(__file__).parents[1] / "mnemo" / "guide" / "pictures"

# As in the style sheet of the page; a picture stands by itself, so its colours are written again.
STYLE = """text { font: 14px system-ui, sans-serif; fill: #13191c }
.soft { fill: #525d65; font-size: 13px } .head { font-weight: 650 }
.box { fill: #dff0f2; stroke: #0b6472 } .line { fill: none; stroke: #7f8a92; stroke-width: 1.5 }
.tip { fill: #7f8a92 } .mine { fill: #0b6472 } .other { fill: #a9b4ba }
@media (prefers-color-scheme: dark) { text { fill: #e9edef } .soft { fill: #a0acb4 }
.box { fill: #12343a; stroke: #66c9d4 } .mine { fill: #66c9d4 } .other { fill: #56626a } }"""


def _svg(width: int, height: int, title: str, parts: Iterable[str]) -> str:
    """An SVG file; its *title* is read aloud instead of it."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img"'
    head += f' width="{width}" height="{height}"><title>{escape(title)}</title>'
    return "\n".join([head, f"<style>{STYLE}</style>", *parts, "</svg>", ""])


def _text(x: float, y: float, words: str, kind: str = "", anchor: str = "middle") -> str:
    return f'<text x="{x}" y="{y}" class="{kind}" text-anchor="{anchor}">{escape(words)}</text>'


TIP = (
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7"'
    ' markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8z" class="tip"/></marker></defs>'
)


def _way(path: str) -> str:
    return f'<path d="{path}" class="line" marker-end="url(#tip)"/>'


def _box(x: int, y: int, width: int, height: int, name: str, told: str = "") -> list[str]:
    """A box around a middle, with its name and, below that, what it does."""
    corner = f'x="{x - width // 2}" y="{y - height // 2}"'
    box = f'<rect {corner} width="{width}" height="{height}" rx="8" class="box"/>'
    lines = [_text(x, y - 4, name, "head"), _text(x, y + 16, told, "soft")]
    return [box, *(lines if told else [_text(x, y + 5, name, "head")])]


# ── Session states ───────────────────────────────────────────────────────────────────

PLACES = {
    "idle": (60, 110),
    "collecting": (270, 110),
    "extracting": (470, 110),
    "ready": (790, 110),
    "failed": (470, 230),
}
WAYS = {
    ("idle", "collecting"): ("M115 110 H212", 165, 100),
    ("collecting", "collecting"): ("M250 88 C240 52 300 52 290 90", 270, 54),
    ("collecting", "extracting"): ("M325 110 H412", 368, 100),
    ("extracting", "ready"): ("M525 110 H732", 629, 100),
    ("extracting", "failed"): ("M455 132 V206", 448, 196),
    ("extracting", "idle"): ("M430 132 C380 190 150 190 92 136", 262, 168),
    ("ready", "idle"): ("M790 88 C740 4 120 4 72 86", 430, 20),
    ("ready", "ready"): ("M810 132 C820 172 760 172 768 136", 790, 180),
    ("failed", "idle"): ("M415 236 C200 250 90 200 66 136", 210, 244),
    ("failed", "extracting"): ("M485 208 V134", 492, 172),
}
"""From and to → the path of the arrow, and where its words stand."""
SIDES = {("extracting", "failed"): "end", ("failed", "extracting"): "start"}


def states() -> str:
    """Draw the table of ``mnemo.session.machine``; ``KeyError``: it has a way without a path."""
    words: dict[tuple[str, str], list[str]] = {}
    for row in TABLE:
        words.setdefault((row.source, row.dest), []).append(row.trigger.replace("_", " "))
    parts = [TIP]
    for way, triggers in words.items():
        path, x, y = WAYS[way]
        parts.append(_way(path))
        parts.append(_text(x, y, ", ".join(triggers), "soft", SIDES.get(way, "middle")))
    for name, (x, y) in PLACES.items():
        parts += _box(x, y, 110, 42, name)
    return _svg(870, 270, "The states of a session and what leads from one to the next", parts)


# ── Where a text goes ────────────────────────────────────────────────────────────────

BOX = (190, 62)
BOXES = {
    "append, remember": (105, 60, "messages and steps"),
    "log": (335, 60, "stored, then acknowledged"),
    "extraction": (565, 60, "in the background"),
    "graph": (565, 200, "facts, instructions"),
    "index": (335, 200, "words, vectors, columns"),
    "recall": (105, 200, "answers with sources"),
}
"""What holds or moves a text → the middle of its box, and what it does."""
FLOWS = (
    ("M200 60 H232", "", 0, 0),
    ("M430 60 H462", "", 0, 0),
    ("M565 91 V161", "commit, all or nothing", 577, 132),
    ("M470 200 H438", "", 0, 0),
    ("M335 91 V161", "at once", 347, 132),
    ("M240 200 H208", "", 0, 0),
)
"""Arrows: the path, its words, and where they begin."""


def flow() -> str:
    """Draw the way of a text from the call that stores it to the answer that cites it."""
    parts = [TIP]
    for path, words, x, y in FLOWS:
        parts += [_way(path), _text(x, y, words, "soft", "start")]
    for name, (x, y, told) in BOXES.items():
        parts += _box(x, y, *BOX, name, told)
    return _svg(740, 245, "The way of a text from the call to the answer", parts)


# ── The context window ───────────────────────────────────────────────────────────────

SCALE = 7.8
"""Pixels of a hundredth of the budget."""


def window() -> str:
    """Draw how ``ViewportConfig`` divides a budget, and what of the window leaves at once."""
    config = ViewportConfig()
    budget = Budget.of(config.budget_tokens, config)
    parts, left = [TIP], 40.0
    shares = {
        "long-term": budget.long_term,
        "recent": budget.recent,
        "goals": budget.goals,
        "recalled": budget.recall,
        "window: raw messages": budget.window,
    }
    for number, (name, tokens) in enumerate(shares.items()):
        width = 100 * SCALE * tokens / budget.total
        parts.append(f'<rect x="{left}" y="70" width="{width}" height="54" class="box"/>')
        middle, y = left + width / 2, 44 if number % 2 else 20
        parts.append(f'<path d="M{middle} {y + 6} V66" class="line"/>')
        percent = f"{100 * tokens / budget.total:.0f} %"
        parts.append(
            _text(middle, y, f"{name}, {percent}", "soft", ("middle", "start")[number % 2])
        )
        left += width
    scale, left = 100 * SCALE / budget.total, left - budget.window * 100 * SCALE / budget.total
    zone, trigger = (left + scale * tokens for tokens in (budget.zone, budget.trigger))
    parts.append(f'<rect x="{left}" y="70" width="{zone - left}" height="54" class="other"/>')
    parts.append(_text((left + zone) / 2, 102, "leaves next", "head"))
    parts.append(f'<path d="M{trigger} 60 V134" class="line" stroke-dasharray="4 3"/>')
    share = f"{100 * budget.trigger / budget.window:.0f} %"
    parts.append(_text(trigger, 150, f"above {share} of it, room is made", "soft", "end"))
    parts += [_way(f"M{(left + zone) / 2} 124 C{left} 185 170 185 112 128")]
    parts.append(_text(310, 186, "as a snapshot, and pins", "soft"))
    return _svg(860, 200, "How a budget of tokens is divided, and what leaves the window", parts)


# ── What recall finds ────────────────────────────────────────────────────────────────

MEASURES = {
    "recall@10": "evidence among ten",
    "answered@5": "answered among five",
    "answered@1": "answered first",
}
METHODS = {
    "BM25": "BM25",
    "dense": "vectors alone",
    "cosine": "vectors alone",
    "RRF 60 of both": "both, by reciprocal rank",
    "RRF": "both, by reciprocal rank",
    "mnemo": "mnemo",
}
"""A ranking of ``scripts/bench_questions`` → what the picture calls it."""
LEFT, FULL, BAR, GAP = 300, 400, 14, 18
"""Where bars begin, what 100 % is long, how high one is, and what parts two groups; pixels."""


def recall_plot(runs: Iterable[Mapping[str, Any]]) -> str:
    """Draw the rows ``questions`` and ``peers`` of *runs*, a bar for each ranking."""
    parts, y = list[str](), 24.0
    for title, bars in _groups(list(runs)):
        parts.append(_text(LEFT - 8, y + 12, title, "head", "end"))
        for name, percent, is_mine in bars:
            length, kind = FULL * percent / 100, "mine" if is_mine else "other"
            parts.append(
                f'<rect x="{LEFT}" y="{y}" width="{length:.0f}" height="{BAR}" class="{kind}"/>'
            )
            parts.append(_text(LEFT + length + 6, y + 12, f"{percent:.0f} {name}", "soft", "start"))
            y += BAR + 3
        y += GAP
    return _svg(860, int(y), "What recall finds beside other rankings of the same texts", parts)


Bar = tuple[str, float, bool]


def _groups(runs: list[Mapping[str, Any]]) -> Iterator[tuple[str, list[Bar]]]:
    """Title → name, percent, and whether it is mnemo's."""
    for run in runs:
        if not run["row"].startswith("questions-") or run["settings"]["file"] == "total":
            continue
        file = Path(run["settings"]["file"]).stem.replace("-dev", " ").strip()
        values = {figure["name"]: figure["value"] for figure in run["figures"]}
        for measure, told in MEASURES.items():
            bars = [
                (name, values[f"{measure}: {method}"], method == "mnemo")
                for method, name in METHODS.items()
                if f"{measure}: {method}" in values
            ]
            if bars:
                yield f"{file}, {told}", bars
    peers = {run["settings"]["peer"]: run["figures"] for run in runs if run["row"] == "peers"}
    found = [
        (name, 100 * figure["value"], name.startswith("mnemo"))
        for name, figures in peers.items()
        for figure in figures
        if figure["name"].startswith("evidence recall")
    ]
    if found:
        yield "locomo, peers of equal vectors", sorted(found, key=lambda bar: bar[1])


# ── The inspector ────────────────────────────────────────────────────────────────────

SAID = (
    "I work as a nurse at the harbour clinic in Bergen.",
    "My brother Tom moved to Lisbon last spring.",
    "Our cat is called Minka, she is eleven.",
    "I quit the clinic, I now teach biology at a school.",
    "On Thursdays I play the cello in a quartet.",
)
ASKED = "What is her job?"


async def _page(place: Path) -> None:
    from playwright.async_api import async_playwright

    from mnemo.web import new_token, serve, token_of

    token = new_token()
    async with Mnemo("memory:") as memory, anyio.create_task_group() as group:
        ada = await memory.open_repo("ada")
        begin = datetime(2026, 3, 2, 9, tzinfo=UTC)
        for number, text in enumerate(SAID):
            said = {"at": begin + timedelta(days=20 * number), "actor": "Ada"}
            await ada.remember(text, thread_id="chat", wait=True, **said)
        await ada.settle()
        url, listening = list[str](), anyio.Event()

        async def server() -> None:
            tokens = [token_of(token, "picture")]
            await serve(memory, tokens=tokens, ready=lambda at: (url.append(at), listening.set()))

        group.start_soon(server)
        await listening.wait()
        async with async_playwright() as driver:
            program = shutil.which("chromium") or shutil.which("chromium-browser")
            options = ["--no-sandbox", "--disable-dev-shm-usage"]
            browser = await driver.chromium.launch(executable_path=program, args=options)
            page = await browser.new_page(viewport={"width": 1200, "height": 720})
            await page.goto(f"{url[0]}/#token={token}")
            await page.goto(f"{url[0]}/#/recall?{urlencode({'repo': 'ada', 'query': ASKED})}")
            await page.get_by_role("heading", name="Prompt text").wait_for()
            await page.screenshot(path=place)
            await browser.close()
        group.cancel_scope.cancel()


if __name__ == "__main__":
    anyio.run(_page, FOLDER / "page.png")
