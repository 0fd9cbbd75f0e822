"""Tools and answers as they come in real life: odd signatures, odd results, odd schemas, odd docstrings."""

import asyncio
from collections import deque
from datetime import date
from functools import partial, wraps
from typing import Annotated, Literal, NamedTuple

import pytest
from pydantic import BaseModel, ConfigDict, Field, RootModel, computed_field, field_validator

from kaname import Agent, ConfigError, Media, OutputDecodingFailed, ScriptedModel, ToolCall, ToolContext, ToolResult, call, tool
from kaname.core.errors import BadArguments
from kaname.core.values import read_json
from kaname.strategies.react import React
from kaname.tools.arguments.docstring import parse
from kaname.tools.arguments.schema import problems
from kaname.tools.registry import as_action
from kaname.tools.to_json import to_json, to_result


async def observe(made, *calls):
    agent = Agent(ScriptedModel([list(calls), "done"]), [made], journal="memory")
    result = await agent.run("go")
    return [step.observation for step in result.steps[:-1]]


class Box:
    label = "class"

    def __init__(self):
        self.label = "object"

    @tool
    def plain(self, x: int) -> str:
        """Plain."""
        return f"{self.label} {x}"

    @tool
    async def waiting(self, x: int) -> str:
        """Waiting."""
        return f"{self.label} {x}"

    @tool
    def yielding(self, x: int):
        """Yielding."""
        yield f"{self.label} {x}"

    @tool
    @staticmethod
    def static(x: int) -> str:
        """Static."""
        return f"static {x}"

    @tool
    @classmethod
    def of_class(cls, x: int) -> str:
        """Of the class."""
        return f"{cls.label} {x}"


def test_every_kind_of_method():
    box = Box()
    for made, wanted in (
        (box.plain, "object 1"),
        (box.waiting, "object 1"),
        (box.yielding, "object 1"),
        (box.static, "static 1"),
        (Box.static, "static 1"),
        (box.of_class, "class 1"),
        (Box.of_class, "class 1"),
        (tool(tool(box.plain.function).function), None),
    ):
        if wanted is not None:
            assert asyncio.run(observe(made, call(made.name, x=1))) == [wanted]
            assert made.parameters["required"] == ["x"]


def test_callables_of_every_kind():
    def power(base: int, exponent: int) -> int:
        """Raise to a power.

        Args:
            base: what is raised
        """
        return base**exponent

    class Adder:
        def __call__(self, a: int, b: int) -> int:
            """Add."""
            return a + b

    @wraps(power)
    def wrapped(*args, **kwargs):
        return power(*args, **kwargs)

    square = partial(power, exponent=2)
    assert as_action(square).name == "power"
    assert as_action(square).description == "Raise to a power."
    assert as_action(square).parameters["properties"]["base"]["description"] == "what is raised"
    assert asyncio.run(observe(square, call("power", base=3))) == ["9"]
    assert asyncio.run(observe(Adder(), call("Adder", a=1, b=2))) == ["3"]
    assert asyncio.run(observe(wrapped, call("power", base=2, exponent=3))) == ["8"]
    with pytest.raises(ConfigError, match="max: .*; wrap it in your own function"):
        _ = tool(max).parameters


async def test_defaults_of_every_kind():
    def f(x: int = Field(3, ge=1, description="a number"), y: int = Field(ge=5), z: int = None, function: str = "f"):  # noqa: RUF013
        """F."""
        return f"{x} {y} {z} {function}"

    made = tool(f)
    assert made.parameters["required"] == ["y"]
    assert made.parameters["properties"]["x"] == {"default": 3, "description": "a number", "minimum": 1, "type": "integer"}
    assert await observe(made, call("f", y=6), call("f", y=6, x=9, z=None, function="g")) == ["3 6 None f", "9 6 None g"]
    (refused,) = await observe(made, call("f", y=1))
    assert "- y: Input should be greater than or equal to 5" in refused


async def test_the_context_in_every_form():
    def f(a: int, first: ToolContext | None = None, second: Annotated[ToolContext, "x"] = None) -> str:
        """F."""
        return f"{a} {first.agent} {second.agent}"

    assert list(tool(f).parameters["properties"]) == ["a"]
    assert await observe(f, call("f", a=1)) == ["1 agent agent"]

    def run(a: int, context: ToolContext) -> str:
        return f"{a} {context.agent}"

    assert await observe({"name": "d", "execute": run}, call("d", a=1)) == ["1 agent"]


