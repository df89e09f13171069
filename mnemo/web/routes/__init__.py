"""The routes of the HTTP service: derived from the declarations, and those that only HTTP has."""

from mnemo.web.routes import archives, conversations, derived, jobs, operations, sessions

ROUTERS = tuple(
    one.router for one in (derived, archives, jobs, conversations, sessions, operations)
)
