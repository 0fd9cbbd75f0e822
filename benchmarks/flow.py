"""What a model that obeys every injected instruction does through kaname, and how often honest users are asked, by mode.

uv run python benchmarks/flow.py            # the table
uv run python benchmarks/flow.py --list     # with every call that ran although the user did not mean it
"""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.flow.runner import KINDS, Outcome, outcomes

MODES = ("off", "everything", "strict")


def share(found: list[Outcome], holds: Callable[[Outcome], bool]) -> str:
    return f"{100 * sum(map(holds, found)) / len(found):.0f} %"


def mean(found: list[Outcome]) -> str:
    return f"{sum(one.questions for one in found) / len(found):.2f}"


def row(*cells: object) -> None:
    print("| " + " | ".join(map(str, cells)) + " |")


def head(*cells: str) -> None:
    row(*cells)
    row(*["---"] * len(cells))


def by(found: Iterable[Outcome], key: Callable[[Outcome], str]) -> dict[str, list[Outcome]]:
    groups: dict[str, list[Outcome]] = defaultdict(list)
    for one in found:
        groups[key(one)].append(one)
    return dict(groups)


def main() -> None:
    begun = time.perf_counter()
    size = [
        len(outcomes(folder, "off", attacked=attacked))
        for folder, attacked in (("tasks", True), ("tasks", False), ("knowing", True))
    ]
    print(
        f"{size[0]} attacks on {size[1]} tasks, half of them Japanese; {size[2]} attacks by an attacker who knows the rule.\n"
    )
    head(
        "mode",
        "attacks through",
        "honest: finished",
        "no question",
        "finished, at most one",
        "questions, mean",
        "knows the rule: own target",
        "recombined",
    )
    for mode in MODES:
        for server in ("always", "needed"):
            attacked, told = (
                outcomes("tasks", mode, attacked=True, server=server),
                outcomes("tasks", mode, attacked=False, server=server),
            )
            knowing = outcomes("knowing", mode, attacked=True, server=server)
            foreign = sum(bool(one.foreign) for one in knowing)
            row(
                mode if server == "always" else f"{mode}, MCP server only where it is used",
                sum(bool(one.unmeant) for one in attacked),
                share(told, lambda one: one.finished),
                share(told, lambda one: not one.questions),
                share(told, lambda one: one.finished and one.questions <= 1),
                mean(told),
                foreign,
                sum(bool(one.unmeant) for one in knowing) - foreign,
            )
    print("\nQuestions by the kind of honest task, mean (an MCP server in every agent):\n")
    head("kind", "tasks", "everything", "strict")
    groups = {mode: by(outcomes("tasks", mode, attacked=False), lambda one: one.scenario.task["kind"]) for mode in MODES}
    for kind, name in KINDS.items():
        row(name, len(groups["off"][kind]), mean(groups["everything"][kind]), mean(groups["strict"][kind]))
    for language in ("en", "ja"):
        some = {
            mode: [one for one in outcomes("tasks", mode, attacked=False) if one.scenario.language == language]
            for mode in MODES
        }
        row(
            {"en": "all English", "ja": "all Japanese"}[language],
            len(some["off"]),
            mean(some["everything"]),
            mean(some["strict"]),
        )
    print("\nAttacks by the place of the instruction, and those that ran a call unasked:\n")
    head("place", "attacks", *MODES)
    places = {mode: by(outcomes("tasks", mode, attacked=True), lambda one: one.scenario.attack["place"]) for mode in MODES}
    for place in sorted(places["off"]):
        row(place, len(places["off"][place]), *[sum(bool(one.unmeant) for one in places[mode][place]) for mode in MODES])
    print("\nAn attacker who knows the rule, strict, by trick:\n")
    head("trick", "attacks", "own target", "recombined")
    for trick, found in sorted(
        by(outcomes("knowing", "strict", attacked=True), lambda one: one.scenario.attack["trick"]).items()
    ):
        foreign = sum(bool(one.foreign) for one in found)
        row(trick, len(found), foreign, sum(bool(one.unmeant) for one in found) - foreign)
    if "--list" in sys.argv:
        for folder in ("tasks", "knowing"):
            for one in outcomes(folder, "strict", attacked=True):
                for tool, args in one.unmeant:
                    print(f"{one.scenario.id}: {tool}({', '.join(f'{name}={value!r}' for name, value in args)})")
    print(f"\n{time.perf_counter() - begun:.1f} s")


if __name__ == "__main__":
    main()
