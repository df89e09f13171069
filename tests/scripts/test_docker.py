"""The files of scripts/docker and the guide's unit, read as what runs them reads them."""

import configparser
import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest
import typer.main
import yaml

from mnemo import Config
from mnemo.cli.app import app

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "scripts" / "docker"
SERVE = typer.main.get_command(app).commands["serve"]
OPTIONS = {option for one in SERVE.params for option in one.opts}
VARIABLES = {one.envvar for one in SERVE.params if getattr(one, "envvar", None)}


def instructions():
    """The instructions of the Dockerfile, in order."""
    lines = (FOLDER / "Dockerfile").read_text().splitlines()
    return [tuple(line.split(" ", 1)) for line in lines if line and not line.startswith("#")]


def arguments_of(name):
    """What an instruction in exec form runs."""
    (found,) = [value for key, value in instructions() if key == name]
    return json.loads(found)


def options_in(words):
    """Its options."""
    return {word for word in words if word.startswith("--")}


def test_the_image_runs_the_service_as_a_user_of_its_own():
    """What it starts are options and variables that `mnemo serve` has; its extras are there."""
    assert arguments_of("ENTRYPOINT") == ["mnemo", "serve"]
    assert options_in(arguments_of("CMD")) <= OPTIONS
    keys = [key for key, _ in instructions()]
    assert dict(instructions())["USER"] == "mnemo"
    assert keys.index("USER") < keys.index("ENTRYPOINT")
    extras = re.search(r"/source\[(.*)\]", (FOLDER / "Dockerfile").read_text())[1].split(",")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(extras) <= set(project["optional-dependencies"])
    given = dict(pair.split("=", 1) for pair in dict(instructions())["ENV"].split())
    assert set(given) - {"PATH"} <= VARIABLES
    assert given["MNEMO_PORT"] == dict(instructions())["EXPOSE"]


def test_its_health_is_that_of_readyz(serve_readyz):
    """The very command of the image, against a server on another port."""
    found = re.search(r"HEALTHCHECK .* CMD (\[.*\])", (FOLDER / "Dockerfile").read_text())
    python, flag, code = json.loads(found[1])
    assert (python, flag) == ("python", "-c")
    serve_readyz(code)


@pytest.fixture
def serve_readyz(monkeypatch):
    """Runs code that asks for a server's health, and checks what it has asked."""
    asked = []

    def run(code):
        monkeypatch.setenv("MNEMO_PORT", "1234")
        monkeypatch.setattr("urllib.request.urlopen", lambda url, timeout: asked.append(url))
        exec(code, {})
        assert asked == ["http://127.0.0.1:1234/readyz"]

    return run


def test_compose_starts_the_service_behind_a_healthy_database():
    """Its files are secrets, its port is of this machine, its options and variables exist."""
    found = yaml.safe_load((FOLDER / "compose.yaml").read_text())
    service, database = found["services"]["mnemo"], found["services"]["database"]
    assert options_in(service["command"]) <= OPTIONS
    assert {key for key in service["environment"] if key.startswith("MNEMO_")} <= VARIABLES
    assert service["environment"]["MNEMO_STORE"].startswith("postgresql://")
    assert service["depends_on"] == {"database": {"condition": "service_healthy"}}
    assert "pg_isready" in database["healthcheck"]["test"][1]
    assert (FOLDER / service["build"]["context"]).resolve() == ROOT
    assert (ROOT / service["build"]["dockerfile"]).is_file()
    used = {*service["secrets"], *database["secrets"]}
    assert used == set(found["secrets"])
    assert [port.split(":")[0] for port in service["ports"]] == ["127.0.0.1"]
    assert {volume.split(":")[0] for volume in database["volumes"]} == set(found["volumes"])


def test_the_unit_of_the_guide_starts_the_service():
    """systemd's own format; options and variables exist."""
    guide = (ROOT / "mnemo" / "guide" / "serve.md").read_text()
    unit = configparser.ConfigParser(strict=True, interpolation=None)
    unit.optionxform = str
    unit.read_string(re.search(r"```ini\n(.*?)```", guide, re.S)[1])
    words = shlex.split(unit["Service"]["ExecStart"])
    assert words[0].endswith("/mnemo")
    assert words[1] == "serve"
    assert options_in(words) <= OPTIONS
    assert unit["Service"]["Environment"].split("=")[0] in VARIABLES


def test_variables_of_the_service_are_no_settings(monkeypatch):
    """The configuration that is read of the same environment passes them by."""
    for name in VARIABLES:
        monkeypatch.setenv(name, "1")
    assert Config.from_env() == Config()