async def test_results_that_are_hard_to_show():
    class Silent:
        def __str__(self):
            raise RuntimeError("no str")

    class Array:
        def tolist(self):
            return [1, [2]]

    class Model(BaseModel):
        day: date

    nested = []
    for _ in range(5000):
        nested = [nested]

    def numbers():
        yield from (1, 2)

    picture = Media("image/png", data="aGk=")
    for value, wanted in (
        (Silent(), "[a Silent that cannot be shown: RuntimeError: no str]"),
        (Array(), [1, [2]]),
        (Model(day=date(2026, 1, 2)), {"day": "2026-01-02"}),
        (Model, str(Model)),
        (10**5000, "[an integer of 16,610 bits]"),
        (deque([1, 2]), [1, 2]),
        ({"a": 1}.keys(), ["a"]),
        (range(3), [0, 1, 2]),
        (map(str, [1]), ["1"]),
        (numbers(), [1, 2]),
        (True, True),
        (ToolResult("x", ValueError("q")), None),
    ):
        if wanted is not None:
            assert to_json(value) == wanted
    assert "nested too deeply" in str(to_json(nested))
    assert to_result(ToolResult("x", error=ValueError("q"))).error == "q"
    assert to_result([picture, "a caption"]) == ToolResult(["[image/png]", "a caption"], media=(picture,))

    def pay() -> object:
        """Pay."""
        return Silent()

    (seen,) = await observe(pay, call("pay"))
    assert not seen.startswith("Error"), "the effect has happened: the call did not fail"


async def test_a_generator_behind_a_decorator():
    def logged(function):
        @wraps(function)
        def inner(*args, **kwargs):
            return function(*args, **kwargs)

        return inner

    @logged
    def count(n: int):
        """Count."""
        yield from range(n)

    @logged
    async def acount(n: int):
        """Count."""
        for number in range(n):
            yield number

    assert await observe(count, call("count", n=2)) == ["[0, 1]"]
    assert await observe(acount, call("acount", n=2)) == ["[0, 1]"]


async def test_long_errors_are_cut():
    @tool
    def shout(items: list[int]) -> str:
        """Shout."""
        raise ValueError("x" * 3_000_000)

    raised, refused = await observe(shout, call("shout", items=[]), call("shout", items=["x"] * 10_000))
    assert len(raised) < 11_000
    assert "characters are left out" in raised
    assert "… and 9980 more" in refused
    assert len(refused) < 5000


def test_cut_off_json_is_refused():
    source = "def f(x):\n    return {'a': \"b\"}\n" * 20_000
    for text in ('{"content": "' + source, '{"text": "' + '\\"' * 200_000, "```" + "\n" * 200_000, "," * 300_000 + "}"):
        with pytest.raises(ValueError, match="not valid JSON"):
            read_json(text)  # when this was quadratic, it took minutes


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{'x': true, 'y': [null, false]}", {"x": True, "y": [None, False]}),
        ('```{"a": 1}```', {"a": 1}),
        ('```json {"a": 1}```', {"a": 1}),
    ],
)
def test_more_that_has_one_reading(text, value):
    assert read_json(text) == value


class Point(NamedTuple):
    x: int
    y: int


class Item(BaseModel):
    n: int
    kids: list["Item"] = []


def test_texts_inside_texts_are_unpacked_wherever_they_stand():
    def f(items: list[Item], pairs: list[Point] | None = None, either: Item | int = 0):
        """F."""

    bound = tool(f).prepare(
        ToolCall("c", "f", {"items": ['{"n": 1, "kids": "[{\\"n\\": 2}]"}'], "pairs": "[[1, 2]]", "either": '{"n": 3}'})
    )
    assert bound == {"items": [Item(n=1, kids=[Item(n=2)])], "pairs": [Point(1, 2)], "either": Item(n=3)}
    with pytest.raises(BadArguments, match="items"):
        tool(f).prepare(ToolCall("c", "f", {"items": "[broken"}))


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"pattern": r"^\p{L}+$"}}},
        {"properties": None, "required": None},
        {"properties": {"a": {"$ref": "#/$defs/L"}}, "$defs": {"L": {"$ref": "#/$defs/L"}}},
        {"properties": {"a": {"minimum": "5", "minLength": "1", "enum": None}}},
        {"allOf": None, "anyOf": None},
        True,
    ],
)
def test_odd_schemas_are_left_to_the_tool(schema):
    assert list(problems({"a": "x"}, schema)) == []


def test_anthropics_shape_of_a_definition():
    made = as_action({"name": "d", "input_schema": {"type": "object", "required": ["x"]}, "execute": lambda x: x})
    with pytest.raises(BadArguments, match="'x' is missing"):
        made.prepare(ToolCall("c", "d", {}))


