"""The HTTP service: mnemo for browsers and for programs in any language."""

try:
    from mnemo.web.app import web_app
    from mnemo.web.gate import LOOPBACK
    from mnemo.web.serving import serve
    from mnemo.web.tokens import Token, new_token, read_tokens, token_of
except ModuleNotFoundError as error:
    if (error.name or "").split(".")[0] not in ("fastapi", "sse_starlette", "starlette", "uvicorn"):
        raise
    raise ImportError("the HTTP service needs pip install 'mnemo-sessions[serve]'") from error

__all__ = ["LOOPBACK", "Token", "new_token", "read_tokens", "serve", "token_of", "web_app"]
