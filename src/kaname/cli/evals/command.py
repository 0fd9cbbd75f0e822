"""`kaname eval`: run an evaluation and show its progress; list, show and compare evaluations; add a case."""

from __future__ import annotations

import argparse
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...agent.agent import Agent
from ...core.errors import AgentError, ConfigError
from ...core.install import this_command
from ...evals.evaluation import Evaluation
from ...evals.files import load_evaluation
from ...evals.recorded import DEFAULT, add_case, case_from_run
from ...evals.records import find_report, list_reports
from ...evals.results.comparison import compare_all, what_it_can_show
from ...evals.results.formats import as_html, as_junit
from ...evals.results.report import CaseAttempt, EvalReport
from ...evals.subject import as_agent
from ...stores.default import choose
from ...tools.loading import object_from
from ..agent import agent_from, take_workflow, workflow_from
from ..last import take_last
from ..main import DONE, FAILED, USAGE
from ..messages import config_error, say, translate
from ..messages.usage import likely
from ..place import journal_place, note_place, place_options, programs_workflow
from ..records.runs import find
from ..terminal.screen import Screen, columns, truncate
from ..terminal.signals import run_to_the_end
from .tables import comparison_lines, list_lines, report_lines

_FILES = ("evals.yaml", DEFAULT)
_ACTIONS = ("list", "show", "compare", "add")


def main(args: argparse.Namespace) -> int:
    screen = Screen()
    action = args.what[0] if args.what and args.what[0] in _ACTIONS else ""
    if action:
        return run_to_the_end(lambda ending: _with_journal(args, screen, action))
    hint = likely(args.what[0], _ACTIONS) if args.what and not Path(args.what[0]).exists() else ""
    if hint or len(args.what) > 1:
        message = say(f"{args.what[0]} does not exist", f"{args.what[0]} はありません") + hint
        screen.note(message if hint else say("name one file", "ファイルは一つだけ指定してください"), "red")
        return USAGE
    evaluation, place = load_file(args.what[0] if args.what else None)
    evaluation = evaluation.only(args.case) if args.case else evaluation
    return run_to_the_end(lambda ending: _run(args, screen, evaluation, place.parent))


def load_file(name: str | None) -> tuple[Evaluation, Path]:
    """Return the evaluation of a file, by default `evals.yaml` or `evals.jsonl`, and the path of the file."""
    place = name or next((name for name in _FILES if Path(name).is_file()), "")
    if not place:
        raise config_error(
            f"there is no evals.yaml here. Name a file, or make a case of a run: {this_command()} eval add last",
            f"evals.yaml がありません。ファイルを指定するか、実行から作ってください: {this_command()} eval add last",
        )
    return load_evaluation(place), Path(place).resolve()


async def _run(args: argparse.Namespace, screen: Screen, evaluation: Evaluation, folder: Path) -> int:
    subject, agent = subject_for(args, screen, evaluation, folder)
    repeat = args.repeat or evaluation.repeat
    if not args.quiet:
        screen.note(translate(what_it_can_show(len(evaluation.cases), repeat)))
    shown = AttemptBar(screen, quiet=args.quiet)
    try:
        report = await evaluation.run(
            subject,
            repeat=repeat,
            label=args.label,
            fresh=args.fresh,
            at_once=args.at_once,
            batch=args.batch_prices,
            judge=args.judge,
            journal=choose(args.journal) if args.journal else None,
            progress=shown.take,
        )
    finally:
        shown.end()
        if agent is not None:
            await agent.close()
    return _tell(args, screen, report)


def subject_for(
    args: argparse.Namespace, screen: Screen, evaluation: Evaluation, folder: Path
) -> tuple[Any, Agent[Any] | None]:
    """Return the agent, or the function that makes agents; and the agent to close."""
    _take_agent(args, evaluation, folder)
    if args.agent and ":" in args.agent:
        found = object_from(args.agent, Path.cwd())
        if as_agent(found) is None and callable(found):
            args.agent = None  # it is no agent by itself
            return found, None
    take_workflow(args)
    if getattr(args, "workflow", None) or (args.agent and programs_workflow(args) is not None):
        flow = workflow_from(args)
        return flow, flow.agent
    agent = agent_from(args, screen)
    return agent, agent


def _take_agent(args: argparse.Namespace, evaluation: Evaluation, folder: Path) -> None:
    """Take the agent that the file of the evaluation names, unless the options name one."""
    if not args.agent and evaluation.agent:
        program, colon, name = evaluation.agent.partition(":")
        is_file = bool(colon) and program.endswith(".py")
        args.agent = f"{folder / program}:{name}" if is_file else evaluation.agent


