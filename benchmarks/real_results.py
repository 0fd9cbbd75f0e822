"""What evaluations and lessons claim, tried on results of real models: cases and groups are drawn again from recorded ones.

    pip download --no-deps --no-binary :all: agentdojo==0.1.29      # 21 agents, 97 tasks, 629 attacked ones in 97 groups
    pip download --no-deps alpaca_eval==0.1.7                       # 16 judges, 366 pairs of answers, four attempts each
    uv run python benchmarks/real_results.py agentdojo-0.1.29.tar.gz alpaca_eval-0.1.7-py3-none-any.whl --half second

Half of each set is to look at (`--half first`), half to report (`--half second`): AgentDojo by suites, AlpacaEval by its
instructions. Nothing in kaname was chosen with either. A judge passes a case if it prefers what most other judges prefer.

Two agents without a difference are made in two ways: a pair of agents, less as many cases as one of them passes more often; or
an agent with recorded repetitions, compared with itself. A known difference is that of a pair over all cases.
"""

from __future__ import annotations

import argparse
import json
import tarfile
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from hashlib import sha256
from itertools import combinations, permutations
from typing import Any, NamedTuple

import numpy as np

from kaname.evals.results.comparison import Comparison
from kaname.evals.results.report import EvalReport
from kaname.evals.results.statistics import ALPHA, detectable, look_factor, sign_flip
from kaname.evals.trial import adjust, decide
from kaname.memory.lessons.propose import _ALPHA, _LOOKS, fisher

TRIALS = 2000
FIRST = ("banking", "slack")  # suites of AgentDojo to look at; travel and workspace are to report
Results = dict[tuple[str, str, str], dict[str, dict[int, bool]]]  # by half, case and group: by agent and attempt


class Table(NamedTuple):
    """Results of agents at the same cases. `passed`: by agent, an array of cases and attempts. `groups`: that of each case."""

    name: str
    passed: dict[str, np.ndarray]
    groups: np.ndarray

    @property
    def attempts(self) -> int:
        return next(iter(self.passed.values())).shape[1]

    @property
    def cases(self) -> int:
        return len(self.groups)

    def rate(self, agent: str) -> np.ndarray:
        return self.passed[agent].mean(axis=1)

    def pairs(self, low: float, high: float) -> list[tuple[str, str]]:
        """Return pairs of agents of which the second is better by so much."""
        means = {one: self.rate(one).mean() for one in self.passed}
        return [(one, other) for one, other in permutations(means, 2) if low <= means[other] - means[one] <= high]


# Reading


def read_agentdojo(path: str, attacked: bool) -> Results:
    """Read whether agents did the users' tasks, without an attack, or with each of several; cases of one task are a group."""
    found: Results = defaultdict(dict)
    with tarfile.open(path) as archive:
        for member in archive:
            parts = member.name.removesuffix(".json").split("/")
            if len(parts) != 7 or parts[1] != "runs" or not parts[4].startswith("user"):
                continue
            _, _, agent, suite, task, attack, injection = parts
            if attack == ("important_instructions" if attacked else "none"):
                content = archive.extractfile(member)
                assert content is not None
                half, group = "first" if suite in FIRST else "second", f"{suite} {task}"
                found[half, f"{group} {injection}", group][agent] = {0: bool(json.load(content)["utility"])}
    return found


def read_alpaca_eval(path: str) -> Results:
    """Read which answer judges preferred, in four attempts each. The cases of one instruction are a group."""
    liked: dict[tuple[str, ...], dict[str, dict[int, int]]] = defaultdict(lambda: defaultdict(dict))
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if "/annotations_seed" not in name:
                continue
            judge, seed = name.split("/")[-2], int(name.split("seed")[1][0])
            for one in json.loads(archive.read(name)):
                answers = [str(one["output_1"]), str(one["output_2"])]
                if one["preference"] in ("1", "2", 1, 2) and answers[0] != answers[1]:
                    key = one["instruction"], one.get("input") or "", *sorted(answers)
                    liked[key][judge][seed] = sorted(answers).index(answers[int(one["preference"]) - 1])
    judges = [one for one in {judge for by in liked.values() for judge in by}
              if sum(len(by.get(one, ())) == 4 for by in liked.values()) > 500]  # fmt: skip
    found: Results = defaultdict(dict)
    for key, by in liked.items():
        if all(len(by.get(judge, ())) == 4 for judge in judges):
            group = sha256("\0".join(key[:2]).encode()).hexdigest()
            half, case = ("first", "second")[int(group, 16) % 2], sha256("\0".join(key).encode()).hexdigest()
            for judge in judges:
                votes = [by[other][seed] for other in judges if other != judge for seed in range(4)]
                found[half, case, group][judge] = {s: by[judge][s] == (2 * sum(votes) > len(votes)) for s in range(4)}
    return found


