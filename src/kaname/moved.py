"""Modules that have moved: the old name imports the module in its new place, with a `DeprecationWarning`, for one release."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any
from warnings import warn

MOVED = {  # an old name, or the beginning of old names: the new one
    "api": "agent",
    "api.designs": "designs",
    "api.team": "teams",
    "api.workflow": "workflows",
    "api.memory": "memory",
    "api.config": "config",
    "agent.opening": "run",
    "agent.opening.answers": "people.answers",
    "agent.opening.entrance": "people.entrance",
    "agent.opening.history": "people.history",
    "agent.talk": "run",
    "run.actions": "people.person",
    "run.hold": "run.turns",
    "run.ids": "run.request",
    "run.left": "people.left",
    "teams.person": "people.person",
    "agent.run": "run.run",
    "agent.result": "run.result",
    "agent.partial": "run.partial",
    "agent.replay": "run.replay",
    "agent.recipe": "run.recipe",
    "agent.input": "run.input",
    "agent.ids": "run.request",
    "agent.child": "run.child",
    "agent.attach": "run.attach",
    "agent.figures": "run.figures",
    "agent.handoffs": "run.handoffs",
    "agent.many": "run.many",
    "policies.money.purse": "policies.money.funds",
    "policies.money.size": "policies.money.estimate",
    "tools.finding": "tools.tool_search",
    "tools.finding.arrange": "tools.tool_search",
    "tools.finding.actions": "tools.tool_search",
    "tools.finding.rank": "tools.tool_search",
    "tools.arguments.pattern": "tools.arguments.schema",
    "tools.arguments.mend": "tools.arguments.schema",
    "tools.arguments.docstring": "tools.signature",
    "tools.mcp.elicitation": "tools.mcp.questions",
    "tools.mcp.sampling": "tools.mcp.questions",
    "tools.search.sentences": "tools.search.chunk",
    "tools.search.folders": "tools.search.ingest",
    "tools.search.readers.csv": "tools.search.readers.text",
    "tools.search.readers.spreadsheet": "tools.search.readers.office",
    "tools.database.describe": "tools.database.tables",
    "tools.database.engines.choice": "tools.database.session",
    "strategies.partial_output": "strategies.output",
    "journals": "stores",
    "journals.queue": "kernel.stores",
    "kernel.inbox.port": "kernel.stores",
    "kernel.inbox": "kernel",
    "kernel.inbox.taking": "kernel.letters",
    "kernel.approvals": "kernel",
    "kernel.approvals.port": "kernel.stores",
    "policies.approve": "policies.permission.approve",
    "policies.batch": "policies.reuse.batch",
    "policies.budget": "policies.money",
    "policies.cache": "policies.reuse",
    "policies.cache.policy": "policies.reuse.cache",
    "policies.choice": "policies.failure",
    "policies.fallback": "policies.failure.tool_fallback",
    "policies.flow": "policies.permission.flow",
    "policies.guardrails": "policies.content.guardrails",
    "policies.lasting": "policies.permission.lasting",
    "policies.models": "policies.failure",
    "policies.models.fallback": "policies.failure.model_fallback",
    "policies.permit": "policies.permission",
    "policies.permit.policy": "policies.permission.permit",
    "policies.prefix": "policies.reuse.prefix",
    "policies.privacy": "policies.content.privacy",
    "policies.retry": "policies.failure.retry",
    "policies.timeout": "policies.failure.timeout",
    "models.http.surrogates": "models.http.sse",
    "models.prompted.conversation": "models.prompted.words",
    "models.prompted.tool_text": "models.prompted.words",
    "models.prompted.react.labels": "models.prompted.react.sections",
    "models.prompted.plan_first.progress": "models.prompted.plan_first.plan",
    "models.prompted.plan_first.prompt": "models.prompted.plan_first.way",
    "models.providers.anthropic_settings": "models.providers.anthropic",
    "agent.steps": "designs.step_sequence",
    "agent.steps.conversation": "agent.conversation",
    "agent.steps.phase": "designs.step_sequence.sequence",
}


def new_place(name: str) -> str:
    """Return the name of a module today, or "" if it has not moved. Both names are without `kaname.`."""
    known = name
    while known and known not in MOVED:
        known = known.rpartition(".")[0]
    if not known:
        return ""
    moved = MOVED[known] + name[len(known) :]
    return new_place(moved) or moved


class Moved:
    """Finds the module under its old name: the same module, not a second one."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        package, _, name = fullname.partition(".")
        if package != "kaname" or not new_place(name):
            return None
        return ModuleSpec(fullname, self, is_package=True)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        place = f"kaname.{new_place(spec.name.partition('.')[2])}"
        warn(f"{spec.name} has moved to {place}; the old name ends with the next release", DeprecationWarning, stacklevel=2)
        module = import_module(place)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = module.__spec__ and module.__spec__.loader_state  # its own again


sys.meta_path.insert(0, Moved())  # before the finder of files, which would load a module of a package a second time
