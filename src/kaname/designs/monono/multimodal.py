"""`MultiModalProcessor` of MONONO 3.12: pictures, sound and video by the name of the task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...core.errors import ConfigError, nearest
from ...core.notices import notice
from ...kernel.chain import overrides
from ...senses.results import Description, MadeMedia, Page, SpeechText, SpokenTurn
from ...senses.senses import Senses
from ...senses.sources import Source
from ...senses.tools import senses_tools

_IMAGE, _AUDIO, _VIDEO = (
    ("describe", "ocr", "generate", "edit"),
    ("transcribe", "synthesize", "speakers"),
    ("summarize", "caption"),
)


class MultiModalProcessor:
    """Processes pictures, sound and video, on this machine or through providers.

    Pass `processor.tools` to an agent, and it uses the same tasks by itself.

    Args:
        senses: The providers (default: this machine). See `kaname.Senses`.
        options: Arguments of `Senses`, instead of `senses`.
    """

    def __init__(self, senses: Senses | None = None, **options: Any) -> None:
        self.senses = senses or Senses(**options)

    @property
    def tools(self) -> list[Any]:
        """Return the tasks as tools for an agent. Methods that a subclass overrides are tools under their own names."""
        names = ("process_image", "process_audio", "process_video")
        own = [getattr(self, name) for name in names if overrides(self, name, MultiModalProcessor)]
        return [*own, *senses_tools(self.senses)]

    async def process_image(
        self,
        image_data: Source,
        task_type: str = "describe",
        *,
        question: str = "",
        steps: Sequence[Mapping[str, Any]] | str = (),
        size: str = "",
    ) -> Description | Page | MadeMedia:
        """Process a picture.

        Args:
            image_data: A path, bytes, a public web address or a `Media`; for "generate", the words.
            task_type: "describe", "ocr", "generate" or "edit".
            question: What to find out, for "describe".
            steps: The changes, for "edit": a list of steps, or words for a provider.
            size: The size, for "generate", such as "1024x1024".
        """
        match task_type:
            case "describe":
                return await self.senses.describe(image_data, question)
            case "ocr":
                return await self.senses.read(image_data)
            case "generate":
                return await self.senses.generate(str(image_data), size)
            case "edit":
                return await self.senses.edit(image_data, steps)
            case _:
                raise _unknown(task_type, _IMAGE)

    async def process_audio(
        self, audio_data: Source, task_type: str = "transcribe", *, language: str = "", voice: str = "", count: int = 0
    ) -> SpeechText | MadeMedia | list[SpokenTurn]:
        """Process a sound.

        Args:
            audio_data: A path, bytes, a public web address or a `Media`; for "synthesize", the words to speak.
            task_type: "transcribe", "synthesize" or "speakers".
            language: The language, such as "en" or "ja".
            voice: The voice, for "synthesize".
            count: The number of voices, for "speakers", if it is known.
        """
        match task_type:
            case "transcribe":
                return await self.senses.transcribe(audio_data, language)
            case "synthesize":
                return await self.senses.speak(str(audio_data), language, voice)
            case "speakers":
                return await self.senses.speakers(audio_data, count)
            case _:
                raise _unknown(task_type, _AUDIO)

    async def process_video(self, video_data: Source, task_type: str = "summarize", *, form: str = "srt") -> Description | str:
        """Process a video.

        Args:
            video_data: A path, bytes, a public web address or a `Media`.
            task_type: "summarize" or "caption".
            form: The form of captions, "srt" or "vtt".
        """
        match task_type:
            case "summarize":
                return await self.senses.summarize(video_data)
            case "caption":
                return await self.senses.caption(video_data, form)
            case _:
                raise _unknown(task_type, _VIDEO)

    async def close(self) -> None:
        """Close connections and processes. They are opened again on the next use."""
        await self.senses.close()


def _unknown(task: str, known: Sequence[str]) -> ConfigError:
    return ConfigError(notice("senses.no_task", "there is no task {task!r}", task=task) + nearest(str(task), known))
