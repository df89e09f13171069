"""``MnemoMemoryTool``: Anthropic's memory tool (``memory_20250818``) over notes."""

from __future__ import annotations

import asyncio
import re
import threading
import unicodedata
from hashlib import sha256
from os import PathLike
from typing import Any, Self, get_args

import anyio
from pydantic import ValidationError

from mnemo import NoteInfo, Repository
from mnemo import sync as blocking
from mnemo.adapters.handles import Adapter, AnyRepository, Handle, LazyService, wait_on
from mnemo.runtime.extras import refuse
from mnemo.runtime.secrets import without_secrets
from mnemo.values.notes import first_line, is_topic, suggested_topic

try:
    from anthropic.lib.tools import (
        BetaAbstractMemoryTool,
        BetaAsyncAbstractMemoryTool,
        ToolError,
    )
    from anthropic.types.beta import (
        BetaCacheControlEphemeralParam,
        BetaMemoryTool20250818Command,
    )
except ImportError as error:
    refuse(__name__, "anthropic", error)

__all__ = ["MnemoMemoryTool", "MnemoSyncMemoryTool"]

ROOT = "/memories"
LONGEST_PATH = 120
"""Characters; the description of a note holds its path (S)."""
_NAME = re.compile(r"\w[\w.-]*(?: [\w.-]+)*")
_COMMANDS: dict[str, Any] = {
    get_args(kind.model_fields["command"].annotation)[0]: kind
    for kind in get_args(get_args(BetaMemoryTool20250818Command)[0])
}


class MnemoMemoryTool(Adapter, BetaAsyncAbstractMemoryTool):
    """
    The memory tool of the asynchronous SDK, for ``client.beta.messages.tool_runner(tools=[…])``.

    A file is a note: ``/memories/TOPIC.md`` is the note ``TOPIC``, and a file of any other path
    is a note whose description begins with its path. What the model writes or deletes is a
    version by ``agent`` that ``notes.history`` shows and ``notes.restore`` brings back. Changes
    of a file that has changed since the model saw it are refused with its present text, unless
    they name the words to be replaced. All guards of notes hold: size, secrets, orders.

    Args:
        repo: An open repository, or one of ``mnemo.sync``. Make one tool for each conversation:
            it remembers what it has shown.
        cache_control: The SDK's.

    Raises:
        ConfigError: *repo* is no open repository.
    """

    def __init__(
        self,
        repo: AnyRepository | LazyService,
        *,
        cache_control: BetaCacheControlEphemeralParam | None = None,
    ) -> None:
        super().__init__(cache_control=cache_control)
        self._attach(repo, Repository, blocking.Repository)
        self._files = _Files(self._handle)
        self._turn = anyio.Lock()

    @classmethod
    def from_path(cls, path: str | PathLike[str], *, repo_id: str = "default") -> Self:
        """A tool over a file of its own, opened at the first call; close it at the end."""
        return cls(LazyService(path, repo_id))

    async def call(self, input: object) -> str:
        """
        Carry out a command of the model, after those that came before.

        Raises:
            ToolError: It cannot be carried out; the SDK gives its text to the model.
            StoreError: The store failed; what one file was to become was written or not.
            *Cancellation*: completes a write that has begun.
        """
        return await self._do(_command(input))

    async def _do(self, command: Any) -> str:
        async with self._turn:
            return await self._files.execute(command)

    view = create = str_replace = insert = delete = rename = _do

    async def clear_all_memory(self) -> str:
        """Delete all notes of the repository; ``notes.restore`` brings back, ``purge`` erases."""
        async with self._turn:
            return await self._files.clear()


