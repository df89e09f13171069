"""Another process that maintains a file: consolidates and validates it a few times, tells how."""

import asyncio
import json
import sys

from helpers import repository


async def main(store: str) -> None:
    """Print the ids that each consolidation deleted."""
    async with repository(store, "r") as repo:
        deleted = []
        for _ in range(5):
            deleted.append((await repo.consolidate()).deleted_ids)
            await repo.validate()
        sys.stdout.write(json.dumps(deleted))


asyncio.run(main(sys.argv[1]))
