"""Runs against a provider that fails 30 % of the calls in every way: what each run comes to, and what it must never do.

python benchmarks/chaos.py                    # 1,000 runs each: policies on, the defaults, and one model that is asked once
python benchmarks/chaos.py --runs 200 --seed 7 --rate 0.5

The provider is a real HTTP server with three protocols. A failure is drawn from the seed, the run and the number of its request.
"""

import argparse
import asyncio
import json
import logging
import random
import re
import socket
import struct
import tempfile
import time
from collections import Counter, defaultdict
from contextlib import suppress
from functools import partial
from pathlib import Path

from kaname import Agent, AgentError, Budget, ModelFallback, Pace, Price, Retry, SqliteJournal, Timeout, deadline, tool
from kaname.core.errors import UnexpectedError
from kaname.core.events import ModelReplied, Stopped
from kaname.core.messages import NOTHING
from kaname.models import Anthropic, OpenAI, OpenAIResponses
from kaname.testing.wire import Answer, WireServer, anthropic_reply, reply, responses_reply, status
from kaname.testing.wire_contract import _OVERLOADED, FAILURES, HTML

PROTOCOLS = {
    "openai": (OpenAI, reply),
    "responses": (OpenAIResponses, responses_reply),
    "anthropic": (Anthropic, anthropic_reply),
}
HANG, WORDS, AT_ONCE = 3600.0, 12, 50
RESET = -1  # in the place of a status: the connection is reset
DEADLINES = (2.0, 5.0, 10.0, 15.0, 20.0)
RARE = ("bad request", "context length", "too large", "denied", "forbidden", "no such model")  # these are not passing
GARBAGE = (("content-type", "application/octet-stream"),)

# Every failure: what the server answers, for a protocol, a reply of it that would have been right, and random numbers.
KINDS = {
    **{name: partial(lambda answer, *_: answer, answer) for name, (answer, _) in FAILURES.items() if name != "slow down"},
    "timeout of the server": lambda api, right, draw: status(408, "timed out"),
    "slow down": lambda api, right, draw: status(429, "slow down"),
    "slow down, for a time": lambda api, right, draw: status(429, "slow down", retry_after_ms=draw.randint(20, 400)),
    "overloaded": lambda api, right, draw: status(529, "overloaded", retry_after_ms=draw.randint(20, 400)),
    "overloaded, in the stream": lambda api, right, draw: Answer(
        (*right().events[: draw.randint(0, 8)], _OVERLOADED[api].strip())
    ),
    "garbage": lambda api, right, draw: Answer(headers=GARBAGE, body=draw.randbytes(draw.randint(1, 3000))),
    "garbage in the stream": lambda api, right, draw: Answer((*right().events[: draw.randint(1, 8)], b'{"choi' + b"\xff" * 9)),
    "page in two": lambda api, right, draw: Answer(headers=HTML, body=b"<html>" + b"x" * 5000, cut=draw.randint(0, 4000)),
    "cut": lambda api, right, draw: right(cut=draw.randint(0, 2500)),
    "not ended": lambda api, right, draw: Answer(right().events[: draw.randint(1, 8)]),
    "reset": lambda api, right, draw: Answer(status=RESET),
    "reset in the stream": lambda api, right, draw: right(cut=draw.randint(100, 2500), status=RESET),
    "hang": lambda api, right, draw: right(delay=HANG),
    "hang in the stream": lambda api, right, draw: right(slice=draw.randint(200, 2500), pause=HANG),
    "slow drip": lambda api, right, draw: right(slice=draw.randint(20, 100), pause=draw.uniform(0.005, 0.1)),
}
FREE = {
    *RARE,
    "slow down",
    "slow down, for a time",
    "overloaded",
    "server error",
    "not available",
    "gateway page",
    "timeout of the server",
}


class ChaosServer(WireServer):
    """A server that can also reset its connections."""

    async def _answer(self, answer, reader, writer):
        if answer.status != RESET:
            return await super()._answer(answer, reader, writer)
        if answer.cut is not None:
            await super()._answer(Answer(answer.events, cut=answer.cut), reader, writer)
            await asyncio.sleep(0.01)  # what was sent before a reset arrives
        with suppress(OSError):  # the client has closed it already
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
        return False


