"""What the managers of a `BaseAgent` add to it: tools, policies, context, and the way in which it plans."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ...core.errors import ConfigError, nearest
from ...core.notices import notice
from ...kernel.ports import Policy, ToolContext

if TYPE_CHECKING:
    from ...agent.agent import Agent
    from .workflow_engine import WorkflowEngine

_KINDS = {  # names of `kaname.designs`, which are imported when one is given
    "workflow_engine": "WorkflowEngine",
    "resource_manager": "ResourceManager",
    "learning_engine": "LearningEngine",
    "error_recovery_manager": "ErrorRecoveryManager",
    "multi_modal_processor": "MultiModalProcessor",
    "security_manager": "SecurityManager",
    "performance_optimizer": "PerformanceOptimizer",
    "collaboration_manager": "CollaborationManager",
}


class Attached:
    """The managers that were given to an agent, each by the name of its parameter.

    Raises:
        ConfigError: One of them is not what its name says, or a run cannot use it.
    """

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._given = {name: given[name] for name in _KINDS if given.get(name) is not None}
        for name, one in self._given.items():
            if not isinstance(one, getattr(import_module("kaname.designs"), _KINDS[name])):
                raise ConfigError.of(
                    "monono.manager",
                    "{name} must be a {kind}, or an object of a class that is derived from it, not {given!r:.100}",
                    name=name,
                    kind=_KINDS[name],
                    given=one,
                )

    @property
    def tools(self) -> list[Any]:
        engine, others = self._given.get("workflow_engine"), ("multi_modal_processor", "collaboration_manager")
        made = [] if engine is None else [_workflow_tool(engine)]
        return [*made, *[tool for name in others if name in self._given for tool in self._given[name].tools]]

    @property
    def policies(self) -> list[Policy]:
        alone = [self._given[name] for name in ("resource_manager", "error_recovery_manager") if name in self._given]
        several = [self._given[name].policies for name in ("security_manager", "performance_optimizer") if name in self._given]
        return [*alone, *[policy for policies in several for policy in policies]]

    @property
    def context(self) -> list[Any]:
        return [self._given["learning_engine"]] if "learning_engine" in self._given else []

    def join(self, agent: Agent[Any]) -> None:
        """Let people share the sessions of the agent."""
        if "collaboration_manager" in self._given:
            self._given["collaboration_manager"].join(agent)


def _workflow_tool(engine: WorkflowEngine) -> Callable[..., Any]:
    async def run_workflow(name: str, params: dict[str, Any] | None = None, *, context: ToolContext) -> Any:
        if (flow := engine.flows.get(name)) is None:
            message = notice("workflow.no_flow", "there is no workflow {name!r}", name=name)
            raise ConfigError(message + nearest(name, engine.flows))
        return (await context.run_child(flow, params or {})).raise_for_stop().output

    known = ", ".join(engine.flows)
    run_workflow.__doc__ = f"Run a workflow by its name, with its parameters{f': {known}' if known else ''}."
    return run_workflow
