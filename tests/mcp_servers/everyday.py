"""A FastMCP server for the tests, in memory or over stdio: `python -m tests.mcp_servers.everyday`."""

import asyncio
import base64
import os
from enum import StrEnum

from pydantic import BaseModel

PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")


class Colour(StrEnum):
    red = "red"
    blue = "blue"


class Node(BaseModel):
    name: str
    colour: Colour = Colour.red
    children: list["Node"] = []


class Who(BaseModel):
    name: str


def make(name="everyday"):  # noqa: C901
    from fastmcp import Context, FastMCP
    from fastmcp.exceptions import ToolError
    from fastmcp.utilities.types import Image
    from mcp_types import ToolAnnotations, ToolListChangedNotification

    server = FastMCP(name)

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def nested(root: Node) -> int:
        """Count the nodes of a tree."""
        return 1 + len(root.children)

    @server.tool()
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool()
    async def slow(seconds: float, ctx: Context) -> str:
        """Take a while."""
        for step in range(int(seconds * 10)):
            await ctx.report_progress(step, seconds * 10)
            await asyncio.sleep(0.1)
        return "done"

    @server.tool()
    def fail() -> str:
        """Fail."""
        raise ToolError("it failed on purpose")

    @server.tool()
    def picture() -> Image:
        """A picture."""
        return Image(data=PNG, format="png")

    @server.tool()
    async def ask(ctx: Context) -> str:
        """Ask the user for a name."""
        answer = await ctx.elicit("Who are you?", Who)
        return f"{answer.action}: {answer.data.name}" if answer.action == "accept" else answer.action

    @server.tool()
    async def grow(name: str, ctx: Context) -> str:
        """Add a tool while running."""
        server.tool(lambda: "new", name=name)
        await ctx.send_notification(ToolListChangedNotification())
        return "added"

    @server.tool()
    def environment() -> list[str]:
        """The names of the variables that this process was given."""
        return sorted(os.environ)

    @server.tool()
    def process() -> int:
        """The process id."""
        return os.getpid()

    @server.resource("shop://hours")
    def hours() -> str:
        """When the shop is open."""
        return "10 to 18"

    @server.prompt()
    def greet(name: str) -> str:
        """Greet somebody."""
        return f"Greet {name} kindly."

    return server


if __name__ == "__main__":
    make().run(show_banner=False)