class Chaos:
    """What the server did for each run, and what its tools did."""

    def __init__(self, seed, rate):
        self.seed, self.rate = seed, rate
        self.requests, self.kinds, self.served = Counter(), Counter(), defaultdict(list)
        self.looked, self.paid = Counter(), Counter()

    def api(self, name):
        make = PROTOCOLS[name][1]

        def answer(body):
            text = json.dumps(body)
            key = re.search(r"order (k\d+)!", text)[1]
            step = text.count('"tool_call_id"') + text.count('"function_call_output"') + text.count('"tool_result"')
            calls = [[("look", {"key": key})], [("pay", {"key": key})], []][step]
            self.requests[key] += 1
            draw = random.Random(f"{self.seed} {key} {self.requests[key]}")

            def right(**more):
                return make(words_of(key, step), calls, pieces=WORDS, **more)

            kind = ""
            if draw.random() < self.rate:
                kind = draw.choices([*KINDS], [0.2 if one in RARE else 1.0 for one in KINDS])[0]
            self.kinds[kind] += 1
            self.served[key].append(kind)
            return KINDS[kind](name, right, draw) if kind else right()

        return answer

    def tools(self):
        @tool(effect="pure")
        def look(key: str) -> str:
            """Look at an order."""
            self.looked[key] += 1
            return f"{key} is open"

        @tool(effect="irreversible")
        async def pay(key: str) -> str:
            """Pay an order."""
            self.paid[key] += 1
            await asyncio.sleep(0)
            return f"{key} is paid"

        return [look, pay]


def words_of(key, step):
    return " ".join([f"{key}.{step}.{word}" for word in range(WORDS)])


class Found:
    """What the runs came to, and what they did that no run must do."""

    def __init__(self):
        self.outcomes, self.completed = Counter(), Counter()
        self.wrong, self.over, self.seconds, self.lag = [], [], [], 0.0

    def blame(self, key, what):
        self.wrong.append(f"{key}: {what}")


class Reader:
    """Reads a run as a page does: words are added, withdrawn after `restarted`, and replaced by the recorded message."""

    def __init__(self, key, found):
        self.key, self.found, self.text, self.step = key, found, "", 0

    def read(self, chunk):
        if chunk.type == "delta":
            self.text += chunk["content"]
            if not words_of(self.key, self.step).startswith(self.text):
                self.found.blame(self.key, f"shown: {self.text!r}")
        elif chunk.type == "message":
            if self.text != chunk["content"] or self.text != words_of(self.key, self.step):
                self.found.blame(self.key, f"shown {self.text!r}, recorded {chunk['content']!r}")
            self.text, self.step = "", self.step + 1
        elif chunk.type == "status" and chunk.data["status"] == "restarted":
            self.text = ""
        elif chunk.type == "status" and chunk.data["status"] == "skipped":
            self.found.blame(self.key, "deltas were skipped")
        elif (
            chunk.type == "status" and chunk.data["status"] == "stopped" and self.text and chunk.data.get("output") != self.text
        ):
            self.found.blame(
                self.key, f"shown {self.text!r}, but the output is {chunk.data.get('output')!r}: {chunk.data['kind']}"
            )


async def one_run(agent, limit, number, chaos, found):
    key = f"k{number}"
    begun, run = time.monotonic(), agent.run(f"Please pay the order {key}!", user_id=f"user {number % 7}")
    try:
        async with asyncio.timeout(limit + 20):
            if number % 2:
                reader = Reader(key, found)
                async for chunk in run:
                    reader.read(chunk)
            result = await run
        outcome = result.stop.kind
        if outcome == "completed" and (result.output != words_of(key, 2) or chaos.paid[key] != 1):
            found.blame(key, f"completed with {result.output!r}, paid {chaos.paid[key]} times")
    except UnexpectedError as bug:
        outcome = "UnexpectedError"
        found.blame(key, repr(bug))
    except AgentError as reason:
        outcome = type(reason).__name__
    except TimeoutError:
        outcome = "hang"
        found.blame(key, f"hangs after {chaos.served[key]}")
    except Exception as raw:  # noqa: BLE001
        outcome = "raw"
        found.blame(key, repr(raw))
    seconds = time.monotonic() - begun
    found.outcomes[outcome] += 1
    found.completed[limit] += outcome == "completed"
    found.seconds.append(seconds)
    found.over.append(seconds - limit)
    if chaos.paid[key] > 1:
        found.blame(key, f"paid {chaos.paid[key]} times")
    await check_cost(agent, run.run_id, key, chaos, found)


async def check_cost(agent, run_id, key, chaos, found):
    """A call that the provider did not refuse, and that gave no reply, costs an unknown amount: never nothing."""
    usage, replies, ended = NOTHING, 0, False
    async for event in agent.journal.read(run_id):
        if isinstance(event.body, ModelReplied):
            usage, replies = usage + event.body.reply.usage, replies + 1
        elif isinstance(event.body, Stopped):
            usage, ended = usage + event.body.usage, True
    answered = [
        kind for kind in chaos.served[key] if kind not in FREE and kind != "reset"
    ]  # that is sent again if it was kept open
    if not ended:
        found.blame(key, "no end is recorded")
    if len(answered) > replies and usage.cost is not None:
        found.blame(key, f"costs {usage.cost} with {replies} replies after {chaos.served[key]}")
    if replies and usage.cost == 0.0:
        found.blame(key, "replies cost nothing")
    return usage


