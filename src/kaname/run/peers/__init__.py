"""Names that people know from Pydantic AI, LangGraph and OpenAI Agents. Loaded when one of them was used in vain."""
