"""The step sequence's own names for what is called otherwise in `kaname`."""

from __future__ import annotations

from ..agent.steps.sequence import AgentStepSequence
from ..core.messages import ModelReply, StopReason, ToolCall, ToolResult
from ..core.state import State
from ..core.steps import Stop
from ..strategies.termination import TerminationPolicy

AgentLoopContext = State
AgentLoopRunner = AgentStepSequence
AgentTerminationPolicy = TerminationPolicy
LLMResponse = ModelReply
TerminationReason = Stop
ToolCallInfo = ToolCall
ToolResultInfo = ToolResult
__all__ = [
    "AgentLoopContext",
    "AgentLoopRunner",
    "AgentTerminationPolicy",
    "LLMResponse",
    "StopReason",
    "TerminationReason",
    "ToolCallInfo",
    "ToolResultInfo",
]
