"""Export a repository's graph as one HTML page: the graph view of the inspector."""

from __future__ import annotations

import base64
import hashlib
import json
from html import escape
from importlib.resources import files

from mnemo import Repository
from mnemo.exchange import adapter
from mnemo.pictures import Graphs, Picture

STATIC = files("mnemo") / "web" / "static"
MODULES = (
    "vendor/preact.js",
    "vendor/cytoscape.js",
    "api.js",
    "parts.js",
    "layout-worker.js",
    "views/graph.js",
    "exported.js",
)
"""What the page runs, each module after those that it imports."""
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="content-security-policy" content="default-src 'none'; script-src '{loader_hash}' blob:; style-src '{style_hash}'; worker-src blob:; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Graph · {title}</title>
<style id="__________cytoscape_stylesheet">{style}</style>
</head>
<body>
<div id="app"><noscript>The graph is drawn by JavaScript.</noscript></div>
<script type="application/json" id="data">{data}</script>
<script>{loader}</script>
</body>
</html>
"""  # noqa: E501 (the policy is one attribute)


async def graph_picture(repo: Repository, *, limit: int) -> Picture:
    """
    The picture on the page: at most *limit* nodes, the best connected, and the edges between them.

    Raises:
        ValueError: *limit* is less than 1.
    """
    if limit < 1:
        raise ValueError(f"the limit must be at least 1, not {limit}")
    return await Graphs().picture(repo, limit=limit, community=None, around=None)


def graph_page(repo_id: str, picture: Picture) -> str:
    """The page that shows *picture* without a network."""
    style, loader = _read("style.css"), _read("exported-loader.js")
    data = {
        "repo": repo_id,
        "modules": [[name.rpartition("/")[2], _read(name)] for name in MODULES],
        "picture": adapter(Picture).dump_python(picture, mode="json"),
    }
    # Stored text must end neither the element it stands in nor begin another one.
    written = json.dumps(data).replace("<", "\\u003c").replace(">", "\\u003e")
    return PAGE.format(
        loader_hash=_hash(loader),
        style_hash=_hash(style),
        title=escape(repo_id),
        style=style,
        data=written,
        loader=loader,
    )


def _read(name: str) -> str:
    return (STATIC / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """The source expression of an inline element in a content security policy."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
