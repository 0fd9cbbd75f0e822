"""`Senses`: every task on pictures, sound and video, by the providers that the caller has chosen, in their order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from ..core.durations import seconds as as_seconds
from ..core.errors import AgentError, ConfigError, Halt, ModelError
from ..core.messages import NOTHING, Media, Message, ModelRequest, Text
from ..core.record import replace
from ..kernel.bases import model_info
from ..kernel.replies import ask_for_run
from ..models.registry import resolve
from . import local
from .captions import captions
from .process.client import Progress, SenseError, close_workers
from .remote import RemoteSenses, TaskPrice
from .results import Description, MadeMedia, Page, Scene, Sentence, SpeechText, SpokenTurn
from .sources import MOST_BYTES, Source, open_source

Provider = str | RemoteSenses
MadeT = TypeVar("MadeT")
_TASKS = ("generate", "edit", "transcribe", "speak")
_ASKED = "Describe this picture in a few sentences: what it shows, and any text in it."
_MOST_FRAMES, _MOST_TEXT = 12, 20_000


class Senses:
    """Pictures, sound and video: read, describe, make, change, write down, speak, tell apart, summarize.

    Args:
        model: A model that sees, to describe pictures and summarize videos. Without it, descriptions hold what can be
            measured and read, and say that nobody looked.
        transcribe: Who writes down speech: "local", "openai/MODEL", or a list. When one fails, the next is tried.
        speak: Who speaks, in the same form.
        generate: Who makes pictures from words. There is no local one (default: none).
        edit: Who changes pictures as words say (default: none). Crops, rotations and the like are done here in any case.
        prices: The prices of remote tasks by provider, as `TaskPrice` or mappings. Without one, the cost is unknown.
        longest: The longest sound or video, in seconds or as "30m" (default: one hour).
        most_bytes: The largest file (default: 50 MB).
    """

    def __init__(
        self,
        model: Any = None,
        *,
        transcribe: Provider | Sequence[Provider] = "local",
        speak: Provider | Sequence[Provider] = "local",
        generate: Provider | Sequence[Provider] = (),
        edit: Provider | Sequence[Provider] = (),
        prices: Mapping[str, Any] | None = None,
        longest: float | str = 3600.0,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self.model = None if model is None else resolve(model)
        self._prices = {name: one if isinstance(one, TaskPrice) else TaskPrice(**one) for name, one in (prices or {}).items()}
        given = dict(zip(_TASKS, (generate, edit, transcribe, speak), strict=True))
        self._providers = {task: self._resolve_providers(task, one) for task, one in given.items()}
        self.longest, self.most_bytes = as_seconds(longest), most_bytes

    def _resolve_providers(self, task: str, given: Provider | Sequence[Provider]) -> list[RemoteSenses | str]:
        every = [given] if isinstance(given, str | RemoteSenses) else list(given)
        if "local" in every and task == "generate":
            raise ConfigError.of("senses.not_local", "pictures cannot be made from words on this machine: name a provider")
        return [
            one if isinstance(one, RemoteSenses) or one == "local" else RemoteSenses(one, price=self._prices.get(one))
            for one in every
        ]

    async def open(self, source: Source) -> Media:
        """Return a medium from an object, bytes, a path or a public web address."""
        return await open_source(source, most=self.most_bytes)

    # --- pictures ---

    async def read(self, picture: Source) -> Page:
        """Read the text in a picture (OCR)."""
        return await local.read(await self.open(picture))

    async def describe(self, picture: Source, question: str = "") -> Description:
        """Describe a picture, or answer a question about it."""
        media = await self.open(picture)
        if self.model is not None and self._sees(media):
            try:
                return await self._ask([media], question or _ASKED)
            except (ModelError, SenseError) as problem:
                return replace(await self._measure(media), details={"failed": {self.model.name: problem.public}})
        return await self._measure(media)

    async def _measure(self, media: Media) -> Description:
        about, page = await local.measure(media), await local.read(media)
        light = "dark" if about["brightness"] < 0.3 else "bright" if about["brightness"] > 0.7 else "of medium brightness"
        told = f"A picture of {about['width']} x {about['height']} pixels, {light}; colours {', '.join(about['colours'])}."
        told += f"\nText in it:\n{page.told}" if page.text else "\nNo text was found in it."
        return Description(told + "\n(No model has looked at it: objects and scenes are not described.)", details=about)

    def _sees(self, media: Media) -> bool:
        takes = model_info(self.model).takes
        return takes is None or media.mime.startswith(tuple(takes))

    async def _ask(self, media: Sequence[Media], words: str) -> Description:
        assert self.model is not None
        request = ModelRequest((Message("user", (Text(words), *media)),), stream=False)
        try:
            reply = await ask_for_run(request, self.model)
        except Halt as end:  # its limits: the tool says so, and the run goes on
            raise SenseError(end.stop.detail) from None
        return Description(reply.message.text, bool(media), self.model.name, reply.usage)

    async def generate(self, prompt: str, size: str = "") -> MadeMedia:
        """Make a picture from words."""
        return await self._first("generate", lambda one: one.generate(prompt, size), None)

    async def edit(self, picture: Source, steps: Sequence[Mapping[str, Any]] | str) -> MadeMedia:
        """Change a picture.

        Args:
            picture: The picture.
            steps: A list of changes, such as `[{"do": "crop", "box": [0, 0, 100, 50]}, {"do": "rotate", "degrees": 90}]`,
                which are made on this machine; or words, for a provider. `do` is one of crop, resize, rotate, flip, grayscale,
                redact (`box`, or `words` to find in the picture), rectangle, text, convert.
        """
        media = await self.open(picture)
        if isinstance(steps, str):
            return await self._first("edit", lambda one: one.edit(media, steps), None)
        return await local.edit(media, steps)

    async def chart(
        self, kind: str, series: Mapping[str, Sequence[float]], labels: Sequence[Any] = (), **more: Any
    ) -> MadeMedia:
        """Draw a chart: line, bar, pie, scatter or histogram. `more`: title, x_label, y_label."""
        return await local.chart(kind, {"series": dict(series), "labels": list(labels), **more})

    async def diagram(self, edges: Sequence[Sequence[str]], nodes: Sequence[str] = (), title: str = "") -> MadeMedia:
        """Draw boxes with arrows between them. An edge is `[from, to]` or `[from, to, label]`."""
        return await local.chart("diagram", {"edges": [list(one) for one in edges], "nodes": list(nodes), "title": title})

    # --- sound ---

    async def transcribe(self, sound: Source, language: str = "", progress: Progress | None = None) -> SpeechText:
        """Write down what is said in a sound or video, with the time of each sentence."""
        media = await self.open(sound)
        here = lambda: local.transcribe(media, language, self.longest, progress)  # noqa: E731
        return await self._first("transcribe", lambda one: one.transcribe(media, language), here)

    async def speak(
        self, text: str, language: str = "", voice: str = "", speed: float = 1.0, progress: Progress | None = None
    ) -> MadeMedia:
        """Speak a text. Local voices: English and Japanese (default: the language of the text)."""
        here = lambda: local.speak(text, language, voice, speed, progress)  # noqa: E731
        return await self._first("speak", lambda one: one.speak(text, voice, speed), here)

    async def speakers(self, sound: Source, count: int = 0) -> list[SpokenTurn]:
        """Tell voices apart. `count`: how many there are, if you know it, which makes it more reliable."""
        return await local.speakers(await self.open(sound), count, self.longest)

    # --- video ---

    async def scenes(self, video: Source, progress: Progress | None = None) -> list[Scene]:
        """Return the scenes of a video, each with a picture."""
        return (await local.scenes(await self.open(video), self.longest, progress))[0]

    async def caption(
        self, video: Source, form: str = "srt", language: str = "", *, who: bool = False, progress: Progress | None = None
    ) -> str:
        """Write captions for a video or sound, as "srt" or "vtt". `who`: also tell the voices apart."""
        captions((), form)  # a wrong form is told before the work
        media = await self.open(video)
        said = (await self.transcribe(media, language, progress)).sentences
        turns = await self.speakers(media) if who else []
        return captions([replace(one, speaker=speaker_of(one, turns)) for one in said], form)

    async def summarize(self, video: Source, progress: Progress | None = None) -> Description:
        """Summarize a video from its pictures, the text in them, and what is said. Without a model, list them."""
        media = await self.open(video)
        found, about = await local.scenes(media, self.longest, progress)
        step = max(1, -(-len(found) // _MOST_FRAMES))
        found = [replace(one, text=(await local.read(one.picture)).text) for one in found[::step]]
        usage, failed = NOTHING, {}
        try:
            said = await self.transcribe(media, progress=progress)
            usage += said.usage
        except AgentError as problem:  # the pictures are worth something without the sound
            said, failed = SpeechText(), {"transcribe": problem.public}
        listed = _outline(found, said, about["seconds"])
        details = {**about, "failed": failed, "scenes": [(one.start, one.end, one.text) for one in found]}
        if self.model is None:
            return Description(listed, usage=usage, details=details)
        pictures = [one.picture for one in found if self._sees(one.picture)]
        words = f"Summarize this video in a few sentences.\n\n{listed[:_MOST_TEXT]}"
        made = await self._ask(pictures, words)
        return replace(made, usage=made.usage + usage, details=details)

    # --- who does it ---

    async def _first(
        self, task: str, remote: Callable[[RemoteSenses], Awaitable[MadeT]], here: Callable[[], Awaitable[MadeT]] | None
    ) -> MadeT:
        """Try the providers of a task in their order."""
        problems: list[AgentError] = []
        for one in self._providers[task]:
            try:
                if isinstance(one, RemoteSenses):
                    return await remote(one)
                if here is not None:
                    return await here()
            except AgentError as problem:
                problems.append(problem)
        if problems:
            raise problems[0] if len(problems) == 1 else SenseError("; ".join([one.public for one in problems]))
        raise ConfigError.of(
            "senses.no_provider", "no provider is set for {task!r}: senses: {{{task}: openai/MODEL}}", task=task
        )

    def can(self, task: str) -> bool:
        """Return True if a provider is set for the task."""
        return bool(self._providers[task])

    async def close(self) -> None:
        """Close connections and processes. They are opened again on the next use."""
        for one in {id(one): one for every in self._providers.values() for one in every}.values():
            if isinstance(one, RemoteSenses):
                await one.close()
        await close_workers()


def speaker_of(sentence: Sentence, turns: Sequence[SpokenTurn]) -> str:
    """Return the voice that speaks most of the time of a sentence."""
    shares: dict[str, float] = {}
    for turn in turns:
        both = min(sentence.end, turn.end) - max(sentence.start, turn.start)
        shares[turn.speaker] = shares.get(turn.speaker, 0.0) + max(0.0, both)
    best = max(shares, key=lambda name: shares[name], default="")
    return best if shares.get(best) else ""


def _outline(scenes: Sequence[Scene], said: SpeechText, seconds: float) -> str:
    lines = [f"A video of {seconds:.0f} seconds with {len(scenes)} scenes."]
    for number, one in enumerate(scenes, 1):
        words = " ".join([each.text for each in said.sentences if one.start <= each.start < one.end])
        shown = f" Text in the picture: {' / '.join(one.text.splitlines())}." if one.text else ""
        lines.append(f"{number}. {one.start:.1f}-{one.end:.1f} s.{shown}" + (f" Said: {words}" if words else ""))
    return "\n".join(lines)
