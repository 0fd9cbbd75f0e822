"""Write improved texts to the files that they come from: Python programs and `kaname.yaml`. Everything else in them stays."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from inspect import cleandoc
from pathlib import Path
from typing import Any

from ...agent.agent import Agent
from ...core.errors import ConfigError
from .texts import TOOL, join_instructions


def rewrite(agent: Agent[Any], files: Iterable[Path], after: Mapping[str, str]) -> dict[Path, str]:
    """Return the new contents of the files that hold the texts of an agent. Nothing is written.

    Args:
        agent: The agent, with its texts as they are.
        files: Where its instructions can be: the program, or the configuration.
        after: The new texts by name. The descriptions of tools are changed where their functions are.

    Raises:
        ConfigError: If a text that has changed is not in its file exactly once, as one piece.
    """
    old, made = agent.recipe.instructions, dict[Path, str]()
    changes = [(old, join_instructions(old, after), [*files])]
    for name in [name for name in after if name.startswith(TOOL)]:
        tool: Any = agent.tools[name[len(TOOL) :]]
        code = getattr(getattr(tool, "function", None), "__code__", None)
        changes.append((tool.description, after[name], [] if code is None else [Path(code.co_filename)]))
    for before, new, places in [change for change in changes if change[0] != change[1]]:
        found = [(path, text) for path in places for text in _replacements(path, made.get(path), before, new)]
        if len(found) != 1:
            raise ConfigError.of(
                "improve.not_found",
                "change this text yourself, it is not in {files} exactly once: {text!r:.80}",
                files=", ".join([str(path) for path in places]) or "any file",
                text=before,
            )
        made |= dict(found)
    return made


def _replacements(path: Path, text: str | None, old: str, new: str) -> Iterator[str]:
    """Yield the contents of a file with the new text, once for each place where the old one is."""
    text = path.read_bytes().decode() if text is None else text  # with its own line ends
    find, strings = (_in_program, _strings) if path.suffix == ".py" else (_in_yaml, _scalars)
    for start, end, put in find(text, old, new):
        made = text[:start] + (put.replace("\n", "\r\n") if "\r\n" in text else put) + text[end:]
        if strings(made) is None or len(strings(made) or ()) != len(strings(text) or ()):
            continue  # what comes out would not be the same file with another text
        yield made


def _strings(text: str) -> list[str] | None:
    """Return the texts in a program; None if it is not one."""
    try:
        return [str(node.value) for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant)]
    except (SyntaxError, ValueError):
        return None


def _scalars(text: str) -> list[str] | None:
    """Return the texts in a configuration; None if it is not one."""
    import yaml

    found, waiting = list[str](), list[Any]()
    try:
        yaml.safe_load(text)
        waiting = [yaml.compose(text, Loader=yaml.SafeLoader)]
    except yaml.YAMLError:
        return None
    while waiting:
        node = waiting.pop()
        if isinstance(node, yaml.ScalarNode):
            found.append(node.value)
        elif isinstance(node, yaml.CollectionNode):
            waiting += [one for pair in node.value for one in (pair if isinstance(pair, tuple) else [pair])]
    return found


def _in_program(text: str, old: str, new: str) -> Iterator[tuple[int, int, str]]:
    """Yield the places of the strings that hold the text: those that equal it, and docstrings that begin with it."""
    lines = re.findall(r"[^\r\n]*(?:\r\n|\r|\n|$)", text)  # as Python counts them

    def offset(line: int, column: int) -> int:
        return sum([len(one) for one in lines[: line - 1]]) + len(lines[line - 1].encode()[:column].decode())

    nodes = [*ast.walk(ast.parse(text))]
    documented = [node.body[0] for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    docstrings = [node.value for node in documented if isinstance(node, ast.Expr)]
    for node in nodes:
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or not old:
            continue
        whole, put = cleandoc(node.value), ""
        if node in docstrings and whole.startswith(old):
            put = _as_string(new + whole[len(old) :], " " * node.col_offset)
        elif node.value == old:
            put = _as_string(new)
        if put:
            yield offset(node.lineno, node.col_offset), offset(node.end_lineno or 0, node.end_col_offset or 0), put


def _as_string(text: str, indent: str | None = None) -> str:
    """Return a text as a literal of Python. `indent`: that of a docstring, which is indented."""
    if indent is None and "\n" not in text:
        return json.dumps(text, ensure_ascii=False)
    escaped = text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    lines = [f"{indent or ''}{line}" if line and place else line for place, line in enumerate(escaped.split("\n"))]
    end = f"\n{indent}" if indent is not None and len(lines) > 1 else ""
    joined = "\n".join(lines)
    return f'"""{joined[:-1]}\\""""' if joined.endswith('"') and not end else f'"""{joined}{end}"""'


def _in_yaml(text: str, old: str, new: str) -> Iterator[tuple[int, int, str]]:
    """Yield the places of the values that hold the text."""
    import yaml

    waiting = [yaml.compose(text, Loader=yaml.SafeLoader)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, yaml.SequenceNode):
            waiting += node.value
        for _, value in node.value if isinstance(node, yaml.MappingNode) else ():
            waiting.append(value)
            if not isinstance(value, yaml.ScalarNode) or not old or value.value.strip() != old.strip():
                continue
            put = json.dumps(new, ensure_ascii=not new.replace("\n", "").isprintable())
            start, end = value.start_mark.index, value.end_mark.index
            yield start, start + len(text[start:end].rstrip()), put