async def test_small_tool_classes_with_ways_of_their_own():
    class Blocking:
        name, description, timeout, effect = "blocking", "B.", "10s", "pure"

        def execute(self, text):
            return f"got {text}"

    assert as_action(Blocking()).options.timeout == 10.0
    assert await observe(Blocking(), call("blocking", input="x")) == ["got x"]
    for broken in ({"effect": "bogus"}, {"name": None}, {"timeout": "soon"}):
        with pytest.raises(ConfigError):
            as_action(type("Bad", (Blocking,), broken)())

    def fails(x: str):
        """Fails."""
        raise ValueError("no")

    assert (await tool(fails).execute("x")).error == "ValueError: no"


@pytest.mark.parametrize(
    ("doc", "about", "params"),
    [
        (
            "Do it.\n\nArgs:\n\tx: tabbed\n\n\ty:\n\t\ton the next line\n\nWarning:\n    take care",
            "Do it.\n\nWarning:\n    take care",
            {"x": "tabbed", "y": "on the next line"},
        ),
        (
            "Do it.\n\nParameters\n----------\na, b : int\n    both\n\nReturns\n-------\nint",
            "Do it.",
            {"a": "both", "b": "both"},
        ),
        ("Do it.\n\n:param x: first\n    and more\n:returns: it", "Do it.", {"x": "first and more"}),
        ("やる。\n\n引数:\n    x: 数\n\n返り値:\n    数", "やる。", {"x": "数"}),
        ("Do it.\n\nNote:\n    Only on Sundays.\n\nAnd more.", "Do it.\n\nNote:\n    Only on Sundays.\n\nAnd more.", {}),
        ("Args:\n    x: at once", "", {"x": "at once"}),
        ("Ratio: a number, not a heading.\n\nExample:\n    f(1)", "Ratio: a number, not a heading.", {}),
    ],
)
def test_docstrings(doc, about, params):
    def f():
        pass

    f.__doc__ = doc
    assert parse(f) == (about, params)


def test_a_field_description_wins_over_the_docstring():
    def f(x: Annotated[int, Field(description="from the field")], y: Annotated[int, "from the note"]):
        """F.

        Args:
            x: from the docstring
        """

    about = {name: p["description"] for name, p in tool(f).parameters["properties"].items()}
    assert about == {"x": "from the field", "y": "from the note"}


# Answers


class Camel(BaseModel):
    city_name: str = Field(alias="cityName")
    secret: str = Field("", exclude=True)


class Priced(BaseModel):
    model_config = ConfigDict(extra="forbid")
    price: int

    @field_validator("price", mode="before")
    @classmethod
    def cents(cls, value):
        return value * 100

    @computed_field
    @property
    def double(self) -> int:
        return self.price * 2


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)
    day: date


class Tree(RootModel[list["Tree"]]):
    pass


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Camel, '{"cityName": "Kyoto", "secret": "s"}', Camel(cityName="Kyoto", secret="s")),
        (Priced, '{"price": 1}', Priced(price=1)),
        (Strict, '{"day": "2026-01-02"}', Strict(day=date(2026, 1, 2))),
        (Literal["a", "b"], "a", "a"),
        (date, "2026-01-02", date(2026, 1, 2)),
        (str | None, "text", "text"),
        (Item, 'Here you are:\n```json\n{"n": 1}\n```\nGood luck!', Item(n=1)),
        (Tree, '{"result": [[], [[]]]}', Tree([Tree([]), Tree([Tree([])])])),
    ],
)
async def test_answers_of_every_type(kind, text, value):
    agent = Agent(ScriptedModel([text]), output=kind, journal="memory")
    result = await agent.run("go")
    assert (result.stop.kind, result.output) == ("completed", value)
    assert (await agent.resume(result.run_id)).output == value, "and the same when it is read back"


async def test_no_answer_is_not_an_answer():
    asked = []
    agent = Agent(ScriptedModel(lambda r: asked.append(1) or ""), output=Item, journal="memory")
    result = await agent.run("go")
    assert (result.stop.kind, len(asked)) == ("undecodable", 3)
    with pytest.raises(OutputDecodingFailed):
        result.raise_for_stop()


async def test_an_output_type_with_a_strategy_of_ones_own():
    assert (await Agent(ScriptedModel(["5"]), strategy=React(), output=int, journal="memory").run("x")).output == 5

    class Always:
        def next(self, state):
            from kaname.core.steps import Finish, Stop

            return Finish(Stop("completed"), "not a number")

    with pytest.raises(OutputDecodingFailed):
        await Agent(strategy=Always(), output=int, journal="memory").run("x")