class MnemoSyncMemoryTool(Adapter, BetaAbstractMemoryTool):
    """
    ``MnemoMemoryTool`` for the blocking client of the SDK.

    Args:
        repo: An open repository of ``mnemo.sync``; or an asynchronous one, where the tool is
            made on its event loop, and called in another thread.
        cache_control: The SDK's.

    Raises:
        ConfigError: *repo* is no open repository.
        RuntimeError: The repository is asynchronous, and no event loop runs here.
    """

    def __init__(
        self,
        repo: AnyRepository | LazyService,
        *,
        cache_control: BetaCacheControlEphemeralParam | None = None,
    ) -> None:
        super().__init__(cache_control=cache_control)
        self._attach(repo, Repository, blocking.Repository)
        self._loop = asyncio.get_running_loop() if isinstance(repo, Repository) else None
        self._files = _Files(self._handle if self._loop else _Direct.of(repo, blocking.Repository))
        self._turn = threading.Lock()

    @classmethod
    def from_path(cls, path: str | PathLike[str], *, repo_id: str = "default") -> Self:
        """A tool over a file of its own, opened at the first call; close it at the end."""
        return cls(LazyService(path, repo_id))

    def call(self, input: object) -> str:
        """Carry out a command of the model; blocks. *Raises*: as of ``MnemoMemoryTool``."""
        return self._do(_command(input))

    def _do(self, command: Any) -> str:
        with self._turn:
            return self._wait(self._files.execute, command)

    view = create = str_replace = insert = delete = rename = _do

    def clear_all_memory(self) -> str:
        """Delete all notes of the repository; ``notes.restore`` brings back, ``purge`` erases."""
        with self._turn:
            return self._wait(self._files.clear)

    def _wait(self, call: Any, *arguments: Any) -> str:
        if self._loop is not None:
            return str(wait_on(self._loop, lambda: call(*arguments), self))
        try:  # nothing that it awaits suspends it: a ``_Direct`` handle blocks
            call(*arguments).send(None)
        except StopIteration as done:
            return str(done.value)
        raise AssertionError("a blocking repository suspended a call")


class _Direct(Handle):
    """A handle that blocks the thread which awaits."""

    async def run(self, work: Any) -> Any:
        return self.wait(work)


