"""Row level security, as the guide has it: each role sees its own repositories alone."""

import re
from collections.abc import Iterator
from importlib.resources import files

import pytest
from helpers import lines_of
from postgres_server import execute, new_schema, postgres_store

from mnemo import Changeset, Mnemo, MnemoError, Semantic, StoreError
from mnemo.testing import HashingEmbedder

pytestmark = [pytest.mark.postgres, pytest.mark.slow, pytest.mark.long]

ROLES = ("ada", "bea")
COMMON = {"meta", "owners", "locks", "commits", "caches", "erased"}
"""Tables of no repository."""
_RIGHTS = """
GRANT USAGE ON SCHEMA {0} TO ada, bea;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {0} TO ada, bea;
GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA {0} TO ada, bea
"""
_OPEN_TABLES = """
SELECT relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE nspname = '{0}' AND relkind = 'r' AND NOT relrowsecurity
"""


def service(url: str) -> Mnemo:
    return Mnemo(url, embedder=HashingEmbedder())


def policies() -> str:
    """The statements of the guide."""
    page = (files("mnemo") / "guide" / "postgres.md").read_text()
    (block,) = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    return str(block)


@pytest.fixture
async def urls(postgres_server: str) -> Iterator[dict[str, str]]:
    """The URLs of two roles, and that of the owner, in a schema with the policies."""
    with new_schema(postgres_server) as url:
        store = postgres_store(url)
        await store.open()
        await store.aclose()
        schema = url.rpartition("schema=")[2]
        for _ in range(2):  # As after a migration.
            execute(postgres_server, policies().replace("= mnemo;", f"= {schema};"))
        for role in ROLES:
            execute(postgres_server, f"CREATE ROLE {role} LOGIN")
        execute(postgres_server, _RIGHTS.format(schema))
        yield {"owner": url} | {role: url.replace("postgres:@", f"{role}@") for role in ROLES}
        execute(postgres_server, f"DROP SCHEMA {schema} CASCADE; DROP ROLE ada, bea")


async def lived(url: str, name: str) -> list[str]:
    """Use everything in the repository *name*; give its archive."""
    async with service(url) as memory:
        repo = await memory.open_repo(name)
        session = await repo.start_session("Plan a trip", session_id=f"trip of {name}")
        await session.append(f"The harbour of {name} is closed.", "Noted it")
        await session.close_and_commit()
        await repo.remember(f"I live in Bern, says {name}.", thread_id="t", wait=True)
        await repo.notes.write("harbour", f"Closed on Mondays for {name}.", "Opening hours")
        await repo.items.put(("a",), "k", {"text": f"A pear of {name}."})
        await repo.settle()
        return await lines_of(memory, name)


async def test_every_table_with_rows_of_a_repository_has_a_policy(urls, postgres_server):
    """A table that is new needs none of its own: the statements find it by its parent."""
    schema = urls["owner"].rpartition("schema=")[2]
    open_tables = {str(name) for (name,) in execute(postgres_server, _OPEN_TABLES.format(schema))}
    assert open_tables == COMMON


async def test_each_role_sees_its_own_repositories_alone(urls):
    """Recall, search, lists, checks and jobs: nothing of the other one, and nothing is missing."""
    for role in ROLES:
        assert len(await lived(urls[role], role)) > 5
    for role, other in (ROLES, reversed(ROLES)):
        async with service(urls[role]) as memory:
            assert [one.id for one in await memory.repos()] == [role]
            repo = await memory.open_repo(role)
            found = await repo.recall("Where does the user live?", k=50)
            assert f"says {role}" in found.as_text()
            assert other not in found.as_text()
            assert [hit.session_id for hit in await repo.search("harbour")] == [f"trip of {role}"]
            assert [note.topic for note in await repo.notes.list()] == ["harbour"]
            assert (await memory.check()).problems == ()
            assert (await repo.statistics()).jobs.running == 0
            with pytest.raises(MnemoError):
                async with memory.export_repo(other) as lines:
                    assert [line async for line in lines] == []
    async with service(urls["owner"]) as memory:
        assert [one.id for one in await memory.repos()] == list(ROLES)
        assert (await memory.check()).problems == ()


async def test_no_role_writes_into_the_repository_of_another(urls):
    """What is there already stays hidden, what is new is refused, and nothing changes."""
    before = await lived(urls["ada"], "ada")
    async with service(urls["bea"]) as memory:
        for name in ("ada", "ada/new"):
            repo = await memory.open_repo(name)
            with pytest.raises(StoreError, match="may not do this"):
                await repo.apply(Changeset((Semantic("Bea was here."),)))
            assert (await repo.recall("harbour")).candidates == []
        with pytest.raises(MnemoError):
            await memory.delete_repo("ada")
        own = await memory.open_repo("bea/notes")
        await own.start_session("An id says nothing", session_id="trip of ada")
        assert [one.id for one in await memory.repos()] == ["bea/notes"]
    async with service(urls["ada"]) as memory, memory.export_repo("ada") as lines:
        assert [line async for line in lines] == before


async def test_a_role_deletes_what_is_its_own(urls):
    """Erasing a session, then the repository: the other one is as before."""
    before = await lived(urls["ada"], "ada")
    await lived(urls["bea"], "bea")
    async with service(urls["bea"]) as memory:
        repo = await memory.open_repo("bea")
        assert (await repo.forget(thread_id="t")).messages == 1
        await memory.close_repo("bea")
        assert (await memory.delete_repo("bea")).sessions >= 1
        assert await memory.repos() == []
    async with service(urls["ada"]) as memory, memory.export_repo("ada") as lines:
        assert [line async for line in lines] == before
