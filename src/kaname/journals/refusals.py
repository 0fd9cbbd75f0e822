"""Wording of the errors that all journals share."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.language import say


def busy(run_id: str, owner: str) -> str:
    return say(
        f"run {run_id} is being executed by {owner}; wait for it, or take it over with resume(run, takeover=True)",
        f"実行 {run_id} は {owner} が実行中です。終わるのを待つか、resume(run, takeover=True) で引き継いでください",
    )


def superseded(run_id: str) -> str:
    return say(
        f"run {run_id} was taken over by somebody else; nothing more is written here, and what was recorded is safe",
        f"実行 {run_id} はほかのプロセスに引き継がれました。ここからはもう書き込みません。記録済みの内容は無事です",
    )


def removed(path: str) -> str:
    return say(
        f"the journal {path} was removed or replaced while it was in use; nothing more is written to it. Put it back, or close "
        "this journal and open the new file",
        f"使用中のジャーナル {path} が削除または差し替えられました。これ以上は書き込みません。元に戻すか、開き直してください",
    )


def gap(run_id: str, last: int, given: int) -> str:
    return say(
        f"run {run_id} stands at fact {last}, so the next is {last + 1}, not {given}; an earlier fact was not written",
        f"実行 {run_id} の最後の記録は {last} 番なので、次は {last + 1} 番です({given} 番は書けません)",
    )


def has_dependants(run_id: str, dependants: Sequence[str]) -> str:
    listed = ", ".join(dependants[:5]) + (", …" if len(dependants) > 5 else "")
    return say(
        f"run {run_id} is what {listed} went on from; delete them together with cascade=True",
        f"実行 {run_id} は {listed} の元になっています。まとめて消すには cascade=True を指定してください",
    )