class _Files:
    """The notes of a repository as files; one command at a time."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._toolbox: Any = None
        self._seen: dict[str, int] = {}  # topic → version that the model was shown

    async def execute(self, command: Any) -> str:
        """Carry out *command*. *Raises* ``ToolError``: it cannot be."""
        names = set(type(command).model_fields) - {"command"}
        given = {name: getattr(command, name) for name in names}
        given |= {name: _path(given[name]) for name in names if name.endswith("path")}
        self._there = await self._files()
        done: str = await getattr(self, f"_{command.command}")(**given)
        return done

    async def clear(self) -> str:
        """Delete all files."""
        self._there = await self._files()
        for path in self._there:
            await self._retire(path)
        return "All memory cleared"

    # ── The commands ─────────────────────────────────────────────────────────────────────

    async def _view(self, path: str, view_range: list[int] | None) -> str:
        if path not in self._there:
            return self._listed(path)
        lines = (await self._read(path))["body"].split("\n")
        first, last = view_range if view_range and len(view_range) == 2 else (1, -1)
        last = len(lines) if last == -1 else min(last, len(lines))
        if not 1 <= first <= last:
            raise ToolError(
                f"Invalid `view_range`: {view_range}. {path} has the lines 1 to {len(lines)}; "
                "-1 is the last one"
            )
        shown = _numbered(lines, first, last)
        return f"Here's the content of {path} with line numbers:\n{shown}"

    def _listed(self, path: str) -> str:
        below = self._below(path)
        if not below and path != ROOT:
            raise ToolError(f"The path {path} does not exist. Please provide a valid path.")
        sizes: dict[str, int] = {}
        for file in below:
            names = file[len(path) + 1 :].split("/")
            for depth in (1, 2)[: len(names)]:
                entry = "/".join(names[:depth]) + "/" * (depth < len(names))
                sizes[entry] = sizes.get(entry, 0) + self._there[file].size
        whole = sum(self._there[file].size for file in below)
        rows = [f"{_size(whole)}\t{path}"]
        rows += [f"{_size(size)}\t{path}/{entry}" for entry, size in sorted(sizes.items())]
        head = f"Here're the files and directories up to 2 levels deep in {path}"
        return "\n".join([f"{head}, excluding hidden items:", *rows])

    async def _create(self, path: str, file_text: str) -> str:
        self._check_free(path)
        topic = self._topic(path)
        about = _described(path, topic, first_line(file_text))
        await self._write("create", topic, about, file_text)
        return f"File created successfully at: {path}"

    async def _str_replace(self, path: str, old_str: str, new_str: str) -> str:
        note = await self._file(path)
        text = note["body"]
        if not old_str or old_str not in text:
            raise ToolError(
                f"No replacement was performed, old_str `{old_str}` did not appear verbatim "
                f"in {path}."
            )
        before, *after = text.split(old_str)
        if len(after) > 1:
            raise ToolError(
                f"No replacement was performed. {len(after)} occurrences of old_str `{old_str}`. "
                "Please ensure it is unique"
            )
        new = before + new_str + after[0]
        await self._write("str_replace", note["topic"], note["description"], new)
        at, lines = before.count("\n") + 1, new.split("\n")
        shown = _numbered(lines, max(1, at - 2), min(len(lines), at + 2))
        told = "The memory file has been edited. Here is the snippet showing the change"
        return f"{told} (with line numbers):\n{shown}"

    async def _insert(self, path: str, insert_line: int, insert_text: str) -> str:
        note = await self._file(path, unchanged=True)
        lines = note["body"].split("\n")
        if not 0 <= insert_line <= len(lines):
            raise ToolError(
                f"Invalid `insert_line` parameter: {insert_line}. "
                f"It should be within the range [0, {len(lines)}]."
            )
        lines.insert(insert_line, insert_text.rstrip("\n"))
        await self._write("insert", note["topic"], note["description"], "\n".join(lines))
        return f"The file {path} has been edited."

    async def _delete(self, path: str) -> str:
        for file in self._chosen(path, "delete"):
            await self._file(file, unchanged=True)
            await self._retire(file)
        return f"Successfully deleted {path}"

    async def _rename(self, old_path: str, new_path: str) -> str:
        chosen = self._chosen(old_path, "rename")
        self._check_free(new_path)
        for file in chosen:
            new = _path(new_path + file[len(old_path) :])
            note, topic = await self._file(file), self._topic(new)
            about = _described(new, topic, note["description"].removeprefix(f"{file}: "))
            gone = {} if topic == note["topic"] else {"absorbs": [note["topic"]]}
            await self._write("rename", topic, about, note["body"], **gone)
            self._there = await self._files()
        return f"Successfully renamed {old_path} to {new_path}"

    # ── Files and notes ──────────────────────────────────────────────────────────────────

    async def _files(self) -> dict[str, NoteInfo]:
        """All notes by their paths."""
        found = await self._handle.run(lambda repo: repo.notes.list())
        return {_path_of(note): note for note in found}

    def _below(self, path: str) -> list[str]:
        return sorted(file for file in self._there if file.startswith(f"{path}/"))

    def _chosen(self, path: str, what: str) -> list[str]:
        """The file, or the files of the directory."""
        if path == ROOT:
            raise ToolError(f"Cannot {what} the {ROOT} directory itself")
        chosen = [path] if path in self._there else self._below(path)
        if not chosen:
            raise ToolError(f"The path {path} does not exist")
        return chosen

    def _check_free(self, path: str) -> None:
        above = [path[:at] for at, letter in enumerate(path) if letter == "/"]
        if path == ROOT or self._below(path):
            raise ToolError(f"{path} is a directory")
        if path in self._there:
            raise ToolError(f"File {path} already exists")
        if under := next((one for one in above if one in self._there), None):
            raise ToolError(f"{under} is a file, not a directory")
        if without_secrets(path, lambda kind: "") != path:
            raise ToolError("A path must not hold a key, token or password")

    def _topic(self, path: str) -> str:
        """The note of a new file."""
        taken = {note.topic: file for file, note in self._there.items()}
        first, second = _topics(path)
        return second if taken.get(first, path) != path else first

    async def _file(self, path: str, *, unchanged: bool = False) -> dict[str, Any]:
        """The file. *Raises* ``ToolError``: it is none, or not *unchanged* since it was shown."""
        if path not in self._there:
            what = "is not a file." if self._below(path) or path == ROOT else "does not exist."
            raise ToolError(f"The path {path} {what} Please provide a valid path.")
        seen = self._seen.get(self._there[path].topic)
        note = await self._read(path)
        if unchanged and seen not in (None, note["version"]):
            raise ToolError(
                f"{path} has changed since you saw it; nothing was done. This is its text now:\n"
                f"{note['body']}"
            )
        return note

    async def _read(self, path: str) -> dict[str, Any]:
        note = await self._run("read_note", topic=self._there[path].topic)
        self._seen[note["topic"]] = note["version"]
        return note

    async def _write(self, act: str, topic: str, about: str, body: str, **given: Any) -> None:
        texts = {"topic": topic, "description": about, "body": body}
        done = await self._run("write_note", **texts, evidence=_evidence(act), **given)
        self._seen[topic] = done["version"]

    async def _retire(self, path: str) -> None:
        topic = (await self._read(path))["topic"]
        await self._run("delete_note", topic=topic, reason="delete", evidence=_evidence("delete"))
        del self._seen[topic]

    async def _run(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a note tool. *Raises* ``ToolError``: it refused."""

        def call(repo: Any) -> Any:
            if self._toolbox is None:
                self._toolbox = repo.notes.toolbox(limited=False)
            return self._toolbox.run({"id": tool, "name": tool, "arguments": arguments})

        answer: dict[str, Any] = await self._handle.run(call)
        if not answer["ok"]:
            body = f"\n{answer['body']}" if "body" in answer else ""
            raise ToolError(f"{answer['message']}{body}")
        return answer


