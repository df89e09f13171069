"""Another process that maintains a file: consolidates and validates it a few times, tells how."""

import asyncio
import json
import sys

from mnemo import Mnemo
from mnemo.testing import HashingEmbedder


async def main(store: str) -> None:
    """Print the ids that each consolidation deleted."""
    async with Mnemo(store, embedder=HashingEmbedder()) as memory:
        repo = await memory.open_repo("r")
        deleted = []
        for _ in range(5):
            deleted.append((await repo.consolidate()).deleted_ids)
            await repo.validate()
        sys.stdout.write(json.dumps(deleted))


asyncio.run(main(sys.argv[1]))
