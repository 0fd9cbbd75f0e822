"""Tools: what becomes of a signature, of arguments, of generators and methods; the other parts of the models room."""

import asyncio
import enum
import json
from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar, Literal, Optional

import pytest
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from kaname import Agent, ConfigError, Policy, ScriptedModel, ToolContext, ToolResult, call, tool
from kaname.core.errors import BadArguments, JournalCorrupt
from kaname.core.messages import ToolCall
from kaname.models.registry import resolve
from kaname.strategies.react import React
from kaname.testing import ModelContract, PolicyContract, SinkContract, StrategyContract, ToolContract, save_run
from kaname.tools.arguments.schema import problems
from kaname.tools.registry import as_action
from tests.parts import add, adding, chunks


class Unit(enum.Enum):
    C = "C"
    F = "F"


@dataclass
class Place:
    city: str
    zip: int | None = None


class Person(BaseModel):
    name: str
    home: Place


class Opts(TypedDict, total=False):
    loud: bool


@tool(effect="pure")
def everything(
    text: str,
    unit: Literal["C", "F"],
    kind: Unit,
    who: Person,
    opts: Opts,
    maybe: Optional[int] = None,  # noqa: UP045
    many: list[Place] | None = None,
    either: int | str = 5,
    limited: Annotated[int, Field(ge=1, le=9)] = 3,
    told: Annotated[str, "what it is told"] = "",
    json: bool = False,
    context: ToolContext = None,
) -> str:
    """Take everything.

    Args:
        text: the text,
            on two lines
        unit (str): the unit

    Returns:
        all of it
    """
    return repr((text, unit, kind, who, opts, maybe, many, either, limited, told, json, context is not None))


def test_the_schema_says_it_all():
    schema = everything.parameters
    assert everything.description == "Take everything."
    assert schema["required"] == ["text", "unit", "kind", "who", "opts"]
    assert "context" not in schema["properties"]
    assert schema["properties"]["text"] == {"type": "string", "description": "the text, on two lines"}
    assert schema["properties"]["unit"] == {"enum": ["C", "F"], "type": "string", "description": "the unit"}
    assert schema["properties"]["limited"]["maximum"] == 9
    assert schema["properties"]["told"]["description"] == "what it is told"
    assert schema["properties"]["json"] == {"type": "boolean", "default": False}
    assert schema["$defs"]["Place"]["properties"]["zip"]["anyOf"] == [{"type": "integer"}, {"type": "null"}]
    assert schema["additionalProperties"] is False
    json.dumps(schema)


async def test_the_function_gets_what_it_asked_for():
    args = {
        "text": "t",
        "unit": "C",
        "kind": "F",
        "who": {"name": "n", "home": {"city": "Kyoto"}},
        "opts": {"loud": True},
        "many": '[{"city": "Nara", "zip": "630"}]',
        "limited": "4",
    }
    result = await Agent(ScriptedModel([call("everything", **args), "ok"]), [everything], journal="memory").run("go")
    assert result.steps[0].observation == repr(
        (
            *("t", "C", Unit.F, Person(name="n", home=Place("Kyoto")), {"loud": True}, None),
            *([Place("Nara", 630)], 5, 4, "", False, True),
        )
    )


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ({"a": 1}, "- b: Field required"),
        ({"a": "x", "b": 1}, '- a: Input should be a valid integer, unable to parse string as an integer (got "x")'),
        ({"a": 1, "b": 2, "c": 3}, "- c: Extra inputs are not permitted (got 3)"),
        ("[1, 2]", "must be one JSON object, not [1, 2]"),
        ("{a: 1}", "not valid JSON: Expecting property name enclosed in double quotes at line 1, column 2"),
    ],
)
def test_wrong_arguments_are_answered_with_the_field_and_what_was_expected(args, told):
    with pytest.raises(BadArguments) as raised:
        add.prepare(ToolCall("c", "add", args))
    assert told in str(raised.value)
    assert "add" in str(raised.value)


@pytest.mark.parametrize(
    "args", ['{"a": 1, "b": 2}', '"{\\"a\\": 1, \\"b\\": 2}"', "{'a': 1, 'b': 2,}", '```json\n{"a": 1, "b": "2"}\n```']
)
def test_what_models_really_send_is_mended(args):
    assert add.prepare(ToolCall("c", "add", args)) == {"a": 1, "b": 2}


