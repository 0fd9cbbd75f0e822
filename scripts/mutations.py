"""Put deliberate faults into a copy of the code and see that the tests notice them.

    scripts/mutations.py              all of them; a table at the end, as in docs/internals/testing.md
    scripts/mutations.py A5 D17       those of two requirements
    scripts/mutations.py --check      only: every requirement has its faults, and each can still be put in (CI does this)

The faults stand in tests/designs/mutations/*.toml. A fault is a text that occurs once in a file of the package, and what to
put in its place. It is caught if a test of its requirement in tests/designs fails or hangs; without a fault they must pass.
R1, R2, … are rules that belong to no requirement of the designs. Their tests are in tests/rules. S1, S2, … are found by
simulated schedules (`python -m kaname.testing.simulation`): it is told after how many.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FAULTS = ROOT / "tests" / "designs" / "mutations"
LEAST = 2  # faults of each requirement
LIMIT = 180  # seconds; a test that hangs has noticed
SCHEDULES = 100_000  # until a simulation must have found a fault


@dataclass(frozen=True)
class Fault:
    requirement: str
    what: str
    file: str
    find: str
    put: str
    ground: str = ""  # of a simulation

    def problem(self) -> str | None:
        path = ROOT / "src" / "kaname" / self.file
        if not path.exists():
            return f"{self.requirement} ({self.what}): there is no src/kaname/{self.file}"
        found = path.read_text(encoding="utf-8").count(self.find)
        if found != 1:
            return f"{self.requirement} ({self.what}): {self.find!r} occurs {found} times in {self.file}, not once"
        return None

    def insert(self, package: Path) -> None:
        path = package / self.file
        path.write_text(path.read_text(encoding="utf-8").replace(self.find, self.put), encoding="utf-8")


def faults() -> list[Fault]:
    listed = [tomllib.loads(path.read_text(encoding="utf-8")) for path in sorted(FAULTS.glob("*.toml"))]
    return [Fault(number, **one) for table in listed for number, ones in table.items() for one in ones]


def required() -> set[str]:
    """The numbers of all requirements that are not listed as open."""
    known: dict[str, object] = {}
    exec((FAULTS.parent / "requirements.py").read_text(encoding="utf-8"), known)
    return set(known["REQUIREMENTS"]) - set(known["OPEN"])  # type: ignore[call-overload]


def problems(listed: list[Fault]) -> Iterator[str]:
    """Yield every requirement with too few faults, and every fault that cannot be put in any more."""
    for number in sorted(required(), key=_order):
        count = sum(one.requirement == number for one in listed)
        if count < LEAST:
            yield f"requirement {number} has {count} of at least {LEAST} faults in tests/designs/mutations"
    for one in listed:
        if problem := one.problem():
            yield problem


def notices(fault: Fault | None, number: str) -> bool:
    """True if a test of the requirement fails with the fault put in (or without any, if `fault` is None)."""
    with tempfile.TemporaryDirectory(prefix="kaname-mutation-") as folder:
        package = Path(folder, "src", "kaname")
        shutil.copytree(ROOT / "src" / "kaname", package, ignore=shutil.ignore_patterns("__pycache__"))
        if fault is not None:
            fault.insert(package)
        if number.startswith("S"):
            return fault is not None and _is_found(fault, package)
        tests = tests_of(number)
        command = [sys.executable, "-m", "pytest", "-xq", "-p", "no:cacheprovider", "-m", "not model", "--requirement", number]
        surroundings = {**os.environ, "PYTHONPATH": str(package.parent)}
        try:
            done = subprocess.run(
                [*command, *tests], cwd=ROOT, env=surroundings, capture_output=True, text=True, timeout=LIMIT, check=False
            )
        except subprocess.TimeoutExpired:
            return True
        if done.returncode not in (0, 1):  # 1: a test failed; anything else is no answer
            print(done.stdout[-2000:], done.stderr[-2000:], sep="\n", file=sys.stderr)
        if fault is None and done.returncode:
            raise SystemExit(f"the tests of {number} fail without a fault:\n{done.stdout[-3000:]}")
        return done.returncode == 1


def tests_of(number: str) -> list[str]:
    """Return the files with tests that name the requirement: to collect the others takes longer than to run these."""
    folder = ROOT / "tests" / ("rules" if number.startswith("R") else "designs")
    naming = re.compile(rf'requirement\([^)]*"{number}"')
    named = [path for path in sorted(folder.rglob("test_*.py")) if naming.search(path.read_text(encoding="utf-8"))]
    return [str(path) for path in named or [folder]]


def _is_found(fault: Fault, package: Path) -> bool:
    """Simulate schedules with the fault put in until one breaks a promise, and tell how many it took."""
    command = [sys.executable, "-m", "kaname.testing.simulation", "--seed", "1", "--schedules", str(SCHEDULES), "--most", "1"]
    command += ["--ground", fault.ground] if fault.ground else []
    surroundings = {**os.environ, "PYTHONPATH": str(package.parent)}
    done = subprocess.run(command, cwd=ROOT, env=surroundings, capture_output=True, text=True, check=False)
    told = [line.strip() for line in done.stdout.splitlines()]
    print(f"{fault.requirement}: {' '.join([*told[-1:], *told[1:3]])[:300]}", done.stderr[-1000:], file=sys.stderr, flush=True)
    return done.returncode == 1


def try_all(listed: list[Fault]) -> int:
    began = time.monotonic()
    numbers = sorted({one.requirement for one in listed}, key=_order)
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        list(pool.map(lambda number: notices(None, number), numbers))
        caught = list(pool.map(_try_one, listed))
    print("| requirement | faults | caught | not caught |\n|---|---|---|---|")
    for number in numbers:
        own = [(one, seen) for one, seen in zip(listed, caught, strict=True) if one.requirement == number]
        missed = "; ".join([one.what for one, seen in own if not seen])
        print(f"| {number} | {len(own)} | {sum(seen for _, seen in own)} | {missed} |")
    print(f"\n{sum(caught)} of {len(caught)} caught, in {time.monotonic() - began:.0f} s")
    return 0 if all(caught) else 1


def _try_one(fault: Fault) -> bool:
    seen = notices(fault, fault.requirement)
    print(f"{fault.requirement} {'caught' if seen else 'MISSED'}: {fault.what}", file=sys.stderr, flush=True)
    return seen


def _order(number: str) -> tuple[str, int]:
    return number[0], int(re.sub(r"\D", "", number))


def main() -> int:
    listed = faults()
    if sys.argv[1:] == ["--check"]:
        broken = list(problems(listed))
        print(*broken, f"mutations: {len(listed)} faults, {len(broken)} problems", sep="\n")
        return 1 if broken else 0
    wanted = set(sys.argv[1:])
    return try_all([one for one in listed if not wanted or one.requirement in wanted])


if __name__ == "__main__":
    sys.exit(main())
