"""Check the use of a tool: its name, arguments that it does not take or still wants, values that do not fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..core.errors import nearest
from ..core.notices import notice
from ..kernel.ports import Action
from ..people.person import ASK
from ..strategies.graph.expression import expressions
from ..strategies.graph.task import Use
from ..tools.arguments.schema import problems


def misuse(use: Use, tools: Mapping[str, Action]) -> Iterator[tuple[str, str]]:
    """Yield each mistake: the field, and what is wrong. An argument with an expression is checked when its value is known."""
    action = tools.get(use.tool, None)
    if action is None:
        message = notice("config.no_tool", "there is no tool {name!r}", name=use.tool)
        yield "tool", message + nearest(use.tool, [name for name in tools if name != ASK])
        return
    schema = action.parameters
    known, required = schema.get("properties") or {}, schema.get("required") or ()
    open_ended = schema.get("additionalProperties", False) is not False
    for name in use.args:
        if name not in known and not open_ended:
            message = notice("workflow.no_argument", "{tool} has no argument {name!r}", tool=use.tool, name=name)
            yield f"args.{name}", message + nearest(name, known)
        elif not any(expressions(use.args[name])):
            yield from [(f"args.{name}", f"{use.tool}: " + one) for one in problems(use.args[name], known.get(name, {}), name)]
    for name in required:
        if name not in use.args:
            yield (
                "args",
                notice(
                    "workflow.argument_missing", "{tool} is missing the required argument {name!r}", tool=use.tool, name=name
                ),
            )
