"""The document's interfaces: what parts of your own have. Their methods can be plain, too."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from .context import AgentContext, ExecutionResult


@runtime_checkable
class ITaskPlanner(Protocol):
    async def generate_plan(self, context: AgentContext) -> Any: ...


@runtime_checkable
class IExecutionMonitor(Protocol):
    async def evaluate_result(self, result: ExecutionResult, context: AgentContext) -> Any: ...


@runtime_checkable
class IStateManager(Protocol):
    async def save(self, context: AgentContext) -> None: ...


@runtime_checkable
class IClaudeClient(Protocol):
    async def generate(self, prompt: str) -> str: ...
