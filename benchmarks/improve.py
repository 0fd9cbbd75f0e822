"""120 messages to sort into five queues, whose rules the instructions do not tell: does GEPA find them with the local model?

    kaname improve --eval benchmarks/improve.py [--calls 600] [--part instructions]

The local model answers the messages and proposes the texts. Half of the cases are for the search and half for the decision.
"""

from pathlib import Path

from kaname import Agent
from kaname.evals import Case, Evaluation
from kaname.models import Local

QUEUES = ("safety", "billing", "booking", "workshop", "info")
INSTRUCTIONS = "Sort the message of a customer into a queue: safety, billing, booking, workshop or info. Answer with one word."


def cases():
    lines = (Path(__file__).parent / "sets" / "desk.txt").read_text(encoding="utf-8").splitlines()
    for number, line in enumerate([line for line in lines if not line.startswith("#")]):
        queue, message = line.split("\t")
        yield Case(message, f"{number:03} {queue}", matches=rf"(?i)^\W*{queue}\W*$", reference=queue)


desk = Evaluation("desk", cases(), agent="improve.py:agent")
agent = Agent(Local(), name="desk", instructions=INSTRUCTIONS, settings={"max_tokens": 12})
