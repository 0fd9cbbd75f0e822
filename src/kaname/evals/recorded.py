"""Make a case of a recorded run, and add it to a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..core.codec import dump
from ..core.errors import ConfigError
from ..core.events import Answered, Interjected, Opened
from ..core.openai_shape import to_openai
from ..core.runs import EVALUATION_PREFIX
from ..core.values import plain_text
from ..kernel.load import load, read_whole
from ..kernel.ports import Journal
from ..run.result import result_of
from .checks.outcome import CaseOutcome
from .files import load_evaluation, make_case, read_cases
from .records import people_of, read_rating

DEFAULT = "evals.jsonl"  # the file that cases are added to


async def case_from_run(journal: Journal, run_id: str, name: str = "") -> dict[str, Any]:
    """Return a case that asks what a recorded run was asked, in the form of a file.

    A run that completed, and that no person rated as bad, gives its answer as a reference for judges, and its tools as a check.
    Otherwise the case has no check of its own, and you say what should have happened.

    Raises:
        RunNotFound: If the journal does not hold the run.
        ConfigError: If nothing was asked.
    """
    state = await load(journal, run_id)
    if state.question is None:
        raise ConfigError.of("eval.nothing_asked", "run {run_id} has no message of a user", run_id=run_id)
    before = [to_openai(message) for message in state.messages[: state.turn_start]]
    text_only = not before and len(state.question.parts) == 1 and state.question.text
    given: Any = state.question.text if text_only else [*before, to_openai(state.question)]
    made: dict[str, Any] = {"name": name or f"{state.question.text[:40].strip()} ({run_id[-6:]})", "input": given}
    if people := await _people_in(journal, run_id):
        made["from_user"] = people if len(people) > 1 else people[0]
    stop = state.stop.kind if state.stop else ""
    if stop == "completed" and await read_rating(journal, run_id) != "bad":
        outcome = CaseOutcome([result_of(run_id, state, None)])
        calls = [call.name for call in outcome.calls]
        made |= {"calls_in_order": calls} if calls else {}
        made["reference"] = plain_text(outcome.output)
    return made


async def _people_in(journal: Journal, run_id: str) -> list[str]:
    """Return the users whose words a run has: in its conversation, which several can share, or from the case that it tried."""
    found = await people_of(journal, run_id)
    for fact in [event.body for event in await read_whole(journal, run_id)]:
        if isinstance(fact, Opened) and not fact.user.startswith(EVALUATION_PREFIX):
            found.add(fact.user)
        elif isinstance(fact, Answered | Interjected):
            found.add(fact.by)
    return sorted(found - {""})


def add_case(path: str | Path, case: dict[str, Any]) -> Path:
    """Add a case to a JSONL or YAML file, which is made if it does not exist. The rest of the file stays as it is.

    Raises:
        ConfigError: If the file has a case of that name, or is not one that a case can be added to.
    """
    target = Path(path).expanduser()
    make_case(case)
    if target.suffix not in (".jsonl", ".yaml", ".yml"):
        raise ConfigError.of("eval.add_where", "cases are added to a .jsonl or .yaml file, not to {path}", path=target)
    is_list = target.suffix == ".jsonl"
    known = (read_cases(target) if is_list else load_evaluation(target).cases) if target.exists() else ()
    if any(one.name == case["name"] for one in known):
        raise ConfigError.of("eval.case_exists", "{path} has a case {name!r} already", path=target, name=case["name"])
    before = target.read_text(encoding="utf-8") if target.exists() else "" if is_list else "cases:\n"
    before += "" if not before or before.endswith("\n") else "\n"
    after = before + (f"{dump(case)}\n" if is_list else _as_item(before, case))
    target.parent.mkdir(parents=True, exist_ok=True)
    if not is_list:
        _check_added(target, before, after, case)
    target.write_text(after, encoding="utf-8")
    return target


def _as_item(before: str, case: dict[str, Any]) -> str:
    """Return the case as an item of a YAML list, indented like the last item of the file."""
    import yaml

    last = [line for line in before.splitlines() if line.lstrip().startswith("- ")]
    edge = " " * (len(last[0]) - len(last[0].lstrip())) if last else "  "
    lines = yaml.safe_dump(case, allow_unicode=True, sort_keys=False, width=110).splitlines()
    return "".join([f"{edge}{'- ' if not place else '  '}{line}\n" for place, line in enumerate(lines)])


def _check_added(path: Path, before: str, after: str, case: dict[str, Any]) -> None:
    """Check that the text with the item is the file as it was, with one more case."""
    import yaml

    try:
        old, new = yaml.safe_load(before) or {}, yaml.safe_load(after)
        listed = [*(old.get("cases") or []), json.loads(json.dumps(case))]
        same = new == {**old, "cases": listed}
    except (yaml.YAMLError, TypeError, AttributeError):
        same = False
    if not same:
        raise ConfigError.of(
            "eval.cannot_add", "the case cannot be added to {path}: `cases` must be a list at its end", path=path
        )
