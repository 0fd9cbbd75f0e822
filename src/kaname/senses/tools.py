"""Tools with which an agent reads, describes, makes and hears by itself. Files are those of the conversation.

An agent cannot read other files of the machine through them, unless a folder is given; nor web addresses, unless allowed.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from ..core.errors import AgentError, ConfigError, nearest
from ..core.messages import Media, ToolResult, Usage
from ..core.notices import notice
from ..core.people.labels import ToolLabels
from ..core.reading.files import find_file, no_such_file
from ..kernel.ports import ToolContext
from ..tools.function import FunctionTool, tool
from .process.client import Progress
from .results import MadeMedia
from .senses import Senses

NAMES = (
    *("read_text", "describe_picture", "edit_picture", "draw_chart", "draw_diagram", "generate_picture"),
    *("transcribe", "speak", "tell_speakers_apart", "summarize_video", "caption_video"),
)

_READS = ToolLabels("reads", result="untrusted")  # what stands in a picture or is said in a recording is other people's
_OWN = ToolLabels("own")  # what is made stays in the conversation


def senses_tools(
    senses: Senses | None = None, only: Iterable[str] = (), *, folder: str | Path | None = None, urls: bool = False, **more: Any
) -> list[FunctionTool[Any, Any]]:
    """Return the tools.

    Args:
        senses: The providers (default: this machine).
        only: Names of the tools that are wanted (default: all that have a provider).
        folder: A folder whose files the tools can open, too (default: only files of the conversation).
        urls: True to let the tools fetch public web addresses.
        more: Arguments of `Senses`, instead of `senses`.
    """
    used = senses or Senses(**more)
    every = {one.name: one for one in _pictures(used, folder, urls) + _drawings(used) + _sounds(used, folder, urls)}
    wanted = [name for name in only if name]
    if unknown := [name for name in wanted if name not in every]:
        message = notice("senses.no_tool", "there is no tool {name!r} for pictures or sound", name=unknown[0])
        raise ConfigError(message + nearest(unknown[0], NAMES))
    if not wanted and not used.can("generate"):
        every.pop("generate_picture")
    return [every[name] for name in wanted] if wanted else list(every.values())


def _pictures(senses: Senses, folder: str | Path | None, urls: bool) -> list[FunctionTool[Any, Any]]:
    find = Finder(folder, urls)

    @tool(effect="pure", timeout=600, labels=_READS)
    async def read_text(file: str, context: ToolContext) -> Any:
        """Read the text in a picture (OCR).

        Args:
            file: The name of a file of this conversation, or its number: 1 is the first.
        """
        page = await senses.read(find(file, context))
        return page.told or "no text was found"

    @tool(effect="idempotent", timeout=600, labels=_READS)
    async def describe_picture(file: str, context: ToolContext, question: str = "") -> Any:
        """Describe a picture, or answer a question about it.

        Args:
            file: The name or number of the file.
            question: What you want to know.
        """
        found = await senses.describe(find(file, context), question)
        return ToolResult(found.text, usage=found.usage)

    @tool(effect="pure", timeout=300)
    async def edit_picture(file: str, steps: list[dict[str, Any]], context: ToolContext) -> Any:
        """Change a picture, step by step, and return the new one.

        Args:
            file: The name or number of the file.
            steps: Changes such as {"do": "crop", "box": [left, top, right, bottom]}, {"do": "resize", "width": 800},
                {"do": "rotate", "degrees": 90}, {"do": "redact", "words": ["secret"]}, {"do": "redact", "box": [...]},
                {"do": "rectangle", "box": [...]}, {"do": "text", "text": "...", "x": 10, "y": 10},
                {"do": "grayscale"}, {"do": "convert", "format": "png"}.
        """
        return _as_result(await senses.edit(find(file, context), steps))

    @tool(timeout=600, labels=_OWN)
    async def generate_picture(prompt: str, size: str = "") -> Any:
        """Make a picture from words.

        Args:
            prompt: What the picture shows.
            size: Its size, such as 1024x1024.
        """
        return _as_result(await senses.generate(prompt, size))

    return [read_text, describe_picture, edit_picture, generate_picture]


def _drawings(senses: Senses) -> list[FunctionTool[Any, Any]]:
    @tool(effect="pure", timeout=120)
    async def draw_chart(
        kind: Literal["line", "bar", "pie", "scatter", "histogram"],
        series: dict[str, list[float]],
        labels: list[str] | None = None,
        title: str = "",
        x_label: str = "",
        y_label: str = "",
    ) -> Any:
        """Draw a chart of numbers.

        Args:
            kind: The kind of chart.
            series: The numbers by the name of their series.
            labels: The label of each number.
            title: The title.
            x_label: The name of the horizontal axis.
            y_label: The name of the vertical axis.
        """
        more = {"title": title, "x_label": x_label, "y_label": y_label}
        return _as_result(await senses.chart(kind, series, labels or (), **more))

    @tool(effect="pure", timeout=120)
    async def draw_diagram(edges: list[list[str]], title: str = "") -> Any:
        """Draw boxes with arrows between them.

        Args:
            edges: Arrows, each as [from, to] or [from, to, label].
            title: The title.
        """
        return _as_result(await senses.diagram(edges, title=title))

    return [draw_chart, draw_diagram]


def _sounds(senses: Senses, folder: str | Path | None, urls: bool) -> list[FunctionTool[Any, Any]]:
    find = Finder(folder, urls)

    @tool(effect="idempotent", timeout=7200, labels=_READS)
    async def transcribe(file: str, context: ToolContext, language: str = "") -> Any:
        """Write down what is said in a sound or video, with times in seconds.

        Args:
            file: The name of a file of this conversation, or its number: 1 is the first.
            language: The language, such as en or ja, if it is known.
        """
        found = await senses.transcribe(find(file, context), language, _shown(context))
        lines = [f"[{one.start:.1f}-{one.end:.1f}] {one.text}" for one in found.sentences]
        return ToolResult("\n".join(lines) or "nobody speaks in it", usage=found.usage)

    @tool(effect="idempotent", timeout=1800, labels=_OWN)
    async def speak(text: str, context: ToolContext, language: Literal["", "en", "ja"] = "") -> Any:
        """Speak a text, and return the sound.

        Args:
            text: What is to be said.
            language: en or ja.
        """
        return _as_result(await senses.speak(text, language, progress=_shown(context)))

    @tool(effect="pure", timeout=1800, labels=_READS)
    async def tell_speakers_apart(file: str, context: ToolContext, count: int = 0) -> Any:
        """Find out when which voice speaks. It can be wrong, most of all if voices are alike.

        Args:
            file: The name or number of the file.
            count: How many voices there are, if it is known.
        """
        turns = await senses.speakers(find(file, context), count)
        return [f"[{one.start:.1f}-{one.end:.1f}] {one.speaker}" for one in turns] or "nobody speaks in it"

    @tool(effect="idempotent", timeout=7200, labels=_READS)
    async def summarize_video(file: str, context: ToolContext) -> Any:
        """Summarize a video: its scenes, the text in its pictures, and what is said.

        Args:
            file: The name or number of the file.
        """
        found = await senses.summarize(find(file, context), _shown(context))
        return ToolResult(found.text, usage=found.usage)

    @tool(effect="idempotent", timeout=7200, labels=_READS)
    async def caption_video(file: str, context: ToolContext, form: Literal["srt", "vtt"] = "srt") -> Any:
        """Write captions for a video or sound.

        Args:
            file: The name or number of the file.
            form: srt or vtt.
        """
        return await senses.caption(find(file, context), form, progress=_shown(context))

    return [transcribe, speak, tell_speakers_apart, summarize_video, caption_video]


class Finder:
    """Finds a file by the name or number that a model uses for it."""

    def __init__(self, folder: str | Path | None, urls: bool) -> None:
        self._folder, self._urls = None if folder is None else Path(folder).expanduser().resolve(), urls

    def __call__(self, wanted: str, context: ToolContext) -> Media | str | Path:
        """Return the medium. Raises `AgentError` with the names of those that there are."""
        wanted = wanted.strip()
        if wanted.startswith(("http://", "https://")):
            if not self._urls:
                raise AgentError.of("senses.no_urls", "web addresses are not allowed here; use a file of the conversation")
            return wanted
        if (found := find_file(context.state, wanted)) is not None:
            return found
        if self._folder is not None:
            path = (self._folder / wanted).resolve()
            if path.is_relative_to(self._folder) and path.is_file():
                return path
        raise no_such_file(context.state, wanted)


def _shown(context: ToolContext) -> Progress:
    """Return a function that shows how far the work is to the readers of the run."""
    view = context.view

    def show(done: float, of: float) -> None:
        if view is not None:
            view.tell({"status": "progress", "call": context.call_id, "done": round(done, 1), "of": round(of, 1)})

    return show


def _as_result(made: MadeMedia) -> ToolResult:
    about = f" {made.details}" if made.details else ""
    usage: Usage = made.usage
    return ToolResult(f"made {made.media.name} ({made.media.mime}){about}", media=(made.media,), usage=usage)
