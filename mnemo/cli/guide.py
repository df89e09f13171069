"""Show the pages of the guide that the package carries."""

from __future__ import annotations

import sys
from importlib.resources import files
from typing import Annotated

import typer
from rich.console import Console
from rich.markdown import Markdown

from mnemo import UsageError
from mnemo.cli.opening import AsJson
from mnemo.cli.output import print_json, print_line, print_table


def guide(
    topic: Annotated[str | None, typer.Argument(help="A page; left out: list them.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show a page of the guide, or list the pages."""
    pages = _pages()
    if topic is None:
        titles = {name: text.partition("\n")[0].lstrip("# ") for name, text in pages.items()}
        if as_json:
            print_json({"topics": titles})
        else:
            print_table(("topic", "page"), list(titles.items()))
        return
    if topic not in pages:
        raise UsageError(f"there is no page {topic!r}; pages: {', '.join(pages)}")
    if as_json:
        print_json({"topic": topic, "text": pages[topic]})
    elif sys.stdout.isatty():
        Console().print(Markdown(pages[topic]))
    else:
        print_line(pages[topic].rstrip("\n"))


def _pages() -> dict[str, str]:
    """Topic → text of its page, by topic."""
    found = {
        page.name.removesuffix(".md"): page.read_text(encoding="utf-8")
        for page in files("mnemo").joinpath("guide").iterdir()
        if page.name.endswith(".md")
    }
    return dict(sorted(found.items()))
