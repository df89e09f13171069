"""LangGraph: ``MnemoStore`` keeps items across threads."""

from mnemo.adapters.langgraph_store import MnemoStore

__all__ = ["MnemoStore"]