def _take_agent_of_file(args: argparse.Namespace) -> None:
    """Take the agent of `evals.yaml` in this folder, so that its evaluations are looked for in its journal."""
    if args.agent or args.journal or not any(Path(name).is_file() for name in _FILES):
        return
    with suppress(ConfigError):  # a mistake in the file is reported when it is run
        evaluation, place = load_file(None)
        _take_agent(args, evaluation, place.parent)
        if args.agent and ":" in args.agent and as_agent(object_from(args.agent, Path.cwd())) is None:
            args.agent = None  # a function that makes agents


class AttemptBar:
    """A bar while the attempts are made; without a terminal, a line for every tenth."""

    def __init__(self, screen: Screen, *, quiet: bool) -> None:
        self._screen, self._quiet, self._tenth = screen, quiet, 0
        self._passed = self._done = self._total = 0

    def take(self, attempt: CaseAttempt, done: int, total: int) -> None:
        if done < self._done:  # the next evaluation
            self._passed = self._tenth = 0
        self._passed, self._done, self._total = self._passed + attempt.passed, done, total
        percent = done * 100 // total
        message = f"{percent:3} %  {done}/{total}  " + say(f"{self._passed} passed", f"合格 {self._passed} 件")
        if self._quiet:
            return
        if not self._screen.is_plain(self._screen.err):
            self._screen.replace(truncate(f"{'█' * (percent // 4):<25} {message}", columns() - 1))
        elif percent // 10 > self._tenth and total >= 10:
            self._tenth = percent // 10
            self._screen.note(message)

    def end(self) -> None:
        with suppress(OSError):
            self._screen.replace("")
            if self._done < self._total:
                left = self._total - self._done
                message = say(f"{left} attempts left; the same command again continues",
                           f"残り {left} 件です。同じコマンドをもう一度実行すると続きから再開します")  # fmt: skip
                self._screen.note(message)


def _tell(args: argparse.Namespace, screen: Screen, report: EvalReport) -> int:
    for name, form in ((args.junit, as_junit), (args.html, as_html)):
        if name:
            Path(name).expanduser().write_text(form(report), encoding="utf-8")
    if args.json:
        screen.say(json.dumps(report.to_json(), ensure_ascii=False))
    else:
        for line, colour in report_lines(report, place_options(args)):
            screen.say_in(colour, line)
    good = all(case.passed for case in report.cases) if args.at_least is None else report.rate >= args.at_least
    return DONE if good else FAILED


async def _with_journal(args: argparse.Namespace, screen: Screen, action: str) -> int:
    _take_agent_of_file(args)
    take_last(args, screen)
    journal, names = choose(journal_place(args)), args.what[1:]
    wanted = {"list": (0, 0), "show": (1, 1), "compare": (2, 20), "add": (1, 2)}[action]
    if not wanted[0] <= len(names) <= wanted[1]:
        usage = {"list": "list", "show": "show EVALUATION", "compare": "compare BASELINE OTHER …", "add": "add RUN [FILE]"}
        screen.note(f"{this_command()} eval {usage[action]}", "red")
        return USAGE
    try:
        if action == "add":
            run = await find(journal, names[0], "eval add")
            case = await case_from_run(journal, run.run_id)
            target = add_case(names[1] if len(names) > 1 else DEFAULT, case)
            command = f"{this_command()} eval {target}"
            screen.tell(
                f"added {case['name']!r} to {target}. Check what it expects, then run: {command}",
                f"{case['name']!r} を {target} に追加しました。期待する内容を確認してから実行してください: {command}",
            )
            return DONE
        if action == "list":
            made = await list_reports(journal)
            lines = [json.dumps(one.summary(), ensure_ascii=False) for one in made] if args.json else list_lines(made)
            for line in lines:
                screen.say(line)
            if not made:
                screen.tell("no evaluations yet", "まだ評価がありません")
                note_place(args, screen)
            return DONE
        reports = [await find_report(journal, name) for name in names]
        if action == "show":
            return _tell(args, screen, reports[0])
        for one in compare_all(reports[0], reports[1:], margin=args.margin / 100):
            if args.json:
                screen.say(json.dumps(one.to_json(), ensure_ascii=False))
                continue
            for line, colour in comparison_lines(one):
                screen.say_in(colour, line)
        return DONE
    except AgentError:  # mostly: not found
        note_place(args, screen)
        raise
    finally:
        await journal.close()
