"""What was remembered a moment ago is found at once, whatever the embedder is doing meanwhile."""

from collections.abc import AsyncIterator, Sequence
from itertools import product
from typing import Literal

import anyio
import pytest
from numpy.typing import NDArray

from mnemo import Config, Message, Mnemo, Repository
from mnemo.errors import ModelTimeout
from mnemo.index import embedding, follower
from mnemo.models.named import named_embedder
from mnemo.protocols import Embedder

pytestmark = pytest.mark.slow
STORED, ROUNDS = 50, 12


class Unwell:
    """An embedder which stops making vectors of texts; questions get theirs."""

    def __init__(self, well: Embedder) -> None:
        self.well, self.space = well, well.space
        self.how: Literal["well", "failing", "hanging"] = "well"
        self.mended = anyio.Event()

    async def embed(
        self, texts: Sequence[str], *, kind: Literal["document", "query"] = "document"
    ) -> NDArray:
        """Embed *texts*, or do not."""
        if kind == "document" and self.how == "failing":
            raise ModelTimeout("the embedder is down")
        if kind == "document" and self.how == "hanging":
            await self.mended.wait()
        return await self.well.embed(texts, kind=kind)


@pytest.fixture
def embedder(request) -> Unwell:
    """Well at first; the default one, if the test names no other."""
    return Unwell(named_embedder(getattr(request, "param", "minilm")))


@pytest.fixture
async def repo(tmp_path, embedder) -> AsyncIterator[Repository]:
    """Parcels, all of which have their vectors."""
    alone = {"quiet_s": 3_600, "most_waiting": 10_000}  # facts would be owed vectors too
    config = Config(recall={"record_access": False}, jobs=alone)
    async with Mnemo(tmp_path / "a.db", embedder=embedder, config=config) as memory:
        repo = await memory.open_repo("r")
        texts = (f"Parcel zeb{7 * number:06} lies in bay {number % 9}." for number in range(STORED))
        await repo.remember([Message("user", text) for text in texts])
        with anyio.fail_after(120):
            while (await repo.recall("Where is zeb000007?")).trace.owed:
                await anyio.lowlevel.checkpoint()
        yield repo
        embedder.mended.set()


async def missed(repo: Repository) -> list[tuple[str, bool, bool]]:
    """What is not found by a word that it alone has, while writes go on; by recall, by search."""
    found = []
    for number in range(ROUNDS):
        name = f"zeb{7 * number + 3:06}"
        await repo.remember(f"Parcel {name} lies in bay {number % 9}.")
        recalled = await repo.recall(f"Where is {name}?")
        texts = [candidate.node.text for candidate in recalled.candidates]
        hits = await repo.search(name)
        is_first = bool(texts) and name in texts[0]
        found.append((name, is_first, any(name in hit.snippet for hit in hits)))
    return [one for one in found if not all(one)]


async def test_while_writes_go_on_a_new_text_is_found_by_its_own_word(repo):
    """By recall as by search, and first."""
    assert await missed(repo) == []


@pytest.mark.parametrize(
    ("embedder", "how"),
    [("minilm", "failing"), ("minilm", "hanging"), ("static", "failing")],
    indirect=["embedder"],
)
async def test_without_a_vector_a_new_text_is_found_by_its_own_word(repo, embedder, how):
    """A cosine that is not known yet is as good as the words let expect; nobody waits long."""
    embedder.how = how
    with anyio.fail_after(60):
        assert await missed(repo) == []
    last = await repo.recall("Where is zeb000003?")
    assert last.trace.owed == ROUNDS
    assert last.trace.degraded == ()


async def test_a_new_text_is_found_in_other_words(repo, monkeypatch):
    """A recall gives the newest texts their vectors before it answers, on a busy machine too."""
    for room, name in product((embedding, follower), ("HUNG_S", "LOADING_S")):
        monkeypatch.setattr(room, name, 600.0)
    told = {
        "What is the name of my niece?": "My sister had a baby girl, we call her Juno.",
        "Where does he work?": "Tom got a job at the hospital in Leeds.",
        "Can I have a cheesecake?": "The doctor told me to stay away from milk products.",
        "Which vehicle do I drive?": "We bought a used Volvo on Saturday.",
        "When is the wedding?": "Ana and Bo will marry on the third of June.",
        "What animal lives with us?": "The kids wanted a hamster so much that we gave in.",
    }
    for number, (question, text) in enumerate(told.items()):
        await repo.remember(f"Parcel zeb{number:06} lies in bay {number}.")
        await repo.remember(text)
        found = await repo.recall(question)
        assert found.candidates[0].node.text == text
