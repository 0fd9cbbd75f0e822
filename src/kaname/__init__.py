"""kaname: one durable, streaming, abortable agent loop. The names below are imported when they are first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "api.agent": ("Agent",),
    "api.config.build": ("Config", "load_config"),
    "api.judge": ("Judge",),
    "api.memory.compact": ("Compact",),
    "api.memory.project": ("ProjectContext",),
    "api.memory.memory": ("Memory",),
    "api.memory.retention": ("Keep", "prune"),
    "api.result": ("Result",),
    "api.run": ("Run",),
    "api.memory.sessions": ("Sessions",),
    "api.designs.react_runtime": ("AgentResult", "AgentRuntime", "PlanResult", "ReActPlanner"),
    "api.designs.step_sequence": ("AgentConfiguration", "AgentStepSequence"),
    "context.history": ("AgentState",),
    "core.chunks": ("Chunk",),
    "api.ids": ("SharedSession",),
    "core.errors": (
        "AgentConnectionError",
        "AgentError",
        "ConfigError",
        "DiskFailed",
        "DuplicateToolError",
        "Halt",
        "InvalidState",
        "JournalCorrupt",
        "JournalError",
        "JournalFull",
        "JournalLocked",
        "JournalTooNew",
        "LLMError",
        "MaxStepsExceeded",
        "ModelError",
        "OutputDecodingFailed",
        "ReplayDiverged",
        "RunBusy",
        "RunExists",
        "RunNotFound",
        "RunStopped",
        "RunNeeded",
        "RunSuperseded",
        "SessionBusy",
        "Suspend",
        "ToolExecutionFailed",
        "ToolNotFound",
        "ToolNotFoundError",
        "UnexpectedError",
    ),
    "core.messages": ("Media", "Message", "ModelReply", "ModelRequest", "ToolCall", "ToolResult", "Usage"),
    "api.designs.orchestrator": ("AgentContext", "AgentOrchestrator", "ExecutionMonitor", "ExecutionResult", "TaskPlanner"),
    "strategies.graph.plan": ("ExecutionPlan", "ExecutionStep"),
    "strategies.graph.asking": ("EvaluationResult",),
    "api.workflow.workflow": ("Workflow",),
    "api.team.handoff": ("Team",),
    "context.window": ("Window",),
    "api.team.meeting": ("Meeting", "NotAllowed"),
    "api.team.merge": ("Merged", "merge"),
    "api.team.person": ("DelegateToHuman",),
    "api.team.roles": ("Role",),
    "core.state": ("State",),
    "core.steps": ("AgentStep", "Stop"),
    "journals.memory": ("MemoryJournal",),
    "journals.sqlite": ("SqliteJournal",),
    "kernel.ports": ("Policy", "Tool", "ToolContext"),
    "models.prompted.react.model": ("TextOnly",),
    "models.providers.scripted": ("ScriptedModel", "call"),
    "policies.approve": ("Approve",),
    "policies.fallback": ("Fallback", "FallbackResult", "FallbackStrategy"),
    "policies.guardrails.policy": ("Guardrails",),
    "policies.retry": ("Retry",),
    "policies.guardrails.tool_rules": ("ToolRule",),
    "policies.guardrails.verdicts": ("GuardrailAction", "GuardrailResult"),
    "strategies.stop": ("cost", "deadline", "max_steps", "no_repeats", "per_tool"),
    "strategies.termination": ("DuplicateDetectionPolicy", "StandardTerminationPolicy"),
    "tools.calculator.tool": ("CalculatorTool",),
    "tools.database.tool": ("DatabaseTool",),
    "tools.function": ("tool",),
    "tools.registry": ("ToolRegistry",),
    "tools.search.pipeline": ("RAGPipeline",),
    "tools.search.tool": ("SearchTool",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

# What most programs need. Everything else in `_HOMES` can be imported from here as well.
__all__ = [
    "Agent",
    "AgentError",
    "Approve",
    "Chunk",
    "ConfigError",
    "Fallback",
    "Guardrails",
    "Halt",
    "ModelError",
    "Policy",
    "Result",
    "Run",
    "RunStopped",
    "Stop",
    "Suspend",
    "Tool",
    "ToolContext",
    "ToolResult",
    "cost",
    "deadline",
    "load_config",
    "max_steps",
    "no_repeats",
    "per_tool",
    "tool",
]

if TYPE_CHECKING:
    from .api.agent import Agent as Agent
    from .api.config.build import Config as Config
    from .api.config.build import load_config as load_config
    from .api.designs.orchestrator import AgentContext as AgentContext
    from .api.designs.orchestrator import AgentOrchestrator as AgentOrchestrator
    from .api.designs.orchestrator import ExecutionMonitor as ExecutionMonitor
    from .api.designs.orchestrator import ExecutionResult as ExecutionResult
    from .api.designs.orchestrator import TaskPlanner as TaskPlanner
    from .api.designs.react_runtime import AgentResult as AgentResult
    from .api.designs.react_runtime import AgentRuntime as AgentRuntime
    from .api.designs.react_runtime import PlanResult as PlanResult
    from .api.designs.react_runtime import ReActPlanner as ReActPlanner
    from .api.designs.step_sequence import AgentConfiguration as AgentConfiguration
    from .api.designs.step_sequence import AgentStepSequence as AgentStepSequence
    from .api.ids import SharedSession as SharedSession
    from .api.judge import Judge as Judge
    from .api.memory.compact import Compact as Compact
    from .api.memory.memory import Memory as Memory
    from .api.memory.project import ProjectContext as ProjectContext
    from .api.memory.retention import Keep as Keep
    from .api.memory.retention import prune as prune
    from .api.memory.sessions import Sessions as Sessions
    from .api.result import Result as Result
    from .api.run import Run as Run
    from .api.team.handoff import Team as Team
    from .api.team.meeting import Meeting as Meeting
    from .api.team.meeting import NotAllowed as NotAllowed
    from .api.team.merge import Merged as Merged
    from .api.team.merge import merge as merge
    from .api.team.person import DelegateToHuman as DelegateToHuman
    from .api.team.roles import Role as Role
    from .api.workflow.workflow import Workflow as Workflow
    from .context.history import AgentState as AgentState
    from .context.window import Window as Window
    from .core.chunks import Chunk as Chunk
    from .core.errors import AgentConnectionError as AgentConnectionError
    from .core.errors import AgentError as AgentError
    from .core.errors import ConfigError as ConfigError
    from .core.errors import DiskFailed as DiskFailed
    from .core.errors import DuplicateToolError as DuplicateToolError
    from .core.errors import Halt as Halt
    from .core.errors import InvalidState as InvalidState
    from .core.errors import JournalCorrupt as JournalCorrupt
    from .core.errors import JournalError as JournalError
    from .core.errors import JournalFull as JournalFull
    from .core.errors import JournalLocked as JournalLocked
    from .core.errors import JournalTooNew as JournalTooNew
    from .core.errors import LLMError as LLMError
    from .core.errors import MaxStepsExceeded as MaxStepsExceeded
    from .core.errors import ModelError as ModelError
    from .core.errors import OutputDecodingFailed as OutputDecodingFailed
    from .core.errors import ReplayDiverged as ReplayDiverged
    from .core.errors import RunBusy as RunBusy
    from .core.errors import RunExists as RunExists
    from .core.errors import RunNeeded as RunNeeded
    from .core.errors import RunNotFound as RunNotFound
    from .core.errors import RunStopped as RunStopped
    from .core.errors import RunSuperseded as RunSuperseded
    from .core.errors import SessionBusy as SessionBusy
    from .core.errors import Suspend as Suspend
    from .core.errors import ToolExecutionFailed as ToolExecutionFailed
    from .core.errors import ToolNotFound as ToolNotFound
    from .core.errors import ToolNotFoundError as ToolNotFoundError
    from .core.errors import UnexpectedError as UnexpectedError
    from .core.messages import Media as Media
    from .core.messages import Message as Message
    from .core.messages import ModelReply as ModelReply
    from .core.messages import ModelRequest as ModelRequest
    from .core.messages import ToolCall as ToolCall
    from .core.messages import ToolResult as ToolResult
    from .core.messages import Usage as Usage
    from .core.state import State as State
    from .core.steps import AgentStep as AgentStep
    from .core.steps import Stop as Stop
    from .journals.memory import MemoryJournal as MemoryJournal
    from .journals.sqlite import SqliteJournal as SqliteJournal
    from .kernel.ports import Policy as Policy
    from .kernel.ports import Tool as Tool
    from .kernel.ports import ToolContext as ToolContext
    from .models.prompted.react.model import TextOnly as TextOnly
    from .models.providers.scripted import ScriptedModel as ScriptedModel
    from .models.providers.scripted import call as call
    from .policies.approve import Approve as Approve
    from .policies.fallback import Fallback as Fallback
    from .policies.fallback import FallbackResult as FallbackResult
    from .policies.fallback import FallbackStrategy as FallbackStrategy
    from .policies.guardrails.policy import Guardrails as Guardrails
    from .policies.guardrails.tool_rules import ToolRule as ToolRule
    from .policies.guardrails.verdicts import GuardrailAction as GuardrailAction
    from .policies.guardrails.verdicts import GuardrailResult as GuardrailResult
    from .policies.retry import Retry as Retry
    from .strategies.graph.asking import EvaluationResult as EvaluationResult
    from .strategies.graph.plan import ExecutionPlan as ExecutionPlan
    from .strategies.graph.plan import ExecutionStep as ExecutionStep
    from .strategies.stop import cost as cost
    from .strategies.stop import deadline as deadline
    from .strategies.stop import max_steps as max_steps
    from .strategies.stop import no_repeats as no_repeats
    from .strategies.stop import per_tool as per_tool
    from .strategies.termination import DuplicateDetectionPolicy as DuplicateDetectionPolicy
    from .strategies.termination import StandardTerminationPolicy as StandardTerminationPolicy
    from .tools.calculator.tool import CalculatorTool as CalculatorTool
    from .tools.database.tool import DatabaseTool as DatabaseTool
    from .tools.function import tool as tool
    from .tools.registry import ToolRegistry as ToolRegistry
    from .tools.search.pipeline import RAGPipeline as RAGPipeline
    from .tools.search.tool import SearchTool as SearchTool


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'kaname' has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
