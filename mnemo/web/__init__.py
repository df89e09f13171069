"""The HTTP service: mnemo for browsers and for programs in any language."""

try:
    from mnemo.web.access import Token, new_token, read_tokens, token_of
    from mnemo.web.app import web_app
    from mnemo.web.gate import LOOPBACK
    from mnemo.web.peers import Worker
    from mnemo.web.serving import Limits, serve
except ModuleNotFoundError as error:
    extra = ("fastapi", "httptools", "sse_starlette", "starlette", "uvicorn")
    if (error.name or "").split(".")[0] not in extra:
        raise
    raise ImportError("the HTTP service needs pip install 'mnemo-sessions[serve]'") from error

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
