"""The tools that an agent can call: functions, definitions, MCP servers, and those that come with kaname."""
