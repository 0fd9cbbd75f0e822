"""Try random combinations: `python -m tests.doors --cases 2000 [--seed N] [--forced a,b]`."""

from __future__ import annotations

import argparse
import logging
import random
import sys
import time
from collections import Counter

from .case import Outcome, chosen, names, run_case, shrink


def main() -> int:
    """Run the cases, and print each broken rule with its number, a seed and the features that it needs."""
    parser = argparse.ArgumentParser(prog="python -m tests.doors", description=__doc__)
    parser.add_argument("--cases", type=int, default=2000, help="how many cases to try (default: 2000)")
    parser.add_argument("--seed", type=int, default=None, help="the first seed, or the only one with --cases 1")
    parser.add_argument("--forced", default="", help="features that every case has, with commas between them")
    parser.add_argument("--features", default=None, help="exactly these features, to repeat a shrunk case")
    parser.add_argument("--list", action="store_true", help="print the names of all features")
    parser.add_argument("--rule", default="", help="print only this rule")
    parser.add_argument("--examples", type=int, default=3, help="how many cases of each rule to shrink (default: 3)")
    parser.add_argument("--no-shrink", action="store_true", help="do not shrink the first case of each rule")
    parser.add_argument("--seconds", type=float, default=1e9, help="try no further case after so many seconds of CPU")
    parser.add_argument("--show", action="store_true", help="print the ledger of each case")
    given = parser.parse_args()
    if given.list:
        print("\n".join(names()))
        return 0
    logging.disable(logging.CRITICAL)
    first = random.SystemRandom().randrange(10**9) if given.seed is None else given.seed
    counts: Counter[str] = Counter()
    examples: dict[str, list[Outcome]] = {}
    start, slowest = time.process_time(), (0.0, 0)
    for seed in range(first, first + given.cases):
        began = time.process_time()
        if began - start > given.seconds:
            given.cases = seed - first
            break
        forced = [one for one in given.forced.split(",") if one]
        fixed = None if given.features is None else tuple(one for one in names() if one in given.features.split(","))
        outcome = run_case(seed, fixed if fixed is not None else chosen(seed, forced), show=given.show)
        slowest = max(slowest, (time.process_time() - began, seed))
        for rule in {one.rule for one in outcome.broken}:
            counts[rule] += 1
            examples.setdefault(rule, []).append(outcome)
    used = time.process_time() - start
    for rule, count in counts.most_common():
        if given.rule and rule != given.rule:
            continue
        print(f"{rule:28} {count:5}")
        kinds: dict[tuple[str, ...], Outcome] = {}
        for outcome in sorted(examples[rule], key=lambda one: len(one.features))[: given.examples]:
            shown = outcome if given.no_shrink else shrink(outcome, rule)
            kinds.setdefault(shown.features, shown)
        for shown in kinds.values():
            detail = next(one.detail for one in shown.broken if one.rule == rule)
            print(f"    seed {shown.seed:9}  {','.join(shown.features)}\n{'':20}{detail[:180]}")
    print(
        f"{given.cases} cases from seed {first}: {1000 * used / given.cases:.1f} ms of CPU a case, slowest {slowest[0]:.2f} s ({slowest[1]})"
    )
    return 1 if counts else 0


if __name__ == "__main__":
    sys.exit(main())
