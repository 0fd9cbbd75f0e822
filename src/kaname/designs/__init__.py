"""The five designs under their own names: each class is a thin form of something that `kaname` has anyway.

`from kaname.designs import AgentRuntime`; `docs/designs` has a page for each design. A name is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOMES = {
    # A: the ReAct runtime
    "designs.react.runtime": ("AgentResult", "AgentRuntime", "LLMProvider", "ReActPlanner"),
    "designs.react.parts": ("PlanResult",),
    # B: the tiny agent
    "designs.tiny_agent": ("TinyAgent", "YgentsConfig"),
    "config.llm": ("ClaudeConfig", "LLMConfig", "OpenAIConfig"),
    # C: the step sequence
    "agent.steps.configuration": ("AgentConfiguration",),
    "agent.steps.sequence": (
        "AgentStepSequence",
        "FinalResponseStep",
        "ThinkingStep",
        "ToolCallStep",
        "ToolResultStep",
    ),
    "agent.steps.phase": ("LoopPhase",),
    "designs.step_sequence": (
        "AgentLoopContext",
        "AgentLoopRunner",
        "AgentTerminationPolicy",
        "LLMResponse",
        "StopReason",
        "TerminationReason",
        "ToolCallInfo",
        "ToolResultInfo",
    ),
    "strategies.termination": (
        "ContinueWithThinking",
        "ContinueWithTools",
        "DuplicateDetectionPolicy",
        "StandardTerminationPolicy",
        "TerminateImmediately",
        "TerminateWithOutput",
        "TerminationDecision",
        "TerminationPolicy",
    ),
    "core.errors": (
        "AgentError",
        "InvalidState",
        "LLMError",
        "MaxStepsExceeded",
        "OutputDecodingFailed",
        "ToolExecutionFailed",
        "ToolNotFound",
    ),
    # D: MONONO
    "designs.monono.agent": ("BaseAgent",),
    "designs.monono.adapters": ("AnthropicAdapter", "LLMAdapter", "OpenAIAdapter"),
    "designs.monono.guards": ("Guardrail", "TokenGuard"),
    "designs.monono.collaboration": ("CollaborationManager",),
    "designs.monono.context_manager": ("ContextManager", "as_context_part"),
    "designs.monono.learning": ("LearningEngine",),
    "designs.monono.multimodal": ("MultiModalProcessor",),
    "designs.monono.performance": ("CacheManager", "PerformanceOptimizer"),
    "designs.monono.recovery": ("ErrorRecoveryManager",),
    "policies.failure.tool_fallback": ("RecoveryStep",),
    "designs.monono.resources": ("ResourceManager",),
    "designs.monono.security": ("SecurityManager",),
    "designs.monono.security_parts": ("AccessControlList", "AuditLogger", "EncryptionHandler"),
    "designs.monono.trace_logger": ("TraceLogger", "as_sink"),
    "designs.monono.workflow_engine": ("WorkflowEngine",),
    # E: plan, execute, monitor, evaluate
    "designs.orchestrator.orchestrator": ("AgentOrchestrator",),
    "strategies.graph.asking": ("EvaluationResult",),
    "strategies.graph.plan": ("ExecutionPlan", "ExecutionStep"),
    "designs.orchestrator.interfaces": ("IClaudeClient", "IExecutionMonitor", "IStateManager", "ITaskPlanner"),
    "designs.orchestrator.context": ("AgentContext", "ExecutionResult"),
    "designs.orchestrator.parts": ("ExecutionMonitor", "StateManager", "TaskPlanner"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
__all__ = sorted(_HOME_OF)

if TYPE_CHECKING:
    from ..agent.steps.configuration import AgentConfiguration as AgentConfiguration
    from ..agent.steps.phase import LoopPhase as LoopPhase
    from ..agent.steps.sequence import AgentStepSequence as AgentStepSequence
    from ..agent.steps.sequence import FinalResponseStep as FinalResponseStep
    from ..agent.steps.sequence import ThinkingStep as ThinkingStep
    from ..agent.steps.sequence import ToolCallStep as ToolCallStep
    from ..agent.steps.sequence import ToolResultStep as ToolResultStep
    from ..config.llm import ClaudeConfig as ClaudeConfig
    from ..config.llm import LLMConfig as LLMConfig
    from ..config.llm import OpenAIConfig as OpenAIConfig
    from ..core.errors import AgentError as AgentError
    from ..core.errors import InvalidState as InvalidState
    from ..core.errors import LLMError as LLMError
    from ..core.errors import MaxStepsExceeded as MaxStepsExceeded
    from ..core.errors import OutputDecodingFailed as OutputDecodingFailed
    from ..core.errors import ToolExecutionFailed as ToolExecutionFailed
    from ..core.errors import ToolNotFound as ToolNotFound
    from ..policies.failure.tool_fallback import RecoveryStep as RecoveryStep
    from ..strategies.graph.asking import EvaluationResult as EvaluationResult
    from ..strategies.graph.plan import ExecutionPlan as ExecutionPlan
    from ..strategies.graph.plan import ExecutionStep as ExecutionStep
    from ..strategies.termination import ContinueWithThinking as ContinueWithThinking
    from ..strategies.termination import ContinueWithTools as ContinueWithTools
    from ..strategies.termination import DuplicateDetectionPolicy as DuplicateDetectionPolicy
    from ..strategies.termination import StandardTerminationPolicy as StandardTerminationPolicy
    from ..strategies.termination import TerminateImmediately as TerminateImmediately
    from ..strategies.termination import TerminateWithOutput as TerminateWithOutput
    from ..strategies.termination import TerminationDecision as TerminationDecision
    from ..strategies.termination import TerminationPolicy as TerminationPolicy
    from .monono.adapters import AnthropicAdapter as AnthropicAdapter
    from .monono.adapters import LLMAdapter as LLMAdapter
    from .monono.adapters import OpenAIAdapter as OpenAIAdapter
    from .monono.agent import BaseAgent as BaseAgent
    from .monono.collaboration import CollaborationManager as CollaborationManager
    from .monono.context_manager import ContextManager as ContextManager
    from .monono.context_manager import as_context_part as as_context_part
    from .monono.guards import Guardrail as Guardrail
    from .monono.guards import TokenGuard as TokenGuard
    from .monono.learning import LearningEngine as LearningEngine
    from .monono.multimodal import MultiModalProcessor as MultiModalProcessor
    from .monono.performance import CacheManager as CacheManager
    from .monono.performance import PerformanceOptimizer as PerformanceOptimizer
    from .monono.recovery import ErrorRecoveryManager as ErrorRecoveryManager
    from .monono.resources import ResourceManager as ResourceManager
    from .monono.security import SecurityManager as SecurityManager
    from .monono.security_parts import AccessControlList as AccessControlList
    from .monono.security_parts import AuditLogger as AuditLogger
    from .monono.security_parts import EncryptionHandler as EncryptionHandler
    from .monono.trace_logger import TraceLogger as TraceLogger
    from .monono.trace_logger import as_sink as as_sink
    from .monono.workflow_engine import WorkflowEngine as WorkflowEngine
    from .orchestrator.context import AgentContext as AgentContext
    from .orchestrator.context import ExecutionResult as ExecutionResult
    from .orchestrator.interfaces import IClaudeClient as IClaudeClient
    from .orchestrator.interfaces import IExecutionMonitor as IExecutionMonitor
    from .orchestrator.interfaces import IStateManager as IStateManager
    from .orchestrator.interfaces import ITaskPlanner as ITaskPlanner
    from .orchestrator.orchestrator import AgentOrchestrator as AgentOrchestrator
    from .orchestrator.parts import ExecutionMonitor as ExecutionMonitor
    from .orchestrator.parts import StateManager as StateManager
    from .orchestrator.parts import TaskPlanner as TaskPlanner
    from .react.parts import PlanResult as PlanResult
    from .react.runtime import AgentResult as AgentResult
    from .react.runtime import AgentRuntime as AgentRuntime
    from .react.runtime import LLMProvider as LLMProvider
    from .react.runtime import ReActPlanner as ReActPlanner
    from .step_sequence import AgentLoopContext as AgentLoopContext
    from .step_sequence import AgentLoopRunner as AgentLoopRunner
    from .step_sequence import AgentTerminationPolicy as AgentTerminationPolicy
    from .step_sequence import LLMResponse as LLMResponse
    from .step_sequence import StopReason as StopReason
    from .step_sequence import TerminationReason as TerminationReason
    from .step_sequence import ToolCallInfo as ToolCallInfo
    from .step_sequence import ToolResultInfo as ToolResultInfo
    from .tiny_agent import TinyAgent as TinyAgent
    from .tiny_agent import YgentsConfig as YgentsConfig


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        import kaname

        return getattr(kaname, name)  # a name that a design shares with kaname itself: Guardrails, ToolRegistry, AgentError …
    value = getattr(import_module(f"kaname.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
