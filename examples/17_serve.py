"""Serve an agent over HTTP: ask it as an OpenAI client would, stream it, and follow a run again from any event."""

import asyncio
import json

import httpx

import kaname.serve
from kaname import Agent, ScriptedModel, call, tool


@tool(effect="pure")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


desk = Agent(ScriptedModel([call("add", a=3, b=4), "The sum is 7."]), [add], name="desk", journal="memory")
app = kaname.serve.app(desk)  # `uvicorn 17_serve:app`, or `kaname serve -a 17_serve.py:desk`


async def main() -> None:
    transport = httpx.ASGITransport(app, client=("127.0.0.1", 1))  # without a network, for this example
    async with app.lifespan(), httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
        asked = {"model": "desk", "messages": [{"role": "user", "content": "What is 3 + 4?"}]}
        print((await http.post("/v1/chat/completions", json=asked)).json()["choices"][0]["message"]["content"])

        run = (await http.post("/api/runs", json={"agent": "desk", "input": "What is 3 + 4?"})).json()
        print(run["status"], run["output"])

        answer = await http.get(f"/api/runs/{run['run_id']}/events", headers={"last-event-id": "4"})
        for line in answer.text.splitlines():
            if line.startswith("data: "):
                chunk = json.loads(line[6:])
                print(chunk["data"]["fact"], chunk["type"])


if __name__ == "__main__":
    asyncio.run(main())

# prints:
#   The sum is 7.
#   completed The sum is 7.
#   5 tool_response
#   6 message
#   6 usage
#   7 status
