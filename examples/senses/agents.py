"""The agents of example 19: one reads a picture and calculates, one reads a recording and searches."""

from kaname import Agent, tool

NOTES = {
    "River Hall": "River Hall: 14 Station Road, Oxford. It has 120 seats and opens at 9:00.",
    "Garden Room": "Garden Room: 5 Church Street, Oxford. It has 30 seats and opens at 10:00.",
}


@tool(effect="pure")
def multiply(a: float, b: float) -> float:
    """Multiply two numbers."""
    return a * b


@tool(effect="pure")
def find_place(name: str) -> str:
    """Find what is known about a place: its address, its seats, when it opens."""
    found = [text for place, text in NOTES.items() if name.lower() in place.lower() or place.lower() in name.lower()]
    return found[0] if found else f"nothing is known about {name}"


def bill_agent(model="local", **more):
    return Agent(model, [multiply], name="bill", instructions="Answer in one short sentence.", **more)


def meeting_agent(model="local", **more):
    return Agent(model, [find_place], name="meeting", instructions="Answer in one short sentence.", **more)
