"""Describe the labels of an agent's tools, and what each of them lets through, for `kaname doctor`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ....core.notices import Notice, join_notices, notice
from .policy import Flow
from .reading import Labelled

if TYPE_CHECKING:
    from ....kernel.ports import Action


def describe_flow(policies: tuple[Any, ...], tools: Mapping[str, Action]) -> Iterator[tuple[str, Notice]]:
    """Yield what the flow rules do with each tool: its name and a sentence. Nothing if they are off or concern no tool."""
    flow = next((policy for policy in policies if isinstance(policy, Flow)), None)
    if flow is None or flow.mode == "off" or (flow.about.is_default and not flow.labelled.concern([tools])):
        return
    yield "flow", notice("flow.described", "{mode}: calls that text from outside may have caused wait for you", mode=flow.mode)
    for name, tool in tools.items():
        yield name, join_notices("; ", _describe(name, tool, flow.labelled))


def _describe(name: str, tool: Action, labelled: Labelled) -> list[Notice]:
    labels, role = labelled.of(name, tool), labelled.role(name, tool)
    roles = labels.parameters or {}
    told = [
        {
            "acts": notice("flow.acts", "acts: waits unless you name it and its values"),
            "own": notice("flow.own", "own: always runs at once"),
            "reads": notice("flow.reads", "reads: always runs at once"),
        }[role]
    ]
    if role == "reads" and roles:
        told = [notice("flow.reads_with", "reads: asks about {names} if they are not yours", names=", ".join(sorted(roles)))]
    elif role == "acts" and (bounded := sorted([one for one, kind in roles.items() if kind == "bounded"])):
        told.append(notice("flow.any_value", "any value passes in {names}", names=", ".join(bounded)))
    if role == "acts" and labels.prose == "lenient":
        prose = ", ".join(sorted([one for one, kind in roles.items() if kind == "content"]))
        told.append(notice("flow.any_prose", "prose without links or numbers passes in {names}", names=prose))
    if labels.result == "trusted":
        told.append(notice("flow.trusts", "its results are trusted"))
    elif isinstance(labels.result, tuple):
        told.append(notice("flow.trusts_fields", "its fields {names} are trusted", names=", ".join(labels.result)))
    if labels.private:
        told.append(notice("flow.private", "its results are private"))
    return told
