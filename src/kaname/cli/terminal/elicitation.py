"""Questions of a tool server at the terminal: a form, field by field, or a page to open."""

from __future__ import annotations

import webbrowser
from collections.abc import Mapping
from typing import Any

from ...core.people.answers import normalize_answer, says
from ..messages import say, translate
from .questions import read_line_async
from .screen import Screen


class Unfit(Exception):
    """An answer that does not fit. The message says what would."""


async def fill_in(server: str, question: str, schema: Mapping[str, Any], screen: Screen) -> dict[str, Any] | None:
    """Ask for the fields of the schema and return the answers in its types. Return None if the person declines (Ctrl-D)."""
    screen.note(f"{server}: {question}", "yellow")
    if schema.get("callback"):
        return await _sign_in(str(schema["url"]), screen)
    if schema.get("url"):
        return await _open_page(server, str(schema["url"]), screen)
    fields = schema.get("properties") or {}
    if not fields:
        return {} if await _ask_agreement(say("agree? [y/N] ", "同意しますか? [y/N] "), screen) else None
    screen.tell("  (Ctrl-D declines)", "  (Ctrl-D で辞退)")
    answers: dict[str, Any] = {}
    for name, held in fields.items():
        held = held if isinstance(held, Mapping) else {}
        args = await _field(name, held, name in (schema.get("required") or ()), screen)
        if args is None:
            return None
        answers |= args
    return answers


async def _sign_in(address: str, screen: Screen) -> dict[str, Any] | None:
    """Open a page and wait for the browser to call back.

    On another machine, the person pastes the address that the browser ended at.
    """
    screen.tell(f"  open {address}", f"  次のページを開いてください: {address}", colour="yellow")
    webbrowser.open(address)
    message = say(
        "  waiting for the browser; if this machine has none, paste the address of the last page: ",
        "  ブラウザーを待っています。このマシンにブラウザーがなければ、最後に開いたアドレスを貼り付けてください: ",
    )
    answer = await read_line_async(message, screen)
    return None if answer is None else {"url": answer} if answer else {}


async def _open_page(server: str, address: str, screen: Screen) -> dict[str, Any] | None:
    message = say(f"  {server} asks you to open {address}", f"  {server} が次のページを開くよう求めています: {address}")
    screen.note(message, "yellow")
    return {} if await _ask_agreement(say("  open it? [y/N] ", "  開きますか? [y/N] "), screen) else None


async def _ask_agreement(prompt: str, screen: Screen) -> bool:
    answer = await read_line_async(prompt, screen)
    return says(answer) is True


async def _field(name: str, held: Mapping[str, Any], required: bool, screen: Screen) -> dict[str, Any] | None:
    """Ask for one field until the answer fits. Enter chooses the default, or skips an optional field."""
    while True:
        answer = await read_line_async(_prompt(name, held, required), screen)
        if answer is None:
            return None
        if not answer and ("default" in held or not required):
            return {name: held["default"]} if "default" in held else {}
        try:
            return {name: value_of(answer, held)}
        except Unfit as problem:
            screen.note(f"  {translate(problem)}", "red")


def _prompt(name: str, held: Mapping[str, Any], required: bool) -> str:
    title, told = str(held.get("title") or name), held.get("description")
    kind = "y/n" if held.get("type") == "boolean" else "/".join(map(str, _options(held)))
    parts = [f"  {title}", f" ({told})" if told else "", f" [{kind}]" if kind else ""]
    default = held.get("default", "")
    if default != "":
        shown = say("yes", "はい") if default is True else say("no", "いいえ") if default is False else default
        parts.append(say(f", Enter for {shown!s}", f"、Enter で {shown!s}"))
    elif "default" in held or not required:
        parts.append(say(", or Enter", "、または Enter"))
    return "".join(parts) + ": "


def _options(held: Mapping[str, Any]) -> list[Any]:
    """Return the options of a field: `enum` or titled choices, of the field or of the items of a list."""
    inner = held.get("items") if held.get("type") == "array" else held
    inner = inner if isinstance(inner, Mapping) else {}
    titled = inner.get("oneOf") or inner.get("anyOf") or []
    return list(inner.get("enum") or [one["const"] for one in titled if isinstance(one, Mapping) and "const" in one])


def value_of(answer: str, held: Mapping[str, Any]) -> Any:
    """Return the answer in the type of the field. Raise `Unfit` if it does not fit."""
    options = _options(held)
    if held.get("type") == "array":
        return [_choose(one.strip(), options) for one in answer.replace("、", ",").split(",") if one.strip()]
    if options:
        return _choose(answer, options)
    match held.get("type"):
        case "boolean":
            if (said := says(answer)) is None:
                raise Unfit(say("yes or no", "はい か いいえ"))
            return said
        case "integer" | "number":
            return _number(answer, held)
    _check_length(answer, held)
    if not answer:
        raise Unfit(say("this is required", "必須です"))
    return answer


def _check_length(answer: str, held: Mapping[str, Any]) -> None:
    short, long = held.get("minLength"), held.get("maxLength")
    if (isinstance(short, int) and len(answer) < short) or (isinstance(long, int) and len(answer) > long):
        raise Unfit(say(f"{short or 0} to {long or 'any number of'} characters", f"{short or 0}〜{long or ''} 文字"))


def _choose(answer: str, options: list[Any]) -> Any:
    for option in options:
        if normalize_answer(answer) == normalize_answer(str(option)):
            return option
    if options:
        raise Unfit(say("one of ", "次のいずれか: ") + ", ".join(map(str, options)))
    return answer


def _number(answer: str, held: Mapping[str, Any]) -> float:
    whole = held.get("type") == "integer"
    try:
        value = int(answer) if whole else float(answer)
    except ValueError:
        raise Unfit(say("a whole number", "整数") if whole else say("a number", "数値")) from None
    least, most = held.get("minimum"), held.get("maximum")
    if (least is not None and value < least) or (most is not None and value > most) or value != value:
        raise Unfit(say(f"from {least} to {most}", f"{least} から {most} まで"))
    return value
