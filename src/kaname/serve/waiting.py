"""Runs as lists show them, and the questions of waiting runs as their readers see them."""

from __future__ import annotations

from typing import Any

from ..core.runs import UNDER_WAY, RunInfo
from .questions import question, shown_to_approver
from .service import Service
from .users import Caller


def summary(card: RunInfo) -> dict[str, Any]:
    return {
        "run_id": card.run_id,
        "agent": card.agent,
        "status": card.status,
        "title": card.title,
        "session_id": card.session,
        "user_id": card.user,
        "created": card.created,
        "updated": card.updated,
        "facts": card.seq,
        "questions": card.questions,
        "base": card.base,
        "parent": card.parent,
        "usage": {"input_tokens": card.input, "output_tokens": card.output, "cost": card.cost},
    }


async def questions_of(service: Service, card: RunInfo, above: RunInfo, caller: Caller) -> list[dict[str, Any]]:
    """Return the questions of a waiting run with its card, as the caller sees them.

    Args:
        above: The parent of a child run, or else the run. Work in the background asks by itself once its parent has ended;
            other children's questions are asked by their parents.
    """
    if card.parent and above.status in UNDER_WAY:
        return []
    result, run = await service.agent_result(card.run_id), summary(above)
    tools, prefix = ({}, f"{card.run_id}:") if card.parent else (service.tools_of(card), "")
    asked = [{**question(result, key, tools), "key": f"{prefix}{key}", "run": run} for key in result.questions]
    if caller.sees(card.user):
        return asked
    return [shown_to_approver(one, result, service.shown_by(above.agent)) for one in asked]
