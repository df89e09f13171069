"""The routes of the HTTP service, by subject."""

from mnemo.web.routes import conversations, graph, memories, notes, operations, sessions

_SUBJECTS = (memories, conversations, sessions, notes, graph, operations)
ROUTERS = tuple(subject.router for subject in _SUBJECTS)
