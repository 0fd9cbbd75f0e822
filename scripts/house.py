"""The rules of the house that no linter knows, and the measures that say whether the house becomes simpler or worse.

python scripts/house.py                    the rules, and the measures that became worse than the baseline: CI runs this
python scripts/house.py measure            the table of all measures: before the renovation, baseline, now, wanted
python scripts/house.py measure NAME       what one row of the table counts, place by place
python scripts/house.py record             makes the measures of now the baseline (scripts/rulers/baseline.json)
python scripts/house.py files              makes docs/internals/files.md: every file with the first sentence of its docstring
"""

from __future__ import annotations

import sys

from rulers import measure, rules, translations


def main() -> int:
    match sys.argv[1:]:
        case ["files"]:
            rules.LISTED.write_text(rules.list_files(), encoding="utf-8")
        case ["measure"]:
            print(measure.table(measure.measure(), measure.baseline()))
        case ["measure", name]:
            print(*measure.details(name), sep="\n")
        case ["record"]:
            measure.record(measure.measure())
        case _:
            return check()
    return 0


def check() -> int:
    broken = [
        *rules.the_loop(),
        *rules.broad_excepts(),
        *rules.foreign_imports(),
        *rules.cycles(),
        *rules.files_are_listed(),
        *translations.translations(),
        *rules.requirements(),
        *rules.mutations(),
        *rules.words(),
        *measure.worse(measure.measure(), measure.baseline()),
    ]
    for line in broken:
        print(f"  {line}")
    print(f"house: {'in order' if not broken else f'{len(broken)} rules broken'}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
