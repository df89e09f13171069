"""
Write a client of the HTTP service: types and calls from its OpenAPI document, and a transport.

``typescript FOLDER`` writes ``api.d.ts`` (by ``openapi-typescript``, with npm), ``client.ts``
(a class of each handle, a method of each call) and ``transport.ts``. The files need no package.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mnemo import Mnemo
from mnemo.operations import OPERATIONS
from mnemo.web import token_of, web_app

PACKAGES = ("typescript@5.9.3", "openapi-typescript@7.13.0")
TRANSPORT = Path(__file__).parent / "typescript" / "transport.ts"
HANDLES = {
    "": ("Repository", ("repo",)),
    "conversation": ("Conversation", ("repo", "thread")),
    "conversation.goals": ("Goals", ("repo", "thread")),
    "conversation.pins": ("Pins", ("repo", "thread")),
    "conversation.snapshots": ("Snapshots", ("repo", "thread")),
    "inspection": ("Inspection", ("repo",)),
    "items": ("Items", ("repo",)),
    "notes": ("Notes", ("repo",)),
    "session": ("Session", ("repo", "session")),
}
"""By the path to a call: its class, and what the handle has said of the address already."""
HEAD = """\
// Made by scripts/make_client of mnemo from the service's document; do not edit.

import {
  Handle, Service, type Answer, type Given, type JobMessage, type Options,
} from "./transport.js";

export { Problem } from "./transport.js";
export type {
  Answer, Given, JobMessage, Name, Options, Reason, Schemas, StreamMessage,
} from "./transport.js";
"""
FIRST = """
  /** `url` may end in `#token=…`, as `mnemo serve` prints it. */
  constructor(url: string, token?: string) {
    super(new Service(url, token), {});
  }

  /** A repository, by its id. */
  repo(repo = "default") {
    return new Repository(this.service, { repo });
  }

  /** What happens in all repositories of the token, best effort; it goes on after a break. */
  events(options?: Options) {
    return this.service.stream({}, options);
  }

  /** How far a job is, to its end; it goes on after a break. */
  job_events({ id }: { id: string }, options?: Options) {
    const path = `/v1/jobs/${encodeURIComponent(id)}/events`;
    return this.service.stream<JobMessage>({ path }, options);
  }
"""
STREAM = """
  /** What was written and what happens; it resumes behind the last message after a break. */
  events(given: { after?: string } = {}, options?: Options) {
    return this.service.stream({ ...this.where, ...given }, options);
  }
"""


def document() -> dict[str, Any]:
    """The service's OpenAPI document."""
    return web_app(Mnemo("memory:"), tokens=[token_of("none", "none")]).app.openapi()


def typescript(folder: Path, described: dict[str, Any]) -> None:
    """
    Write the client into *folder*.

    Raises:
        SystemExit: There is no npm, or it could not have the packages.
    """
    if shutil.which("npm") is None:
        raise SystemExit("npm is needed: it runs openapi-typescript")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as made:
        source = Path(made) / "openapi.json"
        source.write_text(json.dumps(described), encoding="utf-8")
        # What has a default may be left out of a request; an answer requires all that it has.
        command = ["openapi-typescript", source, "--default-non-nullable=false"]
        npm(*command, "--output", (folder / "api.d.ts").resolve(), cwd=made)
    (folder / "client.ts").write_text("\n".join(client(described)), encoding="utf-8")
    shutil.copyfile(TRANSPORT, folder / "transport.ts")


