"""CPU of each security layer: a step (a model call and a tool call) and a chunk of a streamed reply, against no layer.

python benchmarks/security.py             # the median of 9 rounds
python benchmarks/security.py --rounds 3 --only privacy

To add a layer, add a function to LAYERS that returns its policies. With no layer, nothing is added: `benchmarks/gate.py --counts`
counts the calls of such a step, and they must not grow.
"""

import argparse
import asyncio
import resource
import statistics

from kaname import Agent, Flow, MemoryJournal, Permit, Privacy, find_names, max_steps, no_repeats, per_tool, tool
from kaname.core.messages import ModelReply, ToolCall, assistant
from kaname.kernel.bases import ModelBase

REPEAT = 6  # runs in a sample: the system counts user time coarsely
STEPS, CHUNKS = (10, 60), (100, 2_100)  # of a short and a long run; the fixed costs of a run are not in the difference
NO_LIMITS = max_steps(None) | no_repeats(None) | per_tool(None)
QUESTION = "Order 17 is for a.b@example.com, 090-1234-5678. 担当は山田太郎です。"
TEXT = "The parcel of <EMAIL_1> left the depot at 10:45 and arrives on 12 March; 明日 の 午後 に 届きます。"
WORDS = TEXT.split(" ")
RULES = [{"name": f"rule {n}", "role": "clerk", "tool": f"tool_{n}"} for n in range(19)]
USED = {"name": "look", "role": "clerk", "tool": "look", "where": {"number": {"at_most": 1_000}}}
LAYERS = {
    "no layer": list,
    "Flow, strict": lambda: [Flow()],
    "Permit, 1 rule": lambda: [Permit([USED], roles={"ann": ["clerk"]})],
    "Permit, 20 rules": lambda: [Permit([*RULES, USED], roles={"ann": ["clerk"]})],
    "Privacy, pseudonyms (default)": lambda: [Privacy()],
    "Privacy, masks everywhere": lambda: [Privacy({"*": "mask"})],
    "Privacy, pseudonyms and names": lambda: [Privacy(detectors=[find_names])],
}


@tool(effect="pure")
async def look(number: int) -> str:
    """Look at an order."""
    return f"Order {number} was sent on 12 March to customer {number}@example.com, phone 03-1234-{number:04}."


class Steps(ModelBase):
    """A model that asks for a tool `steps` times, and then answers in so many chunks."""

    name = "scripted"

    def __init__(self, steps, chunks):
        self.steps, self.pieces = steps, [WORDS[n % len(WORDS)] + " " for n in range(chunks)]

    async def reply(self, request, emit):
        done = sum(message.role == "tool" for message in request.messages)
        if done < self.steps:
            return ModelReply(assistant("", ToolCall("", "look", {"number": done})), "tool_use")
        for piece in self.pieces:
            await emit(piece)
        return ModelReply(assistant("".join(self.pieces)), "end_turn")


async def measure(layer, steps, chunks):
    agent = Agent(Steps(steps, chunks), [look], journal=MemoryJournal(), stops=NO_LIMITS, policies=LAYERS[layer]())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    for _ in range(REPEAT):
        result = await agent.run(QUESTION, user_id="ann")
        assert result.completed, result.stop
    return (resource.getrusage(resource.RUSAGE_SELF).ru_utime - before) / REPEAT


async def compare(rounds, layers):
    """Return the seconds of a step and of a chunk by layer, a list of the rounds each. The layers take turns."""
    found = {layer: ([], []) for layer in layers}
    for layer in layers:
        await measure(layer, 3, 30)
    for _ in range(rounds):
        for layer, (a_step, a_chunk) in found.items():
            few, many = [await measure(layer, steps, 1) for steps in STEPS]
            a_step.append((many - few) / (STEPS[1] - STEPS[0]))
            few, many = [await measure(layer, 0, chunks) for chunks in CHUNKS]
            a_chunk.append((many - few) / (CHUNKS[1] - CHUNKS[0]))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default="", help="Only the layers with this text in their names, next to no layer.")
    options = parser.parse_args()
    layers = [one for one in LAYERS if one == "no layer" or options.only.lower() in one.lower()]
    found = asyncio.run(compare(options.rounds, layers))
    print(f"{'':<34}{'a step, ms':>12}{'over':>9}{'a chunk, µs':>14}{'over':>9}")
    for layer, times in found.items():
        step, chunk = (statistics.median(one) for one in times)
        over = [
            statistics.median([one - other for one, other in zip(mine, base, strict=True)])
            for mine, base in zip(times, found["no layer"], strict=True)
        ]
        print(f"{layer:<34}{step * 1e3:12.3f}{over[0] * 1e3:+9.3f}{chunk * 1e6:14.1f}{over[1] * 1e6:+9.1f}")


if __name__ == "__main__":
    main()
