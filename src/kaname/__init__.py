"""kaname: one durable, streaming, abortable agent loop. The names below are imported when they are first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import moved as moved

__version__ = "0.1.0"

_HOMES = {
    "agent.agent": ("Agent",),
    "config.build": ("Config", "load_config"),
    "config.llm": ("ClaudeConfig", "LLMConfig", "OpenAIConfig"),
    "agent.judge": ("Judge",),
    "run.many.batches": ("BatchPrices",),
    "run.many.map": ("MapInput",),
    "memory.compact": ("Compact",),
    "memory.lessons.part": ("Lessons",),
    "memory.results.part": ("LargeResults",),
    "memory.project": ("ProjectContext",),
    "memory.memory": ("Memory",),
    "memory.todo": ("Todo",),
    "memory.protection.erasing": ("erase_user",),
    "memory.protection.exporting": ("export_user",),
    "memory.protection.places": ("DataPlaces",),
    "memory.retention": ("Keep", "prune"),
    "run.result": ("Result",),
    "run.run": ("Run",),
    "memory.sessions": ("Sessions",),
    "designs.react.runtime": ("AgentResult", "AgentRuntime", "ReActPlanner"),
    "designs.react.parts": ("PlanResult",),
    "agent.steps.configuration": ("AgentConfiguration",),
    "agent.steps.sequence": ("AgentStepSequence",),
    "agent.steps.phase": ("LoopPhase",),
    "context.history": ("AgentState",),
    "core.chunks": ("Chunk",),
    "run.ids": ("SharedSession",),
    "core.encryption.keys": ("use_key",),
    "agent.work.worker": ("Worker",),
    "core.errors": (
        "AgentConnectionError",
        "AgentError",
        "AuditError",
        "BadArguments",
        "ConfigError",
        "DiskFailed",
        "DuplicateToolError",
        "EncryptionError",
        "Halt",
        "InvalidState",
        "JournalCorrupt",
        "JournalError",
        "JournalFull",
        "JournalLocked",
        "JournalTooNew",
        "JournalUnreachable",
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
    "designs.orchestrator.orchestrator": ("AgentOrchestrator",),
    "designs.orchestrator.context": ("AgentContext", "ExecutionResult"),
    "designs.orchestrator.parts": ("ExecutionMonitor", "StateManager", "TaskPlanner"),
    "senses.process.client": ("SenseError",),
    "senses.senses": ("Senses",),
    "senses.tools": ("senses_tools",),
    "strategies.graph.plan": ("ExecutionPlan", "ExecutionStep"),
    "strategies.graph.asking": ("EvaluationResult",),
    "workflows.workflow": ("Workflow",),
    "run.handoffs.handoff": ("MAX_HANDOFF_DEPTH", "Team"),
    "context.window": ("Window",),
    "teams.meeting": ("Meeting", "NotAllowed"),
    "teams.merge": ("Merged", "merge"),
    "teams.person": ("DelegateToHuman",),
    "run.handoffs.roles": ("Role",),
    "core.demands": ("Ask", "Refuse", "Wait"),
    "core.record": ("replace",),
    "core.state": ("State",),
    "core.steps": ("AgentStep", "Stop"),
    "stores.audit.log": ("AuditLog",),
    "stores.memory": ("MemoryJournal",),
    "stores.postgres": ("PostgresJournal",),
    "stores.sqlite": ("SqliteJournal",),
    "kernel.bases": ("ActionBase", "ContextBase", "ModelBase", "SinkBase", "StrategyBase"),
    "kernel.ports": ("Model", "Policy", "Tool", "ToolContext"),
    "models.prices": ("Price",),
    "models.prompted.react.model": ("TextOnly",),
    "models.providers.scripted": ("ScriptedModel", "call"),
    "policies.permission.approve": ("Approve",),
    "policies.money.budget": ("Budget",),
    "policies.reuse.cache": ("Cache",),
    "policies.failure.equals": ("Equals",),
    "policies.failure.tool_fallback": ("Fallback", "FallbackResult", "FallbackStrategy", "ToolFallback"),
    "policies.content.guardrails.policy": ("Guardrails",),
    "policies.failure.model_fallback": ("ModelFallback",),
    "policies.pace.machine": ("Machine",),
    "policies.pace.policy": ("Pace",),
    "core.people.labels": ("ToolLabels",),
    "policies.permission.flow.policy": ("Flow",),
    "policies.permission.permit": ("Permit",),
    "policies.permission.rules": ("PermitRule",),
    "policies.content.privacy.addresses": ("find_addresses",),
    "policies.content.privacy.names": ("find_names",),
    "policies.content.privacy.policy": ("Privacy",),
    "policies.content.privacy.values": ("sanitize_data",),
    "policies.failure.retry": ("Retry",),
    "policies.content.guardrails.tool_rules": ("ToolRule",),
    "policies.content.guardrails.verdicts": ("GuardrailAction", "GuardrailResult"),
    "policies.failure.timeout": ("Timeout",),
    "strategies.output": ("Output",),
    "strategies.stop": ("cost", "deadline", "max_steps", "no_repeats", "per_tool"),
    "strategies.termination": ("DuplicateDetectionPolicy", "StandardTerminationPolicy"),
    "tools.calculator.tool": ("CalculatorTool",),
    "tools.database.tool": ("DatabaseTool",),
    "tools.finding.arrange": ("ToolSearch",),
    "tools.function": ("tool",),
    "tools.quarantine": ("quarantine",),
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
    "Guardrails",
    "Halt",
    "ModelError",
    "ModelFallback",
    "Policy",
    "Result",
    "Run",
    "RunStopped",
    "Stop",
    "Suspend",
    "Tool",
    "ToolContext",
    "ToolFallback",
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
    from .agent.agent import Agent as Agent
    from .agent.judge import Judge as Judge
    from .agent.steps.configuration import AgentConfiguration as AgentConfiguration
    from .agent.steps.phase import LoopPhase as LoopPhase
    from .agent.steps.sequence import AgentStepSequence as AgentStepSequence
    from .agent.work.worker import Worker as Worker
    from .config.build import Config as Config
    from .config.build import load_config as load_config
    from .config.llm import ClaudeConfig as ClaudeConfig
    from .config.llm import LLMConfig as LLMConfig
    from .config.llm import OpenAIConfig as OpenAIConfig
    from .context.history import AgentState as AgentState
    from .context.window import Window as Window
    from .core.chunks import Chunk as Chunk
    from .core.demands import Ask as Ask
    from .core.demands import Refuse as Refuse
    from .core.demands import Wait as Wait
    from .core.encryption.keys import use_key as use_key
    from .core.errors import AgentConnectionError as AgentConnectionError
    from .core.errors import AgentError as AgentError
    from .core.errors import AuditError as AuditError
    from .core.errors import BadArguments as BadArguments
    from .core.errors import ConfigError as ConfigError
    from .core.errors import DiskFailed as DiskFailed
    from .core.errors import DuplicateToolError as DuplicateToolError
    from .core.errors import EncryptionError as EncryptionError
    from .core.errors import Halt as Halt
    from .core.errors import InvalidState as InvalidState
    from .core.errors import JournalCorrupt as JournalCorrupt
    from .core.errors import JournalError as JournalError
    from .core.errors import JournalFull as JournalFull
    from .core.errors import JournalLocked as JournalLocked
    from .core.errors import JournalTooNew as JournalTooNew
    from .core.errors import JournalUnreachable as JournalUnreachable
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
    from .core.people.labels import ToolLabels as ToolLabels
    from .core.record import replace as replace
    from .core.state import State as State
    from .core.steps import AgentStep as AgentStep
    from .core.steps import Stop as Stop
    from .designs.orchestrator.context import AgentContext as AgentContext
    from .designs.orchestrator.context import ExecutionResult as ExecutionResult
    from .designs.orchestrator.orchestrator import AgentOrchestrator as AgentOrchestrator
    from .designs.orchestrator.parts import ExecutionMonitor as ExecutionMonitor
    from .designs.orchestrator.parts import StateManager as StateManager
    from .designs.orchestrator.parts import TaskPlanner as TaskPlanner
    from .designs.react.parts import PlanResult as PlanResult
    from .designs.react.runtime import AgentResult as AgentResult
    from .designs.react.runtime import AgentRuntime as AgentRuntime
    from .designs.react.runtime import ReActPlanner as ReActPlanner
    from .kernel.bases import ActionBase as ActionBase
    from .kernel.bases import ContextBase as ContextBase
    from .kernel.bases import ModelBase as ModelBase
    from .kernel.bases import SinkBase as SinkBase
    from .kernel.bases import StrategyBase as StrategyBase
    from .kernel.ports import Model as Model
    from .kernel.ports import Policy as Policy
    from .kernel.ports import Tool as Tool
    from .kernel.ports import ToolContext as ToolContext
    from .memory.compact import Compact as Compact
    from .memory.lessons.part import Lessons as Lessons
    from .memory.memory import Memory as Memory
    from .memory.project import ProjectContext as ProjectContext
    from .memory.protection.erasing import erase_user as erase_user
    from .memory.protection.exporting import export_user as export_user
    from .memory.protection.places import DataPlaces as DataPlaces
    from .memory.results.part import LargeResults as LargeResults
    from .memory.retention import Keep as Keep
    from .memory.retention import prune as prune
    from .memory.sessions import Sessions as Sessions
    from .memory.todo import Todo as Todo
    from .models.prices import Price as Price
    from .models.prompted.react.model import TextOnly as TextOnly
    from .models.providers.scripted import ScriptedModel as ScriptedModel
    from .models.providers.scripted import call as call
    from .policies.content.guardrails.policy import Guardrails as Guardrails
    from .policies.content.guardrails.tool_rules import ToolRule as ToolRule
    from .policies.content.guardrails.verdicts import GuardrailAction as GuardrailAction
    from .policies.content.guardrails.verdicts import GuardrailResult as GuardrailResult
    from .policies.content.privacy.addresses import find_addresses as find_addresses
    from .policies.content.privacy.names import find_names as find_names
    from .policies.content.privacy.policy import Privacy as Privacy
    from .policies.content.privacy.values import sanitize_data as sanitize_data
    from .policies.failure.equals import Equals as Equals
    from .policies.failure.model_fallback import ModelFallback as ModelFallback
    from .policies.failure.retry import Retry as Retry
    from .policies.failure.timeout import Timeout as Timeout
    from .policies.failure.tool_fallback import Fallback as Fallback
    from .policies.failure.tool_fallback import FallbackResult as FallbackResult
    from .policies.failure.tool_fallback import FallbackStrategy as FallbackStrategy
    from .policies.failure.tool_fallback import ToolFallback as ToolFallback
    from .policies.money.budget import Budget as Budget
    from .policies.pace.machine import Machine as Machine
    from .policies.pace.policy import Pace as Pace
    from .policies.permission.permit import Permit as Permit
    from .policies.permission.rules import PermitRule as PermitRule
    from .run.handoffs.handoff import MAX_HANDOFF_DEPTH as MAX_HANDOFF_DEPTH
    from .run.handoffs.handoff import Team as Team
    from .run.handoffs.roles import Role as Role
    from .run.ids import SharedSession as SharedSession
    from .run.many.batches import BatchPrices as BatchPrices
    from .run.many.map import MapInput as MapInput
    from .run.result import Result as Result
    from .run.run import Run as Run
    from .senses.process.client import SenseError as SenseError
    from .senses.senses import Senses as Senses
    from .senses.tools import senses_tools as senses_tools
    from .stores.audit.log import AuditLog as AuditLog
    from .stores.memory import MemoryJournal as MemoryJournal
    from .stores.postgres import PostgresJournal as PostgresJournal
    from .stores.sqlite import SqliteJournal as SqliteJournal
    from .strategies.graph.asking import EvaluationResult as EvaluationResult
    from .strategies.graph.plan import ExecutionPlan as ExecutionPlan
    from .strategies.graph.plan import ExecutionStep as ExecutionStep
    from .strategies.output import Output as Output
    from .strategies.stop import cost as cost
    from .strategies.stop import deadline as deadline
    from .strategies.stop import max_steps as max_steps
    from .strategies.stop import no_repeats as no_repeats
    from .strategies.stop import per_tool as per_tool
    from .strategies.termination import DuplicateDetectionPolicy as DuplicateDetectionPolicy
    from .strategies.termination import StandardTerminationPolicy as StandardTerminationPolicy
    from .teams.meeting import Meeting as Meeting
    from .teams.meeting import NotAllowed as NotAllowed
    from .teams.merge import Merged as Merged
    from .teams.merge import merge as merge
    from .teams.person import DelegateToHuman as DelegateToHuman
    from .tools.calculator.tool import CalculatorTool as CalculatorTool
    from .tools.database.tool import DatabaseTool as DatabaseTool
    from .tools.finding.arrange import ToolSearch as ToolSearch
    from .tools.function import tool as tool
    from .tools.quarantine import quarantine as quarantine
    from .tools.registry import ToolRegistry as ToolRegistry
    from .tools.search.pipeline import RAGPipeline as RAGPipeline
    from .tools.search.tool import SearchTool as SearchTool
    from .workflows.workflow import Workflow as Workflow


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'kaname' has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