def npm(*command: object, cwd: str | Path) -> None:
    """Run a command of ``PACKAGES`` in *cwd*. *Raises* ``SystemExit``: it failed."""
    packages = [f"--package={one}" for one in PACKAGES]
    done = subprocess.run(
        ["npm", "exec", "--yes", *packages, "--", *map(str, command)],
        cwd=cwd, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{command[0]} failed:\n{done.stdout}{done.stderr}")


def client(described: dict[str, Any]) -> Iterator[str]:
    """The lines of ``client.ts``."""
    calls: dict[str | None, list[str]] = {owner: [] for owner in (None, *HANDLES)}
    for path, methods in described["paths"].items():
        for method, told in methods.items():
            owner, _, name = told["operationId"].removeprefix("memory.").rpartition(".")
            of = owner if owner in HANDLES and _has_repo(told) else None
            if of is None:
                name = f"{owner}_{name}".removeprefix("_")
            sent = told.get("requestBody", {}).get("content", {}).get("application/json", {})
            of_body = sent.get("schema", {}).get("$ref", "").rpartition("/")[2]
            body = described["components"]["schemas"].get(of_body, {})
            if not _is_stream(told):
                calls[of] += _method(told, name, _call(method.upper(), path, told, body), of)
    yield HEAD
    for owner, (cls, _) in sorted(HANDLES.items(), reverse=True):
        yield from _handle(owner, cls, calls[owner])
    yield f"export class Mnemo extends Handle {{{FIRST}"
    yield from calls[None]
    yield "}\n"


def _has_repo(told: dict[str, Any]) -> bool:
    """Whether it is a call of one repository, not of several, which `null` stands for."""
    asked = told.get("parameters", ())
    return any(one["name"] == "repo" and "type" in one["schema"] for one in asked)


def _is_stream(told: dict[str, Any]) -> bool:
    """Whether the answer is a stream of events, of which the template has the call."""
    return "text/event-stream" in told["responses"].get("200", {}).get("content", {})


def _handle(owner: str, cls: str, methods: list[str]) -> Iterator[str]:
    """A class of what *owner* leads to, with the handles behind it."""
    yield f"export class {cls} extends Handle {{"
    for other, (part, said) in HANDLES.items():
        if other and other.rpartition(".")[0] == owner:
            own = [one for one in said if one not in HANDLES[owner][1]]
            name = other.rpartition(".")[2]
            if own:
                yield f"  {name}({own[0]}: string) {{"
                yield f"    return new {part}(this.service, {{ ...this.where, {own[0]} }});\n  }}\n"
            else:
                yield f"  get {name}() {{"
                yield f"    return new {part}(this.service, this.where);\n  }}\n"
    if not owner:
        yield STREAM
    yield from methods
    yield "}\n"


def _call(method: str, path: str, told: dict[str, Any], body: dict[str, Any]) -> str:
    """How a call is sent, and whether it may be sent twice."""
    asked = [one["name"] for one in told.get("parameters", ()) if one["in"] == "query"]
    declared = OPERATIONS.get(told["operationId"])
    reads = method == "GET" or (declared is not None and declared.right == "read")
    is_keyed = "key" in body.get("properties", {}) and "key" not in body.get("required", ())
    again = json.dumps("key" if is_keyed and not reads else reads)
    return f'{{ method: "{method}", path: "{path}", inQuery: {json.dumps(asked)}, again: {again} }}'


def _method(told: dict[str, Any], name: str, call: str, of: str | None) -> Iterator[str]:
    """A call: its arguments but for those that its handle has said, and its answer."""
    id, said = json.dumps(told["operationId"]), () if of is None else HANDLES[of][1]
    asked = [one for one in told.get("parameters", ()) if one["name"] not in said]
    body = told.get("requestBody", {"content": {}})
    is_stream = body["content"] and "application/json" not in body["content"]
    is_needed = any(one["required"] for one in asked) or (body.get("required") and not is_stream)
    kind = " | ".join(map(json.dumps, said)) or "never"
    given = f"given: Given<{id}, {kind}>{'' if is_needed or is_stream else ' = {}'}"
    stream = ("stream: BodyInit, ", ", stream") if is_stream else ("", "")
    yield f"  /** {told['summary']} */"
    yield f"  {name}({given}, {stream[0]}options?: Options) {{"
    yield f"    const call = {call} as const;"
    sent = f"call, this.where, given, options{stream[1]}"
    yield f"    return this.service.send<Answer<{id}>>({sent});\n  }}\n"


def main() -> int:
    """Write a client."""
    parser = argparse.ArgumentParser(prog="scripts/make_client", description=__doc__)
    parser.add_argument("language", choices=["typescript"])
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    typescript(given.folder, document())
    print(f"{given.folder / 'client.ts'}: import {{ Mnemo }} from it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
