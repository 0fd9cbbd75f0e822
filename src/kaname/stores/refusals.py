"""Wording of the errors that all journals share."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.notices import notice


def busy_text(run_id: str, owner: str) -> str:
    return notice(
        "run.busy",
        "run {run_id} is being executed by {owner}, or one of its tools is still running there. Wait until "
        "it ends. If it never ends, take it over (takeover=True, --takeover)",
        run_id=run_id,
        owner=owner,
    )


def superseded_text(run_id: str) -> str:
    return notice(
        "run.superseded",
        "run {run_id} was taken over by another process. This process writes nothing more; what was recorded is safe.",
        run_id=run_id,
    )


def removed_text(path: str) -> str:
    return notice(
        "journal.replaced",
        "the journal {path} was removed or replaced while it was in use. Nothing more is written to it. Put "
        "the file back, or close this journal and open the new file.",
        path=path,
    )


def gap_text(run_id: str, last: int, given: int) -> str:
    return notice(
        "journal.gap",
        "the last fact of run {run_id} is {last}, so the next is {value}, not {given}: an earlier fact was not written",
        run_id=run_id,
        last=last,
        value=last + 1,
        given=given,
    )


def dependants_text(run_id: str, dependants: Sequence[str]) -> str:
    listed = ", ".join(dependants[:5]) + (", …" if len(dependants) > 5 else "")
    return notice(
        "run.has_dependants",
        "other runs continue from run {run_id}: {listed}. Delete them together with cascade=True (--cascade)",
        run_id=run_id,
        listed=listed,
    )
