"""Design C, the step sequence: the run as steps that the caller pulls; and its own names for what kaname calls otherwise."""

from __future__ import annotations

from ...core.messages import ModelReply, ToolCall, ToolResult
from ...core.messages import StopReason as StopReason
from ...core.state import State
from ...core.steps import Stop
from ...strategies.termination import TerminationPolicy
from .configuration import AgentConfiguration as AgentConfiguration
from .sequence import AgentStepSequence as AgentStepSequence

AgentLoopContext = State
AgentLoopRunner = AgentStepSequence
AgentTerminationPolicy = TerminationPolicy
LLMResponse = ModelReply
TerminationReason = Stop
ToolCallInfo = ToolCall
ToolResultInfo = ToolResult
