"""The routes of the HTTP service, by subject."""

from mnemo.web.routes import memories, operations

__all__ = ["ROUTERS"]

ROUTERS = (memories.router, operations.router)
