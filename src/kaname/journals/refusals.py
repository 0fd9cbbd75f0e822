"""Wording of the errors that all journals share."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.notices import notice


def busy(run_id: str, owner: str) -> str:
    return notice(
        "run.busy",
        "run {run_id} is being executed by {owner}, or a tool of it is still at work there; wait for it. If it never ends, "
        "take it over (takeover=True, --takeover)",
        run_id=run_id,
        owner=owner,
    )


def superseded(run_id: str) -> str:
    return notice(
        "run.superseded",
        "run {run_id} was taken over by somebody else; nothing more is written here, and what was recorded is safe",
        run_id=run_id,
    )


def removed(path: str) -> str:
    return notice(
        "journal.replaced",
        "the journal {path} was removed or replaced while it was in use; nothing more is written to it. "
        "Put it back, or close this journal and open the new file",
        path=path,
    )


def gap(run_id: str, last: int, given: int) -> str:
    return notice(
        "journal.gap",
        "run {run_id} stands at fact {last}, so the next is {value}, not {given}; an earlier fact was not written",
        run_id=run_id,
        last=last,
        value=last + 1,
        given=given,
    )


def has_dependants(run_id: str, dependants: Sequence[str]) -> str:
    listed = ", ".join(dependants[:5]) + (", …" if len(dependants) > 5 else "")
    return notice(
        "run.has_dependants",
        "run {run_id} is what {listed} went on from; delete them together with cascade=True (--cascade)",
        run_id=run_id,
        listed=listed,
    )
