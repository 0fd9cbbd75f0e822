"""What is kept knows whose it is and what it is: caches, jobs, approvals, replays and records."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from kaname import Agent, Cache, Message, ModelReply, ScriptedModel, call, tool
from kaname.core.messages import Text
from kaname.kernel.identity import model_identity, result_identity, tool_identity
from kaname.tools.mcp.config import entries
from kaname.tools.mcp.servers import McpTool
from tests.policies.ledger import write_down

# Identity

RATE = 100
NAMES = ["a", "b"]


@tool(effect="pure")
def total(item: str) -> int:
    """Return a price."""
    return len(item) * RATE if item not in {"x", "y", "z"} else NAMES.index(item)


def made(enclosed):
    @tool(effect="pure")
    def price(item: str) -> str:
        """Return a price."""
        write_down(item)
        return f"{enclosed}"

    return price


class Shop:
    def __init__(self, account):
        self.account, self.log = account, []

    @tool(effect="pure")
    def price(self, item: str) -> str:
        """Return a price."""
        self.log.append(item)
        return self.account


class Plain:
    """A tool of the smallest protocol."""

    name, description = "plain", "Does something."

    def __init__(self, url):
        self.url = url

    async def execute(self, input_text: str) -> str:
        return self.url


class _Server:
    """A server as `McpTool` knows it: its entry."""

    def __init__(self, name, **entry):
        (self.entry,) = entries({name: entry})
        self.name = name
        self.last_session = os.urandom(4).hex()


class _Listed:
    """A tool as a server lists it."""

    title = annotations = output_schema = meta = None

    def __init__(self, name="pay", description="Pay.", schema=None):
        self.name, self.description = name, description
        self.input_schema = schema or {"type": "object", "properties": {"yen": {"type": "integer"}}}


def test_identity_of_a_tool_is_the_same_in_another_process():
    program = "from tests.doors.test_rest import total; from kaname.kernel.identity import tool_identity, result_identity\n"
    program += "print(tool_identity(total), result_identity(total))"
    root = Path(__file__).parents[2]
    said = {
        subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            cwd=root,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert said == {f"{tool_identity(total)} {result_identity(total)}\n"}


def test_identity_of_a_tool_stays_while_the_tool_works():
    shop, held = Shop("ann"), list[str]()
    enclosing = made(held)
    before = [tool_identity(one) for one in (shop.price, enclosing)]
    shop.log.append("x")
    held.append("x")
    assert [tool_identity(one) for one in (shop.price, enclosing)] == before
    assert all(before)


def one_pay():
    @tool
    def pay(yen: int) -> str:
        """Pay."""
        return "paid"

    return pay


def other_pay():
    @tool
    def pay(yen: int) -> str:
        """Pay."""
        return "paid twice"

    return pay


def more_pay():
    @tool
    def pay(yen: int, to: str = "me") -> str:
        """Pay."""
        return "paid"

    return pay


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (one_pay(), other_pay()),
        (one_pay(), more_pay()),
        (made("ann"), made("zoe")),
        (made(one_pay().function), made(other_pay().function)),
        (Shop("ann").price, Shop("zoe").price),
        (tool(partial(total.function), name="t"), tool(partial(total.function, item="x"), name="t")),
        (McpTool(_Server("bank", url="https://a.example/mcp"), _Listed(), "pay"), one_pay()),
    ]
    + [
        (McpTool(_Server("bank", url="https://a.example/mcp"), _Listed(), "pay"), McpTool(server, listed, "pay"))
        for server, listed in [
            (_Server("bank", url="https://b.example/mcp"), _Listed()),
            (_Server("bank2", url="https://a.example/mcp"), _Listed()),
            (_Server("bank", command="pay-server"), _Listed()),
            (_Server("bank", url="https://a.example/mcp"), _Listed(schema={"type": "object", "properties": {}})),
            (_Server("bank", url="https://a.example/mcp"), _Listed(name="pay_all")),
        ]
    ],
)
def test_identity_of_another_tool_with_the_same_name_is_another(one, other):
    assert tool_identity(one)
    assert tool_identity(other)
    assert tool_identity(one) != tool_identity(other)


def test_identity_of_a_servers_tool_does_not_depend_on_the_connection():
    tools = [McpTool(_Server("bank", command="srv", args=["--db", "x"]), _Listed(), "pay") for _ in range(2)]
    assert tool_identity(tools[0]) == tool_identity(tools[1])
    assert not any(result_identity(one) for one in tools), "the state of a server is its own"


def test_identity_of_an_object_tool_holds_its_class_and_texts():
    agents = [Agent(ScriptedModel(["x"]), [Plain(url)], journal="memory") for url in ("a", "a", "b")]
    known = [tool_identity(agent.recipe.tools["plain"]) for agent in agents]
    assert known[0] == known[1] != known[2]


# Cache


async def test_cache_keeps_values_apart_that_a_tool_encloses_or_reads(tmp_path, monkeypatch):
    async def outputs(one):
        agent = Agent(
            ScriptedModel([call(one.name, item="cup"), "done"]),
            [one],
            policies=[Cache(models=False, path=tmp_path / "cache.db")],
            journal="memory",
        )
        result = await agent.run("?")
        return [part.output for message in result.state.messages for part in message.parts if hasattr(part, "output")]

    held = ["old"]
    one = made(held)
    assert await outputs(one) == ["['old']"]
    held[0] = "new"
    assert await outputs(one) == ["['new']"]
    assert await outputs(total) == [300]
    monkeypatch.setitem(total.function.__globals__, "RATE", 7)
    assert await outputs(total) == [21]
    for account in ("ann", "zoe"):
        assert await outputs(Shop(account).price) == [account]
        assert await outputs(tool(partial(Shop(account).price.function, Shop(account)), name="p", effect="pure")) == [account]


class OwnModel:
    """A model as users write it: nothing tells it apart but the object."""

    settings: dict = {}

    def __init__(self, answer, name="own"):
        self.name, self.answer, self.asked = name, answer, 0

    async def reply(self, request, emit):
        self.asked += 1
        return ModelReply(Message("assistant", (Text(self.answer),)), "end_turn")


async def test_cache_does_not_share_replies_of_models_that_it_cannot_tell_apart(tmp_path):
    for answer in ("for ann", "for zoe"):
        model = OwnModel(answer)
        agent = Agent(model, policies=[Cache(path=tmp_path / "cache.db")], journal="memory")
        assert [(await agent.run("?")).output for _ in range(2)] == [answer] * 2
        assert model.asked == 2
        scripted = Agent(ScriptedModel(lambda request, a=answer: a), policies=[Cache(path=tmp_path / "c.db")], journal="memory")
        assert (await scripted.run("?")).output == answer


async def test_cache_shares_replies_of_models_that_say_what_they_are(tmp_path):
    model = OwnModel("x")
    model.identity = "https://models.example"
    agent = Agent(model, policies=[Cache(path=tmp_path / "cache.db")], journal="memory")
    assert [(await agent.run("?")).output for _ in range(2)] == ["x"] * 2
    assert model.asked == 1

    class Other(OwnModel):
        identity = model.identity

    assert model_identity(Other("y")) != model_identity(model)
