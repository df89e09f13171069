"""A thread that is compressed in the background: what the tests of compression share."""

from dataclasses import dataclass
from typing import Any

from talk_kit import OpenTalk, Talk

from mnemo.config import Config
from mnemo.conversation.compression import Compressing
from mnemo.conversation.log import MessageLog
from mnemo.conversation.scope import ThreadSettings
from mnemo.events import CompactionRecorded, CompressionFailed
from mnemo.testing import ScriptedChatModel
from mnemo.values.derived import Compaction
from mnemo.values.messages import Message
from mnemo.values.strategies import Summary


@dataclass
class Compressed:
    """
    One thread ``t`` with a ``Summary``, compressed after each append.

    Attributes:
        model: Answers ``summarize``; what its script says.
    """

    talk: Talk
    log: MessageLog
    settings: ThreadSettings
    compressing: Compressing
    model: ScriptedChatModel

    @property
    def calls(self) -> int:
        """How often the model was asked."""
        return len(self.model.calls("summarize"))

    @property
    def failures(self) -> list[CompressionFailed]:
        """The failures that were told."""
        return self.talk.seen.of(CompressionFailed)

    @property
    def recorded(self) -> list[tuple[int, int, int]]:
        """The records that were told: start, end, level."""
        events = self.talk.seen.of(CompactionRecorded)
        return [(event.start_seq, event.end_seq, event.level) for event in events]

    async def append(self, *messages: Message) -> None:
        """Append, and let the background come to rest."""
        await self.log.append(list(messages))
        await self.compressing.settled("t")

    async def records(self, *, live: bool = True) -> list[Compaction]:
        """Those that the store has."""
        return await self.talk.parts.store.reading(lambda tx: tx.all(Compaction, "t", live=live))

    async def ranges(self) -> list[tuple[int, int]]:
        """What the live ones cover."""
        return [(one.start_seq, one.end_seq) for one in await self.records()]

    async def compress(self) -> Compaction | None:
        """``c.compress()``."""
        return await self.compressing.compress(self.settings)


async def compressed(
    open_conversations: OpenTalk,
    summary: Summary,
    *,
    script: Any = "What they said.",
    embedded: bool = False,
    config: Config | None = None,
    summarizer: Any = None,
    **parts: Any,
) -> Compressed:
    """Open a thread that is compressed by *summary*."""
    model = ScriptedChatModel({"summarize": script})
    made: list[Compressing] = []
    talk = await open_conversations(
        config=config,
        chat_model=None if embedded else model,
        appended=lambda settings: made[0].appended(settings),
        **parts,
    )
    made.append(Compressing(talk.parts, summarizer=summarizer))
    settings = talk.settings(compression=summary)
    log = talk.log(compression=summary)
    return Compressed(talk, log, settings, made[0], model)
