"""A model server for the stories that need one, and the engines that stories run on."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from http_kit import ANTHROPIC, OPENAI, Provider
from postgres_server import empty, new_schema

from mnemo import Mnemo

ALSO_ON_POSTGRES = {
    "test_bad_input",
    "test_conversations_in_the_background",
    "test_cost",
    "test_everyday",
    "test_export_and_import",
    "test_filtered_recall",
    "test_found_at_once",
    "test_large_texts",
    "test_messages_in_recall",
    "test_new_user",
    "test_odd_ids_and_numbers",
    "test_odd_times",
    "test_roles_in_a_loop",
    "test_talk_with_wrong_arguments",
    "test_token_counter",
    "test_who_did_what",
    "test_wire_formats",
}
"""Modules whose stories are told on PostgreSQL, too."""
OF_FILES = {
    "test_a_bad_place_is_refused_and_left_alone",
    "test_a_foreign_lock_costs_one_call_not_the_session",
    "test_a_full_disk_costs_one_call_not_the_session",
    "test_a_path_that_no_file_can_have_is_refused",
    "test_a_place_that_was_mended_can_be_opened_by_the_same_service",
    "test_a_program_as_in_the_readme_passes_a_strict_type_checker",
    "test_a_store_that_may_only_be_read_is_read_and_closed_without_an_error",
    "test_a_time_that_an_earlier_version_has_stored_poisons_nothing",
    "test_ten_megabytes_are_kept_whole_and_hold_nobody_up",
    "test_steps_that_overtake_the_model_cost_a_call_per_eight",
    "test_an_export_may_be_left_in_the_middle",
    "test_an_archive_with_numbers_or_ids_that_are_none_is_refused",
}
"""Stories of these modules that are about files, take long, or want a store to be fast."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the stories of some modules a second time."""
    if metafunc.module.__name__.rpartition(".")[2] in ALSO_ON_POSTGRES:
        if metafunc.function.__name__ in OF_FILES:
            return
        marks = (pytest.mark.postgres, pytest.mark.slow, pytest.mark.long)
        engines = ["sqlite", pytest.param("postgres", marks=marks)]
        metafunc.parametrize("engine", engines, indirect=True)


class Schemas:
    """Empty schemas of the server, made when they are needed and used again."""

    def __init__(self, server: str, stack: ExitStack) -> None:
        self._server = server
        self._stack = stack
        self._free: list[str] = []
        self._used: dict[object, str] = {}

    def of(self, place: object) -> str:
        """The URL of the schema in the place of a file; each store in memory has its own."""
        key = object() if place == "memory:" else str(place)
        if key not in self._used:
            made = self._free.pop() if self._free else self._made()
            self._used[key] = made
        return self._used[key]

    def _made(self) -> str:
        return self._stack.enter_context(new_schema(self._server))

    def give_back(self) -> None:
        """Empty those that were used."""
        for url in self._used.values():
            empty(url)
            self._free.append(url)
        self._used.clear()


@pytest.fixture(scope="session")
def schemas(postgres_server: str) -> Iterator[Schemas]:
    """Schemas that stories share, one after the other."""
    with ExitStack() as stack:
        yield Schemas(postgres_server, stack)


@pytest.fixture(autouse=True)
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """``postgres``: services find a schema where a story names a file or a store in memory."""
    if getattr(request, "param", "sqlite") == "sqlite":
        yield
        return
    schemas: Schemas = request.getfixturevalue("schemas")
    made = Mnemo.__init__

    def on_postgres(self: Mnemo, store: Any = "mnemo.db", **options: Any) -> None:
        is_place = isinstance(store, str | Path) and "://" not in str(store)
        made(self, schemas.of(store) if is_place else store, **options)

    monkeypatch.setattr(Mnemo, "__init__", on_postgres)
    yield
    schemas.give_back()


@pytest.fixture(params=[OPENAI, ANTHROPIC], ids=lambda provider: provider.name)
def provider(request: pytest.FixtureRequest) -> Provider:
    """Both protocols, one after the other."""
    return request.param