def make_agents(policies, servers, chaos, journal):
    """Return an agent for each deadline. `policies`: on, default, off."""
    price = Price(1.0, 10.0)
    models = [
        PROTOCOLS[name][0](name, base_url=server.url, api_key="sk-chaos", price=price) for name, server in servers.items()
    ]
    written = {
        "on": lambda: [
            ModelFallback(pause=0.5),
            Retry(5),
            Pace(requests="60000/min", at_once=40),
            Timeout(1.5),
            Budget(run="$0.5", user="$50/day", agent="$500/month", total="1m calls", longest_reply=2000),
        ],
        "default": list,
        "off": lambda: [Retry(1)],
    }[policies]
    return [
        Agent(
            models if policies == "on" else models[0],
            chaos.tools(),
            name=f"payer {limit:g}",
            policies=written(),
            stops=deadline(limit),
            journal=journal,
        )
        for limit in DEADLINES
    ], models


async def watch_lag(found):
    while True:
        before = time.monotonic()
        await asyncio.sleep(0.01)
        found.lag = max(found.lag, time.monotonic() - before - 0.01)


async def run_all(policies, runs, seed, rate, path):
    """Run them all, at most 50 at once. Return what they came to."""
    chaos, found = Chaos(seed, rate), Found()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: found.blame("loop", f"{context.get('message')} {context.get('exception')!r}"))
    journal, room = SqliteJournal(path), asyncio.Semaphore(AT_ONCE)
    servers = {name: ChaosServer(chaos.api(name)) for name in PROTOCOLS}
    for server in servers.values():
        await server.__aenter__()
    agents, models = make_agents(policies, servers, chaos, journal)
    chaos.rate = 0.0
    await agents[0].run("Please pay the order k0!")  # the first run loads modules and opens files
    chaos.__init__(seed, rate)
    lag = asyncio.create_task(watch_lag(found))

    async def one(number):
        async with room:
            place = number % len(agents)
            await one_run(agents[place], DEADLINES[place], number, chaos, found)

    try:
        await asyncio.gather(*[one(number) for number in range(runs)])
        await check_leftovers(agents, models, journal, found)
    finally:
        lag.cancel()
        for agent in agents:
            await agent.close()
        await journal.close()
        for server in servers.values():
            await server.__aexit__()
    return chaos, found


async def check_leftovers(agents, models, journal, found):
    """When no run is left, nothing is reserved, no place at a gate is taken, and no breaker counts a call."""
    for balance in await journal.stores.ledger.balances():
        if balance.reserved:
            found.blame("ledger", f"{balance.name!r} has {balance.reserved} reserved")
    for model in models:
        if model.about.rates._at_work:
            found.blame("pace", f"{model.name} has calls under way")
    for agent in agents:
        for policy in agent.recipe.policies:
            for instance in [one for tier in getattr(policy, "tiers", ()) for one in tier]:
                if instance.breaker.busy:
                    found.blame("breaker", f"{instance.name} has calls under way")


def show(policies, chaos, found, runs, seconds):
    failed = sum(chaos.kinds.values()) - chaos.kinds[""]
    late = sorted(over for over in found.over if over > 0)
    told = ", ".join([f"{kind} {count}" for kind, count in found.outcomes.most_common()])
    print(f"\n{policies}: {found.outcomes['completed'] / runs:.1%} completed; {told}")
    by_limit = ", ".join([f"{limit:g} s {found.completed[limit] * len(DEADLINES) / runs:.0%}" for limit in DEADLINES])
    print(f"  completed by deadline: {by_limit}")
    print(
        f"  {sum(chaos.kinds.values())} requests, {failed} failed ({failed / sum(chaos.kinds.values()):.0%}) in {len(chaos.kinds) - 1} ways; "
        f"{seconds:.0f} s, a run {sorted(found.seconds)[runs // 2]:.1f} s (median)"
    )
    if late:
        spread = [late[min(len(late) - 1, int(len(late) * part))] * 1000 for part in (0.5, 0.9, 0.99)]
        print(
            f"  past the deadline: {len(late)} runs, by {spread[0]:.0f} ms (median), {spread[1]:.0f} (p90), {spread[2]:.0f} (p99), "
            f"{late[-1] * 1000:.0f} (most); the event loop itself was late by up to {found.lag * 1000:.0f} ms"
        )
    paid = sum(chaos.paid.values())
    print(f"  {paid} payments, {sum(one > 1 for one in chaos.paid.values())} of them twice; wrong: {len(found.wrong)}")
    for line in found.wrong[:20]:
        print(f"    {line}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=35)
    parser.add_argument("--rate", type=float, default=0.3)
    parser.add_argument("--policies", nargs="*", default=["on", "default", "off"])
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    wrong = 0
    for policies in options.policies:
        with tempfile.TemporaryDirectory() as folder:
            begun = time.monotonic()
            chaos, found = asyncio.run(run_all(policies, options.runs, options.seed, options.rate, str(Path(folder) / "j.db")))
            show(policies, chaos, found, options.runs, time.monotonic() - begun)
            wrong += len(found.wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
