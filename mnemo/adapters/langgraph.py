"""LangGraph: ``MnemoSaver`` keeps the states of graphs, ``MnemoStore`` items across threads."""

from mnemo.adapters.langgraph_checkpoints import MnemoSaver
from mnemo.adapters.langgraph_store import MnemoStore

__all__ = ["MnemoSaver", "MnemoStore"]
