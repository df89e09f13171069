"""The routes of the HTTP service, by subject."""

from mnemo.web.routes import conversations, memories, notes, operations, sessions

__all__ = ["ROUTERS"]

ROUTERS = tuple(module.router for module in (memories, conversations, sessions, notes, operations))
