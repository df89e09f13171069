"""The routes of the HTTP service: derived from the declarations, and those that only HTTP has."""

from mnemo.web.routes import conversations, derived, operations, sessions

ROUTERS = tuple(one.router for one in (derived, conversations, sessions, operations))
