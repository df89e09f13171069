"""MCP: one repository as a server for any program that speaks the protocol."""

try:
    from mnemo.mcp.server import memory_server, serve_stdio
except ModuleNotFoundError as error:
    if (error.name or "").split(".")[0] != "mcp":
        raise
    raise ImportError("the MCP server needs pip install 'mnemo-sessions[mcp]'") from error

__all__ = ["memory_server", "serve_stdio"]
