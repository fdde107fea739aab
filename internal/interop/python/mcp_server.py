"""An MCP server made with the official Python package: mcp_server.py stdio | mcp_server.py http PORT."""

import sys

from mcp.server.mcpserver import Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("things")


@server.tool()
def add(a: int, b: int) -> int:
    """Add two whole numbers."""
    return a + b


@server.tool()
def greet(name: str, times: int = 1) -> str:
    """Greet somebody."""
    return f"grüß dich, {name}! " * times


@server.tool()
def fail(why: str) -> str:
    """Fail."""
    raise ToolError(why)


@server.tool()
def picture() -> Image:
    """A picture of nothing."""
    return Image(data=bytes(1000), format="png")


if sys.argv[1] == "http":
    server.run("streamable-http", port=int(sys.argv[2]))
else:
    server.run("stdio")
