"""Evaluations as lines of the terminal: a report, a list, a comparison."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from ...core.install import this_command
from ...evals.results.comparison import Comparison
from ...evals.results.report import CaseReport, EvalReport
from ..messages import many, say, translate
from ..terminal.screen import columns, pad, truncate, width

Line = tuple[str, str]
"""A line and its colour."""
_GOOD_KAPPA, _ENOUGH = 0.6, 20  # agreement of a judge that can be used, and ratings that say so
_LISTED = 40  # lines: of more cases, only those that failed are listed
_COLOURS = {"real": "green", "not shown": "", "too few": "yellow"}


def _case_lines(report: EvalReport) -> Iterator[Line]:
    """Yield a line for each case, or if there are many, for those that failed."""
    name = min(40, max([width(case.name) for case in report.cases]))
    listed = report.cases if len(report.cases) <= _LISTED else [case for case in report.cases if not case.passed]
    for case in listed[:_LISTED]:
        yield _case_line(case, name)
    if len(listed) > _LISTED:
        yield f"… {say(f'{len(listed) - _LISTED} more failed', f'ほか {len(listed) - _LISTED} 件が不合格')}", "red"


def report_lines(report: EvalReport, where: str) -> Iterator[Line]:
    """Yield a line for each case, then the numbers, and how to look at the first failure."""
    yield from _case_lines(report)
    yield "", ""
    low, high = report.interval
    passed = sum([case.passed for case in report.cases])
    yield (
        say(
            f"{report.name}: {passed} of {many(len(report.cases), 'case')} passed; {report.rate:.0%} of attempts "
            f"(95 % interval {low:.0%} to {high:.0%})",
            f"{report.name}: {len(report.cases)} 件中 {passed} 件が合格。試行の合格率 {report.rate:.0%} "
            f"(95 % 信頼区間 {low:.0%}〜{high:.0%})",
        ),
        "bold",
    )
    if report.repeat > 1 and report.reliability is not None:
        yield (
            say(
                f"all {report.repeat} attempts pass in {report.reliability:.0%} of cases (pass^{report.repeat})",
                f"{report.repeat} 回すべて合格するケース: {report.reliability:.0%} (pass^{report.repeat})",
            ),
            "",
        )
    yield _cost_line(report), "dim"
    if report.has_judge:
        yield _judge_line(report)
    if report.errors:
        yield (
            say(
                f"{many(report.errors, 'attempt')} ended in an error; the same command again retries them",
                f"エラーで終わった試行が {report.errors} 件あります。同じコマンドをもう一度実行すると再試行します",
            ),
            "yellow",
        )
    failed = next((one for one in report.attempts if not one.passed and one.run_ids), None)
    if failed is not None:
        command = f"{this_command()} runs show {failed.run_ids[-1]}{where}"
        yield say(f"to see the first failure: {command}", f"最初の失敗を見るには: {command}"), "dim"


def _case_line(case: CaseReport, name: int) -> Line:
    sign = "✓" if case.passed else "✗"
    why = next((translate(one.why) for one in case.attempts if not one.passed), "")
    seconds = sum([one.seconds for one in case.attempts]) / max(1, len(case.attempts))
    left = f"{sign} {pad(case.name, name)} {case.passes}/{case.planned} {seconds:6.1f} s  "
    return left + truncate(why, max(20, columns() - width(left) - 1)), "green" if case.passed else "red"


def _cost_line(report: EvalReport) -> str:
    def money(value: float | None) -> str:
        return say("unknown", "不明") if value is None else f"${value:.4f}"

    message = say(f"cost {money(report.cost)}", f"費用 {money(report.cost)}")
    if report.overhead != 0:
        message += say(
            f", judges and simulated users {money(report.overhead)}", f"、判定と模擬ユーザー {money(report.overhead)}"
        )
    model = report.about.get("model", "")
    return f"{message}; {report.about.get('agent', '')} {model}; {report.job}"


def _judge_line(report: EvalReport) -> Line:
    agreement, rated = report.agreement
    if agreement is None or rated < _ENOUGH:
        return (
            say(
                f"the judge is not calibrated: {rated} of its verdicts have a person's rating, and {_ENOUGH} are needed. "
                f"Rate runs with: {this_command()} runs rate RUN good",
                f"判定モデルは未較正です: 人の評価がある判定は {rated} 件で、{_ENOUGH} 件必要です。"
                f"評価するには: {this_command()} runs rate 実行 good",
            ),
            "yellow",
        )
    message = say(f"the judge agrees with people: κ = {agreement:.2f} ({rated} rated)",
               f"判定モデルと人の一致度: κ = {agreement:.2f} ({rated} 件)")  # fmt: skip
    weak = say("; below 0.6, do not rely on its verdicts", "。0.6 未満の判定は当てになりません")
    return (message, "") if agreement >= _GOOD_KAPPA else (message + weak, "yellow")


def list_lines(reports: Sequence[EvalReport]) -> Iterator[str]:
    for one in reports:
        when = datetime.fromtimestamp(one.about.get("time", 0)).astimezone().strftime("%m-%d %H:%M")
        rate = f"{one.rate:.0%}" if one.complete else f"{one.rate:.0%}…"
        cases = say(many(len(one.cases), "case"), f"{len(one.cases)} 件")
        label = f" [{', '.join(one.labels)}]" if one.labels else ""
        yield f"{pad(one.job, 34)}  {when}  {rate:>5}  {cases} × {one.repeat}  {one.about.get('model', '')}{label}"


def comparison_lines(made: Comparison) -> Iterator[Line]:
    names = [one.label or one.job for one in (made.baseline, made.other)]
    yield f"{names[0]} → {names[1]}: {made.baseline.rate:.0%} → {made.other.rate:.0%}", "bold"
    worse = made.verdict == "real" and made.difference < 0
    yield translate(made), "red" if worse else _COLOURS[made.verdict]
    for told, listed in (
        (say("better", "改善"), made.better),
        (say("worse", "悪化"), made.worse),
        (say("not compared (new, removed or changed cases)", "比較対象外 (追加・削除・変更されたケース)"), made.unpaired),
    ):
        if listed:
            yield f"{told}: {', '.join(listed[:10])}{' …' if len(listed) > 10 else ''}", "dim"
