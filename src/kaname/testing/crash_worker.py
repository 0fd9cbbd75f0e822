"""The process of the crash check: it imports the agent once and forks every other process from there."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import json
import os
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..core.events import ModelReplied, ToolFinished, ToolStarted
from .crash_life import RUN, Death, live, random_death, read_lines
from .crash_places import drop_schemas, facts_at, place_for

_LIVES = 50
_SHARED = (
    "asyncio",
    "asyncpg",
    "concurrent",
    "kaname",
    "pydantic",
    "regex",
    "sqlite3",
)  # they start no thread when they are imported
_MEETINGS = 3  # where a clock has a say (a tool's time limit), a run may be a fact shorter than the one before


def load(spec: str) -> Callable[[], Any]:
    home, _, name = spec.partition(":")
    if home.endswith(".py"):
        found = importlib.util.spec_from_file_location("kaname_crash_target", home)
        assert found is not None
        assert found.loader is not None
        module = importlib.util.module_from_spec(found)
        found.loader.exec_module(module)
    else:
        module = importlib.import_module(home)
    make_agent: Callable[[], Any] = getattr(module, name)
    return make_agent


class Trial:
    """One run that is killed at one moment, and its result."""

    def __init__(self, order: dict[str, Any], make_agent: Callable[[], Any], name: str, death: Death) -> None:
        self.order, self.make_agent, self.death, self.name = order, make_agent, death, name
        self.folder = Path(order["folder"]) / name
        self.folder.mkdir()
        self.place = place_for(order, self.folder)
        self.kills = self.resumed = self.in_doubt = 0
        self.problems: list[str] = []
        self.before_death: list[str] = []
        self.outcome: dict[str, Any] = {}

    def run(self) -> Trial:
        death = self.death
        answers: dict[str, Any] | None = None
        for _ in range(_LIVES):
            killed, told = self._fork(death, answers)
            if killed:
                self.kills += 1
                self.before_death = self.facts()
                again = Death(self.death.moment or "after", len(self.before_death) + 2)  # in the life after: its second fact
                death = again if self.kills < self.order["deaths"] else Death()
                answers = {} if self.before_death else None  # died before its first fact: the caller starts it again
                self.resumed += answers is not None
                continue
            if "error" in told:
                self.problems.append(f"{self.name}: {told['error']}")
                return self
            self.outcome = told
            if not told["questions"]:
                return self
            self.in_doubt += sum(_own_key(key).startswith("in-doubt:") for key in told["questions"])
            answers = {key: self._answer(key) for key in told["questions"]}
        self.problems.append(f"{self.name}: still not finished after {_LIVES} lives")
        return self

    def _answer(self, key: str) -> Any:
        return next((answer for start, answer in self.order["answers"].items() if _own_key(key).startswith(start)), "yes")

    def _fork(self, death: Death, answers: dict[str, Any] | None) -> tuple[bool, dict[str, Any]]:
        told = self.folder / "told.json"
        told.unlink(missing_ok=True)
        if (child := os.fork()) == 0:
            os.environ["KANAME_CRASH_FOLDER"] = str(self.folder)
            try:
                said = live(self.make_agent(), self.order["input"], self.folder, self.place, death, answers)
                told.write_text(json.dumps({**said, "modules": list(sys.modules)}))
            except BaseException:  # noqa: BLE001  a child process ends here, whatever happened in it
                told.write_text(json.dumps({"error": traceback.format_exc()}))
            os._exit(0)
        status = self._wait(child)
        if status is None:
            return False, {"error": f"a life hung for {self.order['life']:g} s: {self.effects()[-1:]}"}
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        if not killed and not told.exists():
            return False, {"error": f"a process ended by itself, with status {status}"}
        return killed, {} if killed else json.loads(told.read_text())

    def _wait(self, child: int) -> int | None:
        """Return the exit status of the process; None if it was killed because it hung."""
        until = time.monotonic() + self.order["life"]
        while time.monotonic() < until:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return status
            time.sleep(0.002)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return None

    def facts(self) -> list[str]:
        """Return the facts in the journal."""
        return facts_at(self.place, RUN)

    def judge(self, peaceful: Trial, wanted: list[str]) -> None:
        """Compare the trial with the undisturbed run and its facts, and note the problems."""
        facts = self.facts()
        if facts[: len(self.before_death)] != self.before_death:
            self.problems.append(f"{self.name}: recorded facts changed or went missing")
        if self.outcome and self.outcome["stop"] != peaceful.outcome["stop"]:
            self.problems.append(f"{self.name}: ended {self.outcome['stop']}, not {peaceful.outcome['stop']}")
        if self.order["same_output"] and self.outcome and self.outcome["output"] != peaceful.outcome["output"]:
            self.problems.append(f"{self.name}: answered {self.outcome['output']}, not {peaceful.outcome['output']}")
        self.problems += [f"{self.name}: {problem}" for problem in (*self._repeated_calls(facts, wanted), *self._effects())]

    def _repeated_calls(self, facts: list[str], peaceful: list[str]) -> Iterator[str]:
        finished: set[str] = set()
        replies = 0
        for data in map(json.loads, facts):
            kind, body = data["type"], data["body"]
            replies += kind == ModelReplied.__name__
            if kind == ToolStarted.__name__ and body["call"]["id"] in finished:
                yield f"call {body['call']['id']} was started again after it had finished"
            if kind == ToolFinished.__name__:
                if body["result"]["call_id"] in finished:
                    yield f"call {body['result']['call_id']} finished twice"
                finished.add(body["result"]["call_id"])
        wanted = sum(json.loads(fact)["type"] == ModelReplied.__name__ for fact in peaceful)
        if self.order["same_output"] and replies != wanted:
            yield f"{replies} model replies recorded, {wanted} without a death"

    def _effects(self) -> Iterator[str]:
        retried = any(start.startswith("in-doubt") and a == "retry" for start, a in self.order["answers"].items())
        return repeated_effects(self.effects(), retried=retried)

    def effects(self) -> list[Any]:
        return read_lines(self.folder / "effects.log")


def _own_key(key: str) -> str:
    """Return the key of a question as the child run asked it."""
    while key.startswith(f"{RUN}/"):
        key = key.partition(":")[2]
    return key


def repeated_effects(log: list[Any], *, retried: bool = False) -> Iterator[str]:
    """Yield the irreversible effects that happened more than once.

    A repetition is allowed if the effect was undone, if it was looked up and found missing, or if a person asked for it.
    """
    begun: Counter[str] = Counter()
    allowed: Counter[str] = Counter()
    ended: set[str] = set()
    names: dict[str, str] = {}
    for what, effect, name, key in log:
        if effect not in ("irreversible", "compensable"):
            continue
        names[key] = f"{name} ({effect})"
        begun[key] += what == "begin"
        allowed[key] += what.startswith("undo:") or (what == "begin" and retried)
        if what == "reconcile:nothing":
            allowed[key] += key not in ended  # what had ended cannot be missing: such a look-up did not look
        ended |= {key} if what == "end" else set()
    for key, times in begun.items():
        if times > 1 + allowed[key]:
            yield f"{names[key]} took effect {times} times for {key}"


def _import_again(modules: list[str]) -> None:
    """Import what the first life imported while it ran, from kaname and its libraries: else each life imports it again."""
    for name in modules:
        if name not in sys.modules and name.partition(".")[0] in _SHARED:
            with suppress(ImportError):
                importlib.import_module(name)
    gc.freeze()


def sweep(order: dict[str, Any]) -> dict[str, Any]:
    make_agent = load(order["target"])
    gc.freeze()  # else the collector of each life copies what they all share
    begun = time.monotonic()
    peaceful = Trial(order, make_agent, "peaceful", Death()).run()
    took = time.monotonic() - begun
    if peaceful.problems:
        raise SystemExit(peaceful.problems[0])
    _import_again(peaceful.outcome["modules"])
    wanted = peaceful.facts()
    facts = len(wanted)
    deaths = [Death(moment, fact) for fact in range(1, facts + 1) for moment in order["moments"]]
    deaths += [random_death(took, seed) for seed in range(order["random_kills"])]
    trials: list[Trial] = []
    for death in deaths:
        name = f"{death.moment}-{death.fact}" if death.moment else f"random-{len(trials)}-at-{death.seconds:.3f}s"
        for again in range(_MEETINGS):
            trial = Trial(order, make_agent, f"{name}-again-{again}" if again else name, death).run()
            trial.judge(peaceful, wanted)
            trials.append(trial)
            if trial.kills or trial.problems or not death.moment:
                break
        else:
            trial.problems.append(f"{name}: nobody died there, so nothing was shown")
    return {
        "kills": sum(trial.kills for trial in trials),
        "runs": len(trials),
        "facts": facts,
        "resumed": sum(trial.resumed for trial in trials),
        "in_doubt": sum(trial.in_doubt for trial in trials),
        "reconciled": sum(entry[0].startswith("reconcile") for trial in trials for entry in trial.effects()),
        "problems": [problem for trial in trials for problem in trial.problems],
    }


def main() -> None:
    order = json.loads(sys.stdin.read())
    sys.path[:] = order["path"]
    importlib.import_module("pydantic")  # once, for all the lives to come
    report = sweep(order)
    drop_schemas(order)
    (Path(order["folder"]) / "report.json").write_text(json.dumps(report))


if __name__ == "__main__":
    main()
