"""`mnemo serve` prepares its process for a long life."""

import platform
import re
import socket
import subprocess
import sys

import pytest

from mnemo.web import read_tokens, token_of

HEAPS_OF_EIGHT_THREADS = """
import ctypes, threading
from mnemo.cli.stores import share_heaps
share_heaps()
libc = ctypes.CDLL(None)
there = threading.Barrier(9)
def hold():
    libc.malloc(100_000)
    there.wait()
for _ in range(8):
    threading.Thread(target=hold, daemon=True).start()
there.wait()
libc.malloc_info(0, ctypes.c_void_p.in_dll(libc, "stdout"))
libc.fflush(None)
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has heaps of threads")
def test_threads_share_two_heaps():
    """A heap of each thread would keep what the largest of its answers needed."""
    command = [sys.executable, "-c", HEAPS_OF_EIGHT_THREADS]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert told.count("<heap nr=") == 2


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "memory.example.org"])
def test_another_address_wants_a_file_of_tokens_and_a_name(cli, write, host):
    """Each refusal says which option is missing, and nothing listens."""
    refused = cli("serve", "--host", host)
    assert refused.code == 2
    assert "--token-file" in refused.err
    hashed = "0" * 64
    tokens = write("tokens.toml", f'[[tokens]]\nname = "desk"\nsha256 = "{hashed}"\n')
    refused = cli("serve", "--host", host, "--token-file", str(tokens))
    assert refused.code == 2
    assert "--allow-host" in refused.err


def test_a_missing_or_wrong_file_of_tokens_is_told_in_a_line(cli, write):
    """What is missing, and how it is made; which entry is wrong, and why."""
    refused = cli("serve", "--port", "0", "--token-file", "tokens.toml")
    assert (refused.code, refused.out) == (2, "")
    assert "mnemo token NAME >> tokens.toml" in refused.err
    wrong = write("wrong.toml", '[[tokens]]\nname = "desk"\nsha256 = "short"\n')
    refused = cli("serve", "--port", "0", "--token-file", str(wrong))
    assert refused.code == 2
    assert re.fullmatch(r"mnemo: .*wrong\.toml: tokens\.0\.sha256: .*\n", refused.err)


def test_what_keeps_a_service_from_its_start_is_told_before_an_address(cli, tmp_path):
    """Nothing is on standard output that could be opened."""
    refused = cli("serve", "--port", "0", "--embedder", "bert")
    assert (refused.code, refused.out) == (2, "")
    assert "there is no embedder 'bert'" in refused.err
    refused = cli("serve", "--port", "0", "--store", str(tmp_path))
    assert (refused.code, refused.out) == (2, "")
    assert "is a directory: name a file in it" in refused.err
    refused = cli("serve", "--port", "0", "--store", "nowhere/memory.db")
    assert (refused.code, refused.out) == (2, "")
    assert "'nowhere' does not exist" in refused.err
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        refused = cli("serve", "--port", port)
    assert (refused.code, refused.out) == (2, "")
    assert f"127.0.0.1:{port} is in use: name another port" in refused.err


def test_a_token_is_told_beside_what_goes_into_the_file(cli, tmp_path):
    """``mnemo token desk >> tokens.toml`` stores the hash; the secret goes to the terminal."""
    made = cli("token", "desk", "--repo", "ada", "--read-only")
    assert made.code == 0
    (secret,) = re.findall(r"[\w-]{43}", made.err)
    assert secret not in made.out
    path = tmp_path / "tokens.toml"
    path.write_text(made.out + cli("token", "other").out)
    first, second = read_tokens(path)
    assert first == token_of(secret, "desk", repositories=["ada"], rights="read")
    assert second.name == "other"


def test_a_token_of_prefixes_has_no_other_repository(cli, tmp_path):
    """Its end and its model tokens are in the entry, too."""
    made = cli(
        *("token", "t", "--prefix", "tenant-a/", "--expires", "2030-01-01T00:00:00Z"),
        *("--model-tokens", "500"),
    )
    path = tmp_path / "tokens.toml"
    path.write_text(made.out)
    (token,) = read_tokens(path)
    assert (token.repositories, token.prefixes) == ((), ("tenant-a/",))
    assert (token.expires.year, token.model_tokens_per_day) == (2030, 500)


@pytest.mark.parametrize(
    "url", ["http://h/v1", "http://h/v1?model=m", "http://h?model=m&dimensions=x"]
)
def test_the_url_of_an_embedder_names_model_and_dimensions(cli, url):
    """Nothing listens before."""
    refused = cli("serve", "--embedder", url)
    assert (refused.code, refused.out) == (2, "")
    assert "?model=NAME&dimensions=N" in refused.err


def test_a_token_as_json_is_one_document(cli):
    """The secret, and the entry for the file of tokens."""
    made = cli("token", "desk", "--json").data
    assert set(made) == {"token", "entry"}
    assert (made["entry"]["name"], made["entry"]["rights"]) == ("desk", "write")
    assert made["token"] not in str(made["entry"])


@pytest.mark.parametrize("command", ["serve", "inspect"])
def test_a_service_tells_its_address_as_json(cli, monkeypatch, command):
    """The address, the token, and the page that it opens."""
    assert cli("remember", "I play the cello.").code == 0

    async def ended_at_once(memory, *, tokens, listener, **_options):
        assert listener.getsockname()[1] > 0

    monkeypatch.setattr("mnemo.web.serve", ended_at_once)
    told = cli(command, "--port", "0", "--json").data
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", told["url"])
    assert told["page"] == f"{told['url']}/#token={told['token']}"


def test_every_command_takes_json(cli):
    """As the page about commands says."""
    import typer.main

    from mnemo.cli.app import app

    def leaves(command, name=""):
        inner = getattr(command, "commands", None)
        if inner is None:
            yield name, {option for one in command.params for option in one.opts}
        for key, one in (inner or {}).items():
            yield from leaves(one, key)

    found = dict(leaves(typer.main.get_command(app)))
    assert len(found) > 30
    assert [name for name, options in found.items() if "--json" not in options] == []
