"""The HTTP service: mnemo for browsers and for programs in any language."""

from mnemo.runtime.extras import refuse

try:
    from mnemo.web.access import Token, new_token, read_tokens, token_of
    from mnemo.web.app import web_app
    from mnemo.web.gate import LOOPBACK
    from mnemo.web.peers import Worker
    from mnemo.web.serving import Limits, serve
except ImportError as error:
    own = ("fastapi", "httptools", "sse_starlette", "starlette", "uvicorn")
    refuse("the HTTP service", "serve", error, *own)

__all__ = [
    "LOOPBACK",
    "Limits",
    "Token",
    "Worker",
    "new_token",
    "read_tokens",
    "serve",
    "token_of",
    "web_app",
]
