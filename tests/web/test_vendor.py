"""The bundled JavaScript libraries: the pinned files, their size, their licences."""

import gzip
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

VENDOR = Path(str(files("mnemo.web"))) / "static" / "vendor"
MOST_BYTES = 300_000


def test_bundled_files_have_their_pinned_hashes():
    """Every file is the one that scripts/vendor fetched; a changed byte is named."""
    script = Path(__file__).parents[2] / "scripts" / "vendor.py"
    done = subprocess.run(
        [sys.executable, script, "--check"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_bundled_libraries_are_small_and_bring_their_licences():
    """All that a browser loads of them is below 300 KB gzipped, each with a licence beside it."""
    scripts = list(VENDOR.glob("*.js"))
    assert sum(len(gzip.compress(path.read_bytes())) for path in scripts) < MOST_BYTES
    assert {path.stem for path in scripts} <= {path.stem for path in VENDOR.glob("*.LICENSE")}