class Shelf:
    def __init__(self, name):
        self.name = name

    @tool(effect="pure")
    def find(self, title: str) -> str:
        """Find a book."""
        return f"{title} on {self.name}"

    @tool
    async def put(self, title: str, context: ToolContext) -> str:
        """Put a book."""
        return f"{title} onto {self.name} by {context.agent}"


async def test_methods_are_tools_bound_to_their_object():
    one = Shelf("shelf one")
    assert one.find("Genji") == "Genji on shelf one"
    model = ScriptedModel([[call("find", title="Genji"), call("put", title="Heike")], "ok"])
    result = await Agent(model, [one.find, one.put], name="clerk", journal="memory").run("go")
    assert [s.observation for s in result.steps[:2]] == ["Genji on shelf one", "Heike onto shelf one by clerk"]
    assert one.find.parameters["required"] == ["title"]


async def test_generators_show_what_they_yield():
    @tool(effect="pure")
    def count(n: int):
        """Count."""
        for number in range(n):
            yield f"{number} "

    @tool(effect="pure")
    async def numbers(n: int):
        """Numbers."""
        for number in range(n):
            yield number

    @tool(effect="pure")
    def total(n: int):
        """Total."""
        yield "working"
        return n * 2

    model = ScriptedModel([[call("count", n=3), call("numbers", n=2), call("total", n=4)], "ok"])
    seen = await chunks(Agent(model, [count, numbers, total], journal="memory").run("go"))
    results = {c["name"]: c["result"] for c in seen if c["type"] == "tool_response"}
    assert results == {"count": "0 1 2 ", "numbers": [0, 1], "total": 8}
    shown = [c["content"] for c in seen if c["type"] == "progress" and c["tool_call_id"] == "c1_0"]
    assert shown == ["0 ", "1 ", "2 "]


async def test_progress_is_shown_while_the_tool_works():
    @tool
    async def dig(context: ToolContext) -> str:
        """Dig."""
        await context.progress("half way")
        return "treasure"

    seen = await chunks(Agent(ScriptedModel([call("dig"), "ok"]), [dig], journal="memory").run("go"))
    (progress,) = [c for c in seen if c["type"] == "progress"]
    assert (progress["content"], progress["tool_call_id"]) == ("half way", "c1_0")


@pytest.mark.parametrize("style", ["google", "numpy", "sphinx"])
def test_docstrings_of_three_styles(style):
    def google(city: str, days: int):
        """Forecast.

        More about it.

        Args:
            city: where
            days (int): how long
        """

    def numpy(city: str, days: int):
        """Forecast.

        More about it.

        Parameters
        ----------
        city : str
            where
        days : int
            how long

        Returns
        -------
        nothing
        """

    def sphinx(city: str, days: int):
        """Forecast.

        More about it.

        :param city: where
        :param int days: how long
        :returns: nothing
        """

    made = tool({"google": google, "numpy": numpy, "sphinx": sphinx}[style])
    assert made.description == "Forecast.\n\nMore about it."
    about = {name: p["description"] for name, p in made.parameters["properties"].items()}
    assert about == {"city": "where", "days": "how long"}


async def test_what_a_tool_may_raise():
    @tool
    def leave() -> str:
        """Leave."""
        raise SystemExit("bye")

    @tool
    def stop() -> str:
        """Stop."""
        raise StopIteration

    @tool
    async def deep() -> str:
        """Deep."""
        return await deep.function()

    model = ScriptedModel([[call("leave"), call("stop"), call("deep")], "survived"])
    result = await Agent(model, [leave, stop, deep], journal="memory").run("go")
    seen = [s.observation for s in result.steps[:3]]
    assert seen[0] == "Error: RuntimeError: SystemExit: bye"
    assert "StopIteration" in seen[1]
    assert "RecursionError" in seen[2]
    assert result.output == "survived"


def test_what_cannot_be_a_tool_is_said():
    def takes_args(*args: int):
        """Takes."""

    def takes_socket(sock: asyncio.Event):
        """Takes."""

    def forward(x: "NotThere"):  # noqa: F821
        """Takes."""

    with pytest.raises(ConfigError, match="models pass arguments by name"):
        _ = tool(takes_args).parameters
    with pytest.raises(ConfigError, match="takes_socket: a parameter has a type that JSON Schema cannot describe"):
        _ = tool(takes_socket).parameters
    with pytest.raises(ConfigError, match="NotThere"):
        _ = tool(forward).parameters


