"""The performance gate: counts that must not grow, and times next to a hand-written loop.

python benchmarks/gate.py                     # counts and times, under two minutes; exit code 1 if a count slipped
python benchmarks/gate.py --counts            # only the counts, some seconds
python benchmarks/gate.py --counts calls      # only one kind: calls, beside, chunks, meters, sqlite
python benchmarks/gate.py --record            # writes the counts to benchmarks/gate/recorded.json, for this version of Python
python benchmarks/gate.py --rounds 3          # fewer samples for each time (default: 5)
"""

from __future__ import annotations

import argparse
import sys
import tempfile

from gate import record, server, times
from gate.processes import environment


def show_counts(details: record.Details) -> list[str]:
    """Print the counts next to the recorded ones, and return the names of those that slipped."""
    known = record.read()
    before = known["totals"] if known else {}
    print(f"Counts, Python {record.VERSION}{'' if known else ' (not recorded yet: use --record)'}")
    print(f"  {'':<56}{'now':>9}{'recorded':>10}")
    slipped, fell = [], False
    for name, now in record.totals(details).items():
        was = before.get(name)
        mark = ""
        if was is not None and record.has_slipped(name, now, was):
            slipped.append(name)
            mark = f"  SLIPPED {(now / was - 1) * 100:+.1f} %" if was else "  SLIPPED"
        elif was is not None and record.has_slipped(name, was, now):
            mark, fell = f"  better {(now / was - 1) * 100:+.1f} %", True
        print(f"  {name:<56}{now:9.2f}{'-' if was is None else format(was, '.2f'):>10}{mark}")
    if known:
        show_growth(details, known["details"], slipped)
    if fell:
        print("\nCounts that are better are only kept if you record them: --record.")
    return slipped


def show_growth(details: record.Details, recorded: record.Details, slipped: list[str]) -> None:
    """Print the functions and modules that grew: the most of a count that slipped, and those of a step or chunk in any case."""
    for name, kind, meter in record.ROWS:
        if meter is not None or kind not in details:
            continue
        if name in slipped:
            lines, title = record.growth(kind, details, recorded), "grew most"
        elif kind in ("calls", "chunks"):
            lines, title = record.growth(kind, details, recorded, record.GROWN), "grew, although the total has not slipped"
        else:
            continue
        if lines:
            print("\n".join([f"\n{name}, {title}:", *(f"  {line}" for line in lines)]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", nargs="*", metavar="KIND", choices=record.KINDS, help="Measure only the counts.")
    parser.add_argument("--record", action="store_true", help="Write the counts to recorded.json.")
    parser.add_argument("--rounds", type=int, default=5, help="Samples for each time (default: 5).")
    options = parser.parse_args()
    if options.record and options.counts:
        parser.error("--record needs all kinds of counts")
    with tempfile.TemporaryDirectory() as folder:
        clean = environment(folder)
        with server.running(clean) as url:
            details = record.count(options.counts or record.KINDS, url, clean)
            if options.record:
                record.write(details)
            slipped = show_counts(details)
            if options.counts is None and not options.record:
                times.run(options.rounds, url, clean)
    if slipped:
        print(f"\n{len(slipped)} counts slipped (more than 3 %, or 10 % for a chunk): {'; '.join(slipped)}.")
        print("If the growth is intended, record the new counts with --record and say why in the commit.")
    return 1 if slipped else 0


if __name__ == "__main__":
    sys.exit(main())
