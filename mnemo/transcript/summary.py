"""What a summary is asked for, whoever writes it."""

from __future__ import annotations

from dataclasses import dataclass

from mnemo.transcript.message import StoredMessage

__all__ = ["SummaryRequest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryRequest:
    """
    A range to be summarised: of messages, or of summaries that become one.

    Attributes:
        messages: Ascending; empty where *summaries* are not.
        summaries: Texts, oldest first; empty where *messages* are not.
        earlier: Summaries of what was said before the range, oldest first; for continuity,
            not to be told again.
        max_tokens: Of the text, at most, by the service's count.
    """

    messages: tuple[StoredMessage, ...] = ()
    summaries: tuple[str, ...] = ()
    earlier: tuple[str, ...] = ()
    max_tokens: int
