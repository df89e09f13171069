"""
Build a static site from the README and the pages of the guide, with ProperDocs.

The README is the first page, and its table of pages gives the order. Any warning, such as a
link that leads nowhere, fails the build. Beside it are ``llms.txt``, what mnemo is and where each
page stands, and ``llms-full.txt``, all pages in one, for programs that read.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
PAGES = "mnemo/guide/"
_ROW = re.compile(rf"^\| ([\w ]+) \| (\[.*\]\({PAGES}.*\)) \|$", re.MULTILINE)
_LINK = re.compile(rf"\[([^\]]+)\]\({PAGES}([\w-]+\.md)\)")
_INTRODUCTION = re.compile(r"# (\w+)\n+(?:<!--.*?-->\n+)?(.+?)\n\n", re.DOTALL)


def titles(readme: str) -> dict[str, str]:
    """File of each page → what the README's table calls it, in its order."""
    return {
        page: title for _, links in _ROW.findall(readme) for title, page in _LINK.findall(links)
    }


def short(readme: str) -> str:
    """What mnemo is, and a line for each page: ``llms.txt``."""
    name, told = _INTRODUCTION.match(readme).groups()  # type: ignore[union-attr]
    lines = (f"- [{title}]({page})" for page, title in titles(readme).items())
    return "\n".join(
        [f"# {name}", "", "> " + told.replace("\n", " "), "", "## Guide", "", *lines, ""]
    )


def full(readme: str) -> str:
    """The README and all pages, one after the other: ``llms-full.txt``."""
    pages = ((ROOT / PAGES / page).read_text("utf-8").strip() for page in titles(readme))
    return "\n\n".join([readme.strip(), *pages]) + "\n"


def navigation(readme: str) -> list[dict[str, object]]:
    """The pages by group, as the README's table has them."""
    groups = [
        {group.capitalize(): [{title: page} for title, page in _LINK.findall(links)]}
        for group, links in _ROW.findall(readme)
    ]
    return [{"Home": "index.md"}, *groups]


def prepare(folder: Path) -> Path:
    """Write pages and configuration into *folder*; the configuration's path."""
    pages, readme = folder / "pages", (ROOT / "README.md").read_text("utf-8")
    shutil.copytree(ROOT / PAGES, pages, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    (pages / "index.md").write_text(readme.replace(f"]({PAGES}", "]("), "utf-8")
    config = folder / "properdocs.yml"
    settings = {
        "site_name": "mnemo",
        "docs_dir": str(pages),
        "theme": {"name": "readthedocs", "highlightjs": False},
        "plugins": ["search"],
        "nav": navigation(readme),
        "use_directory_urls": False,
        "validation": {
            "anchors": "warn",
            "unrecognized_links": "warn",
            "nav": {"omitted_files": "warn"},
        },
    }
    config.write_text(yaml.safe_dump(settings, sort_keys=False), "utf-8")
    return config


def build(place: Path) -> int:
    """Build the site at *place*, in place of what is there; the generator's exit code."""
    with tempfile.TemporaryDirectory(prefix="mnemo-guide-") as folder:
        config = prepare(Path(folder))
        command = [sys.executable, "-m", "properdocs", "build", "--strict", "--clean", "--quiet"]
        command += ["--config-file", str(config), "--site-dir", str(place.resolve())]
        return subprocess.run(command, check=False).returncode


def main(argv: Sequence[str] | None = None) -> int:
    """Build it where the command line says."""
    parser = argparse.ArgumentParser(prog="guide", description=__doc__.split("\n\n")[0].strip())
    parser.add_argument("folder", type=Path, nargs="?", default=ROOT / "build" / "guide")
    place = parser.parse_args(argv).folder
    code = build(place)
    if not code:
        readme = (ROOT / "README.md").read_text("utf-8")
        (place / "llms.txt").write_text(short(readme), "utf-8")
        (place / "llms-full.txt").write_text(full(readme), "utf-8")
        print(f"{place / 'index.html'}")
    return code


if __name__ == "__main__":
    sys.exit(main())
