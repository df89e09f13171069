"""The declarations of operations, and that every surface is made of them and of nothing else."""

import ast
import inspect
import runpy
from pathlib import Path

import pytest
from fastapi.routing import APIRoute
from pydantic import TypeAdapter

from mnemo import Mnemo, client, remote, sync
from mnemo.mcp import memory_server
from mnemo.operations import ADDED, DEFAULTS, IN_PROCESS, OPERATIONS, OWNERS, STREAMED, SURFACES
from mnemo.testing import HashingEmbedder
from mnemo.web import curves
from mnemo.web.routes import ROUTERS

LISTED = [row.split()[0] for row in SURFACES.strip().splitlines()]

HTTP_ALONE = {
    "backup": "`Mnemo.backup` as a stream: no client gives a path",
    "backup.keep": "`Mnemo.backup` into the server's own folder",
    "caller": "tells what the token of a request permits; a library has no tokens",
    "conversation.derived": "goals, pins and snapshots in one answer, for the page",
    "conversation.history": "in parts, so that no answer is without bounds",
    "curves": "what the service itself counted, for the page",
    "events": "a stream of server-sent events in place of an iterator",
    "job": "a call that goes on after its request was answered; a library waits for its end",
    "job.cancel": "a library cancels the call itself",
    "job.events": "its progress, as a stream of server-sent events",
    "healthz": "a balancer asks whether the process answers",
    "inspection.session": "tells whether the session is open in the service, too",
    "metrics": "Prometheus' text",
    "readyz": "a balancer asks whether the store can be read",
    "repositories": "`Mnemo.repos`, of those that the token may use",
    "session.aclose": "ends a session that is open in the service, and resumes none for it",
    "session.retry": "`commit` that refuses every state but `failed`",
    "session.steps": "the steps and the changeset of `Inspection.session`, in parts",
}
"""Routes that no declaration has, and why."""


def routes():
    """The routes of the service by name."""
    found = [one for router in (*ROUTERS, curves.router) for one in router.routes]
    assert all(isinstance(one, APIRoute) for one in found)
    return {one.name: one for one in found}


def test_every_public_coroutine_is_an_operation():
    """Of the service, the repository and what a repository hands out."""
    methods = {
        f"{owner}.{name}".removeprefix(".")
        for owner, cls in OWNERS.items()
        for name, _ in inspect.getmembers(cls, inspect.iscoroutinefunction)
        if not name.startswith("_")
    }
    assert {name for name, one in OPERATIONS.items() if not one.is_stream} == methods


def test_what_is_not_listed_is_for_administrators_and_on_no_further_surface():
    """A new method is offered nowhere until somebody lists it."""
    for name, one in OPERATIONS.items():
        if name not in LISTED:
            assert (one.right, one.surfaces) == ("admin", ("library", "sync")), name


def test_no_operation_of_administrators_is_a_tool():
    """A model never holds that right."""
    assert not [one.name for one in OPERATIONS.values() if one.tool and one.right == "admin"]


def test_the_routes_are_the_declared_ones_and_those_that_http_has_alone():
    """With their methods and paths."""
    found = routes()
    declared = {one.name: one for one in OPERATIONS.values() if "http" in one.surfaces}
    assert set(found) - set(declared) == set(HTTP_ALONE)
    for name, one in declared.items():
        assert (found[name].methods, found[name].path) == ({one.method}, f"/v1{one.path}")


@pytest.mark.parametrize("name", [one.name for one in OPERATIONS.values() if one.path])
def test_a_request_has_the_parameters_of_the_method(name):
    """But for those that only a process has; what it adds or leaves to a default is listed."""
    one, method = OPERATIONS[name], inspect.signature(OPERATIONS[name].function).parameters
    added = ADDED.get(name, {})
    left_out = {"self"} | IN_PROCESS | STREAMED
    assert {p.name for p in one.parameters} == ({*method} - left_out) | {*added}
    for p in one.parameters:
        assert p.description, p.name
        if p.name not in added and f"{name}.{p.name}" not in DEFAULTS and p.name not in DEFAULTS:
            given = method[p.name]
            needed = given.kind is given.VAR_POSITIONAL or given.default is given.empty
            assert p.default == (... if needed else given.default), p.name


def test_a_difference_has_a_reason_and_is_one():
    """An entry that stands for no difference is dead."""
    for key, (default, why) in DEFAULTS.items():
        name, _, parameter = key.rpartition(".")
        assert why
        if name:
            of = inspect.signature(OPERATIONS[name].function).parameters[parameter]
            assert of.default != default


def test_cancellation_and_errors_come_from_the_docstring():
    """A declared call says what a cancelled one has done."""
    assert [name for name in LISTED if not OPERATIONS[name].cancellation] == []
    assert OPERATIONS["forget"].reasons >= {"invalid_argument", "not_found", "conflict"}
    assert OPERATIONS["session.commit"].reasons >= {"not_ready", "extraction_in_progress"}


def test_the_blocking_surface_has_every_operation():
    """With the parameters of the method; it alone adds none."""
    for one in OPERATIONS.values():
        blocking = getattr(getattr(sync, OWNERS[one.owner].__name__), one.function.__name__)
        given, method = inspect.signature(blocking), inspect.signature(one.function)
        assert [*given.parameters.values()] == [*method.parameters.values()], one.name


# ── The client ────────────────────────────────────────────────────────────────────────────


