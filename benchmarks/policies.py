"""CPU of a step with all policies on, against the same agent without the optional ones: user time of all threads, in turn.

python benchmarks/policies.py             # the median of 15 rounds
python benchmarks/policies.py --rounds 5 --profile

All: two models (ModelFallback), Retry, Pace with limits, Timeout, a Budget with three accounts, a deadline, Meter, PrefixWatch.
The journal is a SQLite file in both. The wanted difference is at most 0.25 ms a step.
"""

import argparse
import asyncio
import cProfile
import pstats
import resource
import statistics
import tempfile
from pathlib import Path

from kaname import (
    Agent,
    Budget,
    Cache,
    ModelFallback,
    Pace,
    Policy,
    Price,
    Retry,
    SqliteJournal,
    Timeout,
    deadline,
    max_steps,
    no_repeats,
    per_tool,
    tool,
)
from kaname.core.messages import ModelReply, ToolCall, Usage, assistant
from kaname.kernel.bases import ModelBase, ModelInfo
from kaname.models.http.rates import ProviderRates

REPEAT = 8  # runs in a sample: the system counts user time coarsely
FEW, MANY = 10, 60  # steps of a run; the fixed costs of a run are not in the difference
WANTED = 0.25
NO_LIMITS = max_steps(None) | no_repeats(None) | per_tool(None)


@tool(effect="pure")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class Steps(ModelBase):
    """A model that asks for a tool `steps` times and then answers. It has a price, rates and a prompt cache."""

    def __init__(self, name, steps=0):
        self.name, self.steps, self.price = name, steps, Price(1.0, 10.0)
        self.about = ModelInfo(caches_prompts=True, rates=ProviderRates(name))

    def most_expensive(self, request, input, output):
        return self.price.most(input, output)

    async def reply(self, request, emit):
        done = sum(message.role == "tool" for message in request.messages)
        usage = Usage(100 + 20 * done, 5, 50, cost=0.0001)
        if done >= self.steps:
            return ModelReply(assistant("done"), "end_turn", usage)
        return ModelReply(assistant("", ToolCall("", "add", {"a": done, "b": 1})), "tool_use", usage)


def agent_of(kind, folder, journal, model):
    if kind == "none":
        return Agent(model, [add], journal=journal, stops=NO_LIMITS | deadline(None), policies=[Retry(1), Timeout(None)])
    if kind == "cache":
        return Agent(model, [add], journal=journal, stops=NO_LIMITS, policies=[Cache(path=Path(folder) / "cache.db")])
    written: list[Policy] = [
        ModelFallback([Steps("second")]),
        Retry(5),
        Pace(requests="1000000/min", tokens="1000m/min", at_once=100),
        Timeout(600),
        Budget(run="$10", user="$50/day", agent="$500/month"),
    ]
    return Agent(model, [add], journal=journal, stops=NO_LIMITS | deadline("10m"), policies=written)


def user_time():
    return resource.getrusage(resource.RUSAGE_SELF).ru_utime


async def measure(kind, folder, journal, steps):
    model = Steps("first", steps)
    agent = agent_of(kind, folder, journal, model)
    before = user_time()
    for place in range(REPEAT):
        result = await agent.run(f"go {before} {place}")
        assert result.output == "done", result.stop
    return (user_time() - before) / REPEAT


async def compare(rounds, kinds):
    """Return the milliseconds of a step by kind, a list of the rounds. The kinds take turns."""
    found = {kind: [] for kind in kinds}
    with tempfile.TemporaryDirectory() as folder:
        journal = SqliteJournal(str(Path(folder) / "j.db"))
        for kind in kinds:
            await measure(kind, folder, journal, FEW)
        for _ in range(rounds):
            for kind in kinds:
                few, many = [await measure(kind, folder, journal, steps) for steps in (FEW, MANY)]
                found[kind].append((many - few) * 1000 / (MANY - FEW))
        await journal.close()
    return found


async def profile(kind):
    with tempfile.TemporaryDirectory() as folder:
        journal = SqliteJournal(str(Path(folder) / "j.db"))
        await measure(kind, folder, journal, FEW)
        profiler = cProfile.Profile()
        profiler.enable()
        await measure(kind, folder, journal, MANY)
        profiler.disable()
        await journal.close()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(45)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--profile", metavar="KIND", nargs="?", const="all")
    options = parser.parse_args()
    if options.profile:
        asyncio.run(profile(options.profile))
        return
    found = asyncio.run(compare(options.rounds, ["none", "all", "cache"]))
    base = statistics.median(found["none"])
    for kind, times in found.items():
        over = statistics.median([one - other for one, other in zip(times, found["none"], strict=True)])
        mark = "" if kind != "all" else f" (wanted: {WANTED} or less)"
        print(f"{kind:6} {statistics.median(times):.3f} ms a step (least {min(times):.3f}), {over:+.3f} over none{mark}")
    print(f"none: spread {min(found['none']):.3f} to {max(found['none']):.3f}, median {base:.3f}")


if __name__ == "__main__":
    main()