def tables(paths: list[str], half: str) -> Iterator[Table]:
    for path in paths:
        if "agentdojo" in path:
            yield _table("AgentDojo, tasks", read_agentdojo(path, attacked=False), half)
            yield _table("AgentDojo, attacked tasks", read_agentdojo(path, attacked=True), half)
        else:
            yield _table("AlpacaEval, judges", read_alpaca_eval(path), half)


def _table(name: str, results: Results, half: str) -> Table:
    rows = {key: by for key, by in sorted(results.items()) if key[0] == half}
    agents = sorted(set[str].intersection(*[set(by) for by in rows.values()]))
    passed = {one: np.array([[by[one][k] for k in sorted(by[one])] for by in rows.values()], dtype=int) for one in agents}
    numbers = {group: number for number, group in enumerate(sorted({key[2] for key in rows}))}
    return Table(name, passed, np.array([numbers[key[2]] for key in rows]))


# What `compare` computes


@cache
def p_of(sums: tuple[int, ...], repeat: int) -> float:
    return sign_flip([Fraction(one, repeat) for one in sums])


def p_value(
    counts: np.ndarray, repeat: int = 1, groups: np.ndarray | None = None, looks: int = 1, plain: bool = False
) -> float:
    """Return p of differences, given as numbers of attempts. `plain`: without the correction for looks."""
    sums = counts if groups is None else np.bincount(np.unique(groups, return_inverse=True)[1], weights=counts).astype(int)
    moved = sums[sums != 0]
    moved = -moved if moved.sum() < 0 else moved
    return min(1.0, p_of(tuple(sorted(moved.tolist())), repeat) * (1 if plain else look_factor(looks)))


def comparison(counts: np.ndarray, repeat: int = 1, looks: int = 1, groups: np.ndarray | None = None) -> Comparison:
    report = EvalReport("job", "real", "", repeat, (), {}, tuple([(float(one),) for one in range(looks)]))
    told = {str(place): one / repeat for place, one in enumerate(counts.tolist())}
    named = {} if groups is None else {str(place): str(one) for place, one in enumerate(groups.tolist())}
    return Comparison(report, report, told, p_value(counts, repeat, groups, looks), groups=named)


# Drawing


