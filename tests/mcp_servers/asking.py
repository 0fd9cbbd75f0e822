"""A server that asks the user to fill in a form, in memory or over stdio: `python -m tests.mcp_servers.asking`."""

from pydantic import BaseModel, Field


class Booking(BaseModel):
    date: str = Field(description="as YYYY-MM-DD")
    seats: int
    window: bool = False
    meal: str = "fish"


def asking_server():
    from fastmcp import Context, FastMCP

    server = FastMCP("form")

    @server.tool()
    async def book(ctx: Context) -> str:
        """Book."""
        answer = await ctx.elicit("Your booking?", Booking)
        return f"{answer.action} {getattr(answer, 'data', None)}"

    return server


if __name__ == "__main__":
    asking_server().run(show_banner=False)
