"""One table: kaname next to the same loop by hand and to other frameworks, and how long its commands take to start.

python benchmarks/all.py                     # installs the frameworks into throw-away environments: about fifteen minutes
python benchmarks/all.py --rounds 5          # more samples of each time (default: 3)
python benchmarks/all.py --peers             # without other frameworks: about three minutes
python benchmarks/all.py --peers langgraph   # only this one

Each time is CPU time of the client, and the median of its samples. Each ratio (×) is the median of the rounds: in a round, all take turns.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median

from gate import commands, server, times
from gate.peers import PEERS
from gate.processes import ROOT, environment, output_of


def describe_machine() -> str:
    """Return the processor, the system, and the versions of Python and of this checkout."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line.partition(":")[2].strip() for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        model = names[0] if names else model
    git = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    load = f", load {os.getloadavg()[0]:.1f} at the start" if hasattr(os, "getloadavg") else ""
    return (
        f"{datetime.now().astimezone():%-d %B %Y}: {model}, {os.cpu_count()} cores{load}; {platform.system()} {platform.release()}; "
        f"Python {platform.python_version()}; commit {git.stdout.strip() or 'unknown'}"
    )


def install_peers(names: list[str], folder: Path, url: str, clean: dict[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the Python and the version of each framework that could be installed and answers. Say which could not."""
    pythons, versions = {}, {}
    for name in names:
        print(f"Installing {name} …", file=sys.stderr, flush=True)
        try:
            python, found = install(name, folder)
            output_of(["-m", "gate.sample", "first", name, url, "none"], clean, python)
        except (OSError, SystemExit) as problem:
            print(f"{name} is left out: {problem}", file=sys.stderr)
        else:
            pythons[name], versions[name] = python, found
    return pythons, versions


def install(name: str, folder: Path) -> tuple[str, str]:
    """Install a framework into a new environment. Return its Python and its version. Raises `OSError` with what went wrong."""
    uv = shutil.which("uv") or str(ROOT / ".uv" / "bin" / "uv")
    python = folder / name / "bin" / "python"
    _execute(uv, "venv", "--quiet", "--python", sys.executable, folder / name)
    _execute(uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", python, *PEERS[name].packages)
    package = PEERS[name].packages[0].partition("[")[0]
    found = _execute(python, "-c", f"from importlib.metadata import version; print(version({package!r}))")
    return str(python), found.strip()


def _execute(*command: object) -> str:
    try:
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=900, check=False)
    except subprocess.TimeoutExpired as slow:
        raise OSError(f"{command[0]} took longer than {slow.timeout:.0f} s") from slow
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise OSError(lines[-1])
    return done.stdout


def table(made: list[times.Row], started: list[commands.Start], versions: dict[str, str]) -> list[str]:
    """Return the lines of the table, in Markdown."""
    peers = list(versions)
    head = ["CPU", f"the loop by hand (aiohttp {version('aiohttp')})", f"kaname {version('kaname')}", "wanted"]
    lines = [[*head, *[f"{name} {versions[name]}" for name in peers]], ["---"] * (len(head) + len(peers))]
    for row in made:
        others = [row.peers.get(name) for name in peers]
        lines.append(
            [
                f"{row.name}, {row.unit}",
                figure(times.took(row.loop)),
                f"{figure(times.took(row.ours))} (**{row.ratio(row.ours):.2f} ×**)",
                f"{row.wanted} ×",
                *["–" if one is None else f"{figure(times.took(one))} ({row.ratio(one):.3g} ×)" for one in others],
            ]
        )
    for start in started:
        ours = f"**{median(start.cpu):.0f}** (by the clock {median(start.clock):.0f})"
        lines.append([f"{start.name}, ms", "–", ours, f"{start.wanted:.0f} ms", *["–"] * len(peers)])
    return [f"| {' | '.join(cells)} |" for cells in lines]


def figure(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="Samples of each time (default: 3).")
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=list(PEERS), help="Frameworks to measure (default: all).")
    options = parser.parse_args()
    machine = describe_machine()
    with tempfile.TemporaryDirectory() as place:
        folder, clean = Path(place), environment(place)
        started = commands.starts(folder, clean)
        with server.running(clean) as url:
            pythons, versions = install_peers(options.peers, folder, url, clean)
            made = times.measure(options.rounds, url, clean, pythons)
        for start in started * max(options.rounds, commands.LEAST):
            commands.take_sample(start, folder, clean)
    print("\n".join([machine, "", *table(made, started, versions), "", *times.noise(made)]))


if __name__ == "__main__":
    main()