def _command(input: object) -> Any:
    """What the model sent. *Raises* ``ToolError``: it is no command of the memory tool."""
    name = input.get("command") if isinstance(input, dict) else None
    if not isinstance(name, str) or name not in _COMMANDS:
        raise ToolError(f"command must be one of {', '.join(_COMMANDS)}, got: {name!r:.80}")
    try:
        return _COMMANDS[name].model_validate(input)
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_input=False)[0]
        raise ToolError(f"{'.'.join(map(str, wrong['loc']))}: {wrong['msg']}") from None


def _path(text: str) -> str:
    """*text* as a path of a file or directory. *Raises* ``ToolError``: it is none of these."""
    root, *names = text.removesuffix("/").removeprefix("/").split("/")
    is_below = text.startswith("/") and f"/{root}" == ROOT and len(text) <= LONGEST_PATH
    if is_below and all(map(_NAME.fullmatch, names)) and unicodedata.is_normalized("NFKC", text):
        return text.removesuffix("/")
    raise ToolError(
        f"Path must be {ROOT} or below it, got: {text[:LONGEST_PATH]!r}. It has at most "
        f"{LONGEST_PATH} characters; a name is of letters, digits, '.', '-', '_' and single "
        "spaces, and begins with none of '.', '-' and space"
    )


def _topics(path: str) -> tuple[str, str]:
    """The note of a file, and the one if that is another file's."""
    name = path[len(ROOT) + 1 :].removesuffix(".md")
    digest = sha256(path.encode()).hexdigest()[:8]
    topic = name if is_topic(name) else suggested_topic(name) or "file"
    return topic, f"{topic[:50].rstrip('-')}-f{digest}"


def _described(path: str, topic: str, about: str) -> str:
    """The description of a file's note; it says the path where the topic does not."""
    return (about if path == f"{ROOT}/{topic}.md" else f"{path}: {about}")[:200].strip()


def _path_of(note: NoteInfo) -> str:
    """The path of a note's file."""
    said, mark, _ = note.description.partition(": ")
    is_said = mark and said.startswith(f"{ROOT}/") and note.topic in _topics(said)
    return said if is_said else f"{ROOT}/{note.topic}.md"


def _evidence(act: str) -> str:
    """What a note tool wants as the words of a conversation; this tool has none."""
    return f"the memory tool's {act}"


def _numbered(lines: list[str], first: int, last: int) -> str:
    return "\n".join(f"{number:6}\t{lines[number - 1]}" for number in range(first, last + 1))


def _size(characters: int) -> str:
    return f"{characters}" if characters < 1024 else f"{characters / 1024:.1f}K"
