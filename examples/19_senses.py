"""An agent reads a bill in a picture and calculates; another listens to a message and looks up a place. No key.

The replies of the models were recorded with the local model (`kaname models pull`, the extra `senses`). To run it for real,
pass `local` as the first argument; the text of the picture and the sound is then read on this machine.
"""

import asyncio
import sys
from pathlib import Path

from senses.agents import bill_agent, meeting_agent

from kaname import Media

HERE = Path(__file__).parent / "senses"
QUESTIONS = {
    "bill": (bill_agent, "bill.png", "The bill is attached. Four people each pay this total. How much is 4 times the total?"),
    "meeting": (meeting_agent, "message.wav", "Where is the meeting of this message: what is the address of the place?"),
}


async def main(model: str) -> None:
    for name, (make, file, question) in QUESTIONS.items():
        agent = make(model or f"replay/{HERE / name}.jsonl", journal="memory")
        result = await agent.run([question, Media.file(HERE / file)])
        for call in result.state.results.values():
            print(f"{call.name}: {call.output}")
        print(f"{name}: {result.output}")
        await agent.close()


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else ""))

# prints:
#   multiply: 3880.0
#   Four times the total is 3880 yen.
#   find_place: River Hall: 14 Station Road, Oxford.
#   meeting: The meeting is at River Hall, 14 Station Road, Oxford.