def test_other_callables():
    class Greeter:
        def __call__(self, name: str) -> str:
            """Greet."""
            return f"hello {name}"

    def power(base: int, exponent: int) -> int:
        """Power."""
        return base**exponent

    def flexible(a: int, **more: int) -> int:
        """Flexible."""
        return a + sum(more.values())

    assert as_action(Greeter()).name == "Greeter"
    square = tool(name="square")(partial(power, exponent=2))
    assert square.prepare(ToolCall("c", "square", {"base": 3})) == {"base": 3, "exponent": 2}
    assert tool(flexible).prepare(ToolCall("c", "flexible", {"a": 1, "b": 2})) == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    ("value", "schema", "told"),
    [
        ({"a": 1}, {"type": "object", "required": ["a", "b"]}, ["arguments: the required 'b' is missing"]),
        ({"a": True}, {"properties": {"a": {"type": "integer"}}}, ["arguments.a: expected integer, got boolean True"]),
        ({"a": 2.0}, {"properties": {"a": {"type": "integer"}}}, []),
        (
            {"a": [1, "x"]},
            {"properties": {"a": {"items": {"type": "number"}}}},
            ["arguments.a[1]: expected number, got string 'x'"],
        ),
        (
            {"z": 1},
            {"properties": {"a": {}}, "additionalProperties": False},
            ["arguments: unknown parameter 'z'; the parameters are: a"],
        ),
        ({"a": "q"}, {"properties": {"a": {"enum": ["x", "y"]}}}, ["arguments.a: expected one of ['x', 'y'], got 'q'"]),
        (
            {"a": {"b": 1}},
            {"properties": {"a": {"$ref": "#/$defs/T"}}, "$defs": {"T": {"required": ["c"]}}},
            ["arguments.a: the required 'c' is missing"],
        ),
        ({"a": None}, {"properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}, []),
        (
            {"a": 1},
            {"properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}},
            ["none of the 2 allowed forms"],
        ),
        ({"a": 10}, {"properties": {"a": {"maximum": 9}}}, ["arguments.a: expected at most 9, got 10"]),
        ({"a": "abc"}, {"properties": {"a": {"maxLength": 2, "pattern": "^z"}}}, ["at most 2 characters", "must match"]),
    ],
)
def test_arguments_against_a_json_schema(value, schema, told):
    found = list(problems(value, schema))
    assert len(found) == len(told)
    for text, part in zip(found, told, strict=True):
        assert part in text


async def test_a_hanging_blocking_tool_does_not_keep_the_program_from_ending(tmp_path):
    import subprocess
    import sys

    code = """
import asyncio, time
from kaname import Agent, ScriptedModel, call, tool
@tool(timeout="50ms")
def hang() -> str:
    time.sleep(600)
print(Agent(ScriptedModel([call("hang"), "ended"]), [hang], journal="memory").run_sync("go").output)
"""
    done = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", code], capture_output=True, text=True, timeout=180)
    assert (done.stdout, done.stderr) == ("ended\n", "")


async def test_models_by_name(tmp_path):
    script = tmp_path / "script.json"
    script.write_text(
        json.dumps([{"thinking": "hm", "text": "let me add", "calls": [{"name": "add", "args": {"a": 1, "b": 2}}]}, "3"])
    )
    agent = Agent(f"scripted/{script}", [add], journal="memory")
    result = await agent.run("go")
    assert result.output == "3"
    recording = await save_run(agent.journal, result.run_id, tmp_path / "run.jsonl")
    assert (await Agent(f"replay/{recording}", [add], journal="memory").run("go")).output == "3"
    with pytest.raises(ConfigError, match="cannot be read"):
        resolve("replay/nowhere")
    recording.write_text("nonsense")
    with pytest.raises(JournalCorrupt, match="not a recorded fact"):
        resolve(f"replay/{recording}")
    script.write_text("{}")
    Agent(f"scripted/{script}", journal="memory")
    script.write_text("[{")
    with pytest.raises(ConfigError, match="the script .* cannot be used"):
        resolve(f"scripted/{script}")


class TestScriptedModel(ModelContract):
    def make(self):
        return ScriptedModel(["hello there, こんにちは"])


class TestFunctionTool(ToolContract):
    args = {"a": 1, "b": 2}

    def make(self):
        return add


class TestTextTool(ToolContract):
    args = {"input": "hey"}
    wrong = {"one": 1, "two": 2}

    def make(self):
        class Shout:
            name = "shout"
            description = "Shout."

            async def execute(self, input_text: str) -> ToolResult:
                return ToolResult(input_text.upper())

        return Shout()


class TestDefinedTool(ToolContract):
    def make(self):
        return {"name": "now", "execute": lambda: "noon"}


class TestPlainPolicy(PolicyContract):
    def make(self):
        return Policy()


class TestRefusingPolicy(PolicyContract):
    allows = False

    def make(self):
        class Refuse(Policy):
            async def tool(self, call, next, scope):
                return ToolResult(error="no")

        return Refuse()


class TestListSink(SinkContract):
    def make(self):
        return [].append


class TestReact(StrategyContract):
    def make(self):
        return React()


async def test_a_script_that_ran_out_says_so():
    with pytest.raises(Exception, match="has only 2 replies"):
        await Agent(ScriptedModel([call("add", a=1, b=1), call("add", a=1, b=2)]), [add], journal="memory").run("go")
    assert adding().name == "scripted"


class Ledger:
    """A tool in its smallest form, with every optional member."""

    name, description, effect, listed = "ledger", "Writes a line.", "compensable", False

    def __init__(self) -> None:
        self.lines: list[str] = []

    async def execute(self, input_text: str) -> ToolResult:
        self.lines.append(input_text)
        return ToolResult("written")

    def undo(self, line: str) -> None:
        self.lines.remove(line)


class Shortcut:
    """Stand for a call of `ledger`."""

    name, description, effect = "shortcut", "Writes a line that everybody knows.", "pure"

    async def execute(self, input_text: str) -> ToolResult:
        return ToolResult(error="never called")

    def unfold(self, call: ToolCall) -> ToolCall:
        return ToolCall(call.id, "ledger", {"input": "the usual"})


async def test_class_tool_has_the_optional_members_of_a_tool():
    ledger, model = Ledger(), ScriptedModel([call("shortcut", input="x"), "Done."])
    agent = Agent(model, [ledger, Shortcut()], journal="memory")
    assert [spec["name"] for spec in agent.available_tools] == ["shortcut"]
    result = await agent.run("go")
    assert (result.steps[0].action, ledger.lines) == ("ledger", ["the usual"])
    action = agent.tools["ledger"]
    await action.options.undo("the usual", ToolContext("", "", "", "", "", "", 1))
    assert ledger.lines == []


async def test_class_tool_with_one_text_can_see_the_run():
    class Greets:
        name, description, effect = "greets", "Greets the user.", "pure"

        async def execute(self, input_text: str, context: ToolContext) -> str:
            return f"{input_text}, {context.user}"

    model = ScriptedModel([call("greets", input="Hello"), "Done."])
    result = await Agent(model, [Greets()], journal="memory").run("go", user_id="ken")
    assert result.steps[0].observation == "Hello, ken"


async def test_class_tool_with_several_parameters_has_them_as_well():
    class Pay:
        name, description, effect, listed = "pay", "Pays.", "compensable", False
        paid: ClassVar[list[int]] = []

        def execute(self, yen: int, to: str) -> str:
            self.paid.append(yen)
            return to

        def undo(self, yen: int) -> None:
            self.paid.remove(yen)

    agent = Agent(ScriptedModel([call("pay", yen=5, to="ken"), "Done."]), [Pay()], journal="memory")
    assert agent.available_tools == []
    await agent.run("go")
    await agent.tools["pay"].options.undo({"yen": 5, "to": "ken"}, ToolContext("", "", "", "", "", "", 1))
    assert Pay.paid == []


class Upper(Policy):
    """Change every result, and need a certain tool."""

    def check(self, tools):
        if "add" not in tools:
            raise ConfigError("add is needed")

    async def tool(self, call, next, view):
        result = await next(call)
        return ToolResult(str(result.output).upper(), error=result.error)


class TestUpperKeepsTheContractOfPolicies(PolicyContract):
    changes, tools = True, (add,)

    def make(self):
        return Upper()
