"""kaname's runner for the peers' harness: copy it beside `harness.py`, start the server, run it with a metric.

The journal is in memory; `BENCH_JOURNAL=path` takes a SQLite file.
"""

import os

from harness import main  # type: ignore[import-not-found]


def load():
    global Agent, OpenAI, max_steps, no_repeats, per_tool
    from kaname import Agent, max_steps, no_repeats, per_tool
    from kaname.models import OpenAI


def build(model, base_url, tools, max_turns):
    agent = Agent(
        OpenAI(model, base_url=base_url, api_key="sk-bench"),
        list(tools.values()),
        instructions="You are a calculator.",
        stops=max_steps(max_turns) | no_repeats(None) | per_tool(None),
        journal=os.environ.get("BENCH_JOURNAL", "memory"),
    )

    async def run(prompt, on_text):
        handle = agent.run(prompt)
        async for chunk in handle:
            if chunk.type == "delta":
                on_text(chunk.data["content"])
        return (await handle).output

    return run


if __name__ == "__main__":
    main(load, build)
