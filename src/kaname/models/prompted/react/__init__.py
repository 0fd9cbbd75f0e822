"""The ReAct text protocol."""
