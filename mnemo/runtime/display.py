"""Short forms of values: in a ``repr``, in a notebook, in a sentence with a count."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mnemo.runtime.text import one_line

SHOWN = 60
"""Characters of a text in a repr."""
_READ = 1_000
"""Characters of it that are looked at."""


def shown(text: str) -> str:
    """The beginning of *text* on one line, at most ``SHOWN`` characters."""
    line = one_line(text[:_READ])
    return line if len(line) <= SHOWN else f"{line[: SHOWN - 1]}…"


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """Give "1 step", "2 steps"; *plural* where it is not *noun* with an s."""
    return f"{count} {noun if count == 1 else plural or noun + 's'}"


def html_table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table for ``_repr_html_``; every text is escaped, so that none of it is markup."""
    from html import escape  # wanted in notebooks alone

    def row(cell: str, texts: Iterable[str]) -> str:
        cells = "".join(f"<{cell}>{escape(text)}</{cell}>" for text in texts)
        return f"<tr>{cells}</tr>"

    head, body = row("th", heads), "".join(row("td", texts) for texts in rows)
    named = f"<caption>{escape(caption)}</caption>"
    return f"<table>{named}<thead>{head}</thead><tbody>{body}</tbody></table>"
