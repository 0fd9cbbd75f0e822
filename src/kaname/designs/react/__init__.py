"""Design A, the ReAct runtime: `AgentRuntime`, and the parts of one's own that it calls."""