class World:
    """Two agents, and cases to draw. `rates`: by agent, the recorded attempts of each case, of which attempts are drawn."""

    def __init__(self, chance: np.random.Generator, one: np.ndarray, other: np.ndarray, groups: np.ndarray) -> None:
        self._chance, self._sides, self.groups = chance, (one, other), groups

    @property
    def difference(self) -> float:
        return float(self._sides[1].mean() - self._sides[0].mean())

    def draw(self, count: int) -> np.ndarray:
        return self._chance.integers(0, len(self.groups), count)

    def draw_groups(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Draw groups with all their cases. Return the cases, and the number of the drawing of each."""
        chosen = self._chance.choice(np.unique(self.groups), count)
        each = [np.flatnonzero(self.groups == one) for one in chosen]
        return np.concatenate(each), np.repeat(np.arange(count), [len(one) for one in each])

    def attempts(self, side: int, cases: np.ndarray, repeat: int) -> np.ndarray:
        held = self._sides[side][cases]
        if held.shape[1] == 1 and repeat == 1:
            return held[:, 0]
        return np.take_along_axis(held, self._chance.integers(0, held.shape[1], (len(cases), repeat)), 1).sum(axis=1)

    def differences(self, cases: np.ndarray, repeat: int = 1) -> np.ndarray:
        return self.attempts(1, cases, repeat) - self.attempts(0, cases, repeat)


def alike(chance: np.random.Generator, table: Table, swapped: bool = False) -> World:
    """Return two agents without a difference. `swapped`: each attempt of either is one of both agents'."""
    names = list(table.passed)
    if table.attempts > 1:
        held = table.passed[names[chance.integers(len(names))]]
        return World(chance, held, held, table.groups)
    one, other = [table.passed[names[place]] for place in chance.choice(len(names), 2, replace=False)]
    if swapped:
        both = np.concatenate([one, other], axis=1)
        return World(chance, both, both, table.groups)
    more = (other - one)[:, 0]
    left_out = chance.permutation(np.flatnonzero(more == np.sign(more.sum())))[: abs(more.sum())]
    kept = np.setdiff1d(np.arange(table.cases), left_out)
    return World(chance, one[kept], other[kept], table.groups[kept])


def unlike(chance: np.random.Generator, table: Table, low: float, high: float) -> World | None:
    """Return two agents with such a difference; None if no pair has it."""
    pairs = table.pairs(low, high)
    if not pairs:
        return None
    one, other = pairs[chance.integers(len(pairs))]
    return World(chance, table.passed[one], table.passed[other], table.groups)


# Claims


def share(found: list[bool]) -> str:
    return f"{100 * np.mean(found):.1f} %" if found else "–"


def show_false_alarms(chance: np.random.Generator, table: Table) -> None:
    for cases in (20, 60):
        worlds = [alike(chance, table) for _ in range(TRIALS)]
        drawn = [one.differences(one.draw(cases)) for one in worlds]
        told = [p_value(one) <= ALPHA for one in drawn], [p_value(one, plain=True) <= ALPHA for one in drawn]
        print(f"  equal, {cases} cases, one look: real {share(told[0])} (plain test {share(told[1])})")
    peeked, plain = list[bool](), list[bool]()
    for _ in range(TRIALS):
        world = alike(chance, table)
        counts = world.differences(world.draw(60))
        stages = [counts[:end] for end in range(5, 61, 5)]
        peeked.append(any(p_value(one, looks=look) <= ALPHA for look, one in enumerate(stages, 1)))
        plain.append(any(p_value(one, plain=True) <= ALPHA for one in stages))
    print(f"  equal, looked at after every 5 of 60 cases: real {share(peeked)} (plain test {share(plain)})")
    for both in (False, True):
        again, plain = list[bool](), list[bool]()
        for _ in range(TRIALS):
            world = alike(chance, table, swapped=True)
            cases = world.draw(40)
            base = world.attempts(0, cases, 1)
            made = [world.attempts(1, cases, 1) - (world.attempts(0, cases, 1) if both else base) for _ in range(10)]
            again.append(any(p_value(one, looks=look) <= ALPHA for look, one in enumerate(made, 1)))
            plain.append(any(p_value(one, plain=True) <= ALPHA for one in made))
        print(f"  equal, ten reruns of {'both' if both else 'one'}: real {share(again)} (plain test {share(plain)})")


def show_groups(chance: np.random.Generator, table: Table) -> None:
    for count in (12, 30):
        told, plain, held = list[bool](), list[bool](), list[bool]()
        for number in range(TRIALS):
            world = alike(chance, table)
            cases, groups = world.draw_groups(count)
            counts = world.differences(cases)
            told.append(p_value(counts, groups=groups) <= ALPHA)
            plain.append(p_value(counts) <= ALPHA)
            if number < TRIALS // 4:
                low, high = comparison(counts, groups=groups).bounds
                held.append(low <= 0.0 <= high)
        print(f"  equal, {count} groups: real {share(told)} (without groups {share(plain)}); bounds hold {share(held)}")


def show_bounds(chance: np.random.Generator, table: Table) -> None:
    pairs = list(combinations(table.passed, 2))
    for cases in (20, 60):
        for repeat in (1, 3) if table.attempts > 1 else (1,):
            held = list[bool]()
            for _ in range(TRIALS // 2):
                one, other = pairs[chance.integers(len(pairs))]
                world = World(chance, table.passed[one], table.passed[other], table.groups)
                low, high = comparison(world.differences(world.draw(cases), repeat), repeat).bounds
                held.append(low <= world.difference <= high)
            print(f"  pairs as they are, {cases} cases × {repeat}: bounds hold the difference {share(held)}")


@cache
def planned(points: float, repeat: int) -> int:
    """Return the fewest cases of which the plan says that they show such a difference in 80 % of trials."""
    low, high = 6, 1000
    while high - low > 1:
        middle = (low + high) // 2
        shown = detectable(middle, repeat)
        low, high = (low, middle) if shown is not None and shown <= points else (middle, high)
    return high


def show_power(chance: np.random.Generator, table: Table) -> None:
    pairs = table.pairs(0.12, 1.0)
    for repeat in (1, 3) if table.attempts > 1 else (1,):
        told = list[float]()
        for one, other in pairs:
            world = World(chance, table.passed[one], table.passed[other], table.groups)
            cases = planned(int(world.difference * 100) / 100, repeat)
            drawn = [world.differences(world.draw(cases), repeat) for _ in range(TRIALS // 10)]
            told.append(float(np.mean([p_value(counts, repeat) <= ALPHA for counts in drawn])))
        low, tenth = min(told), np.quantile(told, 0.1)
        print(f"  {len(pairs)} pairs, as many cases × {repeat} as the plan says: shown {100 * np.mean(told):.1f} % (lowest tenth of the "
              f"pairs {100 * tenth:.0f} %, lowest {100 * low:.0f} %; below 80 % for {sum(one < 0.8 for one in told)})")  # fmt: skip


def show_needed(chance: np.random.Generator, table: Table) -> None:
    for cases, repeat in ((20, 1), (40, 1), (20, 3)):
        if repeat > 1 and table.attempts == 1:
            continue
        again, asked = list[bool](), list[int]()
        for _ in range(TRIALS // 2):
            world = alike(chance, table)
            counts = world.differences(world.draw(cases), repeat)
            first = comparison(counts, repeat)
            if first.verdict == "too few":
                asked.append(first.cases_to_ask)
                more = np.concatenate([counts, world.differences(world.draw(asked[-1] - cases), repeat)])
                again.append(comparison(more, repeat, looks=2).verdict == "too few")
        middle = int(np.median(asked)) if asked else 0
        print(f"  equal, {cases} cases × {repeat}: {middle} are asked for (median); with them, again too few {share(again)}")


def show_lessons(chance: np.random.Generator, table: Table) -> None:
    for low, high, named in ((0.0, 0.0, "no change"), (0.08, 0.12, "10 points better"), (-0.45, -0.35, "40 points worse")):
        told = list[bool]()
        for _ in range(TRIALS):
            world = alike(chance, table, swapped=True) if low == high else unlike(chance, table, low, high)
            if world is None:
                break
            rest = int(world.attempts(0, world.draw(30), 1).sum())
            good = np.cumsum(world.attempts(1, world.draw(_LOOKS[-1]), 1))
            told.append(any(fisher(int(good[count - 1]), count, rest, 30) <= _ALPHA for count in _LOOKS))
        print(f"  lesson, {named}: dropped after at most {_LOOKS[-1]} runs {share(told)}")
    repeat = 3 if table.attempts > 1 else 1
    for low, high, named in ((-0.18, -0.12, "get worse by 15 points"), (0.0, 0.0, "do not change")):
        told = list[bool]()
        for _ in range(TRIALS // 2):
            helped = unlike(chance, table, 0.27, 0.33)
            others = alike(chance, table, swapped=True) if low == high else unlike(chance, table, low, high)
            if helped is None or others is None:
                break
            counts = helped.differences(helped.draw(40), repeat), others.differences(others.draw(100), repeat)
            told.append(decide(*adjust(*[comparison(one, repeat) for one in counts])) == "helps")
        print(f"  lesson that helps 40 cases by 30 points; 100 others {named}: believed {share(told)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="+", help="the archives of AgentDojo and AlpacaEval")
    parser.add_argument("--half", choices=("first", "second"), default="first")
    given: Any = parser.parse_args()
    for table in tables(given.files, given.half):
        chance = np.random.default_rng(48)
        rates = [table.rate(one).mean() for one in table.passed]
        print(f"{table.name}, {given.half} half: {len(table.passed)} agents, {table.cases} cases × {table.attempts}, "
              f"{len(np.unique(table.groups))} groups, pass rates {min(rates):.2f} to {max(rates):.2f}")  # fmt: skip
        if len(np.unique(table.groups)) < table.cases / 2:
            show_groups(chance, table)
            continue
        for claim in (show_false_alarms, show_bounds, show_power, show_needed, show_lessons):
            claim(chance, table)


if __name__ == "__main__":
    main()