HANDLES = {
    "": client.RemoteRepository,
    "session": client.RemoteSession,
    "conversation": client.RemoteConversation,
    "conversation.goals": client.RemoteGoals,
    "conversation.pins": client.RemotePins,
    "conversation.snapshots": client.RemoteSnapshots,
    "items": client.RemoteItems,
    "notes": client.RemoteNotes,
    "inspection": client.RemoteInspection,
    "memory": client.RemoteMnemo,
}
CLIENT_ALONE = {
    "memory.aclose": "ends the client's connections",
    "memory.call": "sends any request",
    "memory.open": "asks who the token is of",
    "memory.open_repo": "gives a handle; the service opens what it is asked for",
    "memory.repos": "those that the token may use",
    "conversation.history": "reads the parts that the service gives one by one",
    "session.aclose": "ends the session in the service, and the handle",
    "session.refresh": "asks where the session stands now; a local one knows",
    "unfinished_sessions": "`sessions(unfinished=True)`, whose route it shares",
}
"""Coroutines of the client that no declaration made, and why."""
OTHER_IN_CLIENT = {
    "memory.export_repo": "a stream, as of the library",
    "memory.import_repo": "takes again what is there, as the service does",
}
"""Declared calls that the client defines itself, and why."""


def test_the_client_has_the_declared_calls_and_those_that_it_has_alone():
    """With the parameters of the declarations."""
    found = {
        f"{owner}.{name}".removeprefix("."): inspect.signature(method)
        for owner, cls in HANDLES.items()
        for name, method in inspect.getmembers(cls, inspect.iscoroutinefunction)
        if not name.startswith("_")
    }
    declared = {
        one.name: one.signature
        for one in OPERATIONS.values()
        if "client" in one.surfaces and one.name not in OTHER_IN_CLIENT
    }
    assert set(found) - set(declared) == {*CLIENT_ALONE, "memory.import_repo"}
    for name, signature in declared.items():
        assert found[name] == signature, name


def test_the_stub_has_the_calls_that_are_made():
    """Their parameters, defaults included, with types; results are the client's own handles."""
    script = Path(__file__).parents[1] / "scripts" / "sync_stub.py"
    stub = ast.parse(runpy.run_path(str(script))["RemoteStub"](script.parents[1]).text())
    typed = {
        f"{cls.name}.{node.name}": node
        for cls in stub.body
        if isinstance(cls, ast.ClassDef)
        for node in cls.body
        if isinstance(node, ast.AsyncFunctionDef) and not node.name.startswith("_")
    }
    made = {
        method.__qualname__: inspect.signature(method)
        for cls in remote.Calls.__subclasses__()
        for name, method in inspect.getmembers(cls, inspect.iscoroutinefunction)
        if not name.startswith("_")
    }
    assert set(typed) == set(made)
    for name, node in typed.items():
        args = node.args
        given = [one.arg for one in (*args.args, args.vararg, *args.kwonlyargs) if one]
        assert given == [*made[name].parameters], name
        defaults = [ast.literal_eval(one) for one in (*args.defaults, *args.kw_defaults) if one]
        has = [one.default for one in made[name].parameters.values()]
        assert defaults == [one for one in has if one is not inspect.Parameter.empty], name
        assert node.returns is not None


# ── Tools ─────────────────────────────────────────────────────────────────────────────────


TOOL_ALONE = {
    "forget.token": "the second call repeats what the first one reported",
    "list_notes.offset": "goes on behind a first answer, which is cut to fit a prompt",
    "recall.limit": "`k`, under the name that every tool has for it",
    "remember.text": "`content`, which is a text here",
    "update_memory.memory_id": "`id`, as `list_memories` gives it",
    "write_note.absorbs": "notes whose contents a model merged into this one",
    "write_note.evidence": "the words of the task that the note rests on, which are checked",
}
"""Arguments of tools that have another name than the method's, or none there, and why."""


def said_of(schema):
    """Types and members of the enumerations that a JSON Schema permits."""
    parts = [one for kind in schema.get("anyOf", [schema]) for one in kind.get("anyOf", [kind])]
    types = {one.get("type") or "string" for one in parts}
    return types, [member for one in parts for member in one.get("enum", ())]


async def test_the_tools_are_the_declared_ones_with_parameters_of_the_methods():
    """A tool has fewer parameters, of their types and defaults, or those that are listed."""
    async with Mnemo("memory:", embedder=HashingEmbedder()) as memory:
        server = memory_server(await memory.open_repo(), write=True)
        offered = {tool.name: tool for tool in await server.list_tools()}
    declared = {one.tool: one for one in OPERATIONS.values() if one.tool}
    assert set(offered) == set(declared)
    own = {
        f"{tool}.{name}"
        for tool, one in declared.items()
        for name in {*offered[tool].input_schema["properties"]} - {*one.signature.parameters}
    }
    assert own == set(TOOL_ALONE)
    for tool, one in declared.items():
        for p in one.parameters:
            told = offered[tool].input_schema["properties"].get(p.name)
            if told is None:
                continue
            types, members = said_of(TypeAdapter(p.kind).json_schema())
            assert told["type"] in types, (tool, p.name)
            assert {*told.get("enum", ())} <= {*members}, (tool, p.name)
            assert told["description"], (tool, p.name)
            if p.name != "limit":  # a model is given less
                assert told.get("default", p.default) == p.default, (tool, p.name)
            assert (p.name in offered[tool].input_schema["required"]) >= (p.default is ...)
