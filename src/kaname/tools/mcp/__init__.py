"""Tools that live in other processes: MCP servers, through FastMCP's client, which is loaded when the first one starts."""
