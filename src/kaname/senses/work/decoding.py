"""Decode pictures, sound and video with Pillow and PyAV. Only this module touches the bytes of files from outside."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

from ..process.child import Job, Refused

_FORMATS = {
    "image/png": "PNG",
    "image/jpeg": "JPEG",
    "image/gif": "GIF",
    "image/webp": "WEBP",
    "image/bmp": "BMP",
    "image/tiff": "TIFF",
}
_MOST_PIXELS, _MOST_DRAFTED = 40_000_000, 250_000_000  # a JPEG is decoded at a fraction of its size
RATE = 16_000  # samples a second, as speech recognition wants them
_SMALL = (64, 36)  # pixels at which frames are compared
_Made = tuple[dict[str, Any], list[bytes]]


def load(opening: dict[str, Any]) -> None:
    import warnings

    import av
    import PIL.ImageDraw
    import PIL.ImageFont
    import PIL.ImageOps

    warnings.simplefilter("error", PIL.Image.DecompressionBombWarning)
    PIL.Image.MAX_IMAGE_PIXELS = _MOST_DRAFTED
    PIL.Image.preinit()
    av.logging.set_level(av.logging.PANIC)


def _open(job: Job, side: int = 0) -> Any:
    """Open a picture with the decoder of its type, and no other one.

    `side`: the longest side that is needed. The picture is made smaller first: 40 million pixels use 160 MB, each copy again.
    """
    from PIL import Image, ImageOps

    kind = _FORMATS.get(job.data["mime"])
    if kind is None:
        raise Refused(f"{job.data['mime']} is not a picture that can be decoded here")
    try:
        image = Image.open(io.BytesIO(job.blocks[0]), formats=[kind])
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise Refused(f"it states more than {_MOST_DRAFTED:,} pixels") from None
    job.data["size"] = image.size
    pixels = image.width * image.height
    if kind == "JPEG" and side:
        image.draft("RGB", (side, side))
    if image.width * image.height > _MOST_PIXELS or pixels > _MOST_DRAFTED:
        raise Refused(f"it has {job.data['size'][0]:,} x {job.data['size'][1]:,} pixels; the limit is {_MOST_PIXELS:,} in all")
    image.seek(0)
    if side and image.mode in ("RGB", "RGBA", "L"):
        image.thumbnail((side, side))
    wanted = "RGBA" if "transparency" in image.info or image.mode in ("RGBA", "LA", "PA") else "RGB"
    shown = image if image.mode == wanted else image.convert(wanted)
    del image
    if side:
        shown.thumbnail((side, side))
    ImageOps.exif_transpose(shown, in_place=True) if kind in ("JPEG", "WEBP", "TIFF") else None
    return shown


def _on_white(image: Any) -> Any:
    from PIL import Image

    if image.mode != "RGBA":
        return image if image.mode == "RGB" else image.convert("RGB")
    white = Image.new("RGB", image.size, "white")
    white.paste(image, mask=image.getchannel("A"))
    return white


def raster(job: Job) -> _Made:
    """Return the picture as RGB bytes, at most `side` pixels long, with the factor by which it was made smaller."""
    image = _on_white(_open(job, job.data["side"]))
    told = {"width": image.width, "height": image.height, "factor": max(job.data["size"]) / max(image.size)}
    return told, [image.tobytes()]


def fit(job: Job) -> _Made:
    """Return the picture as JPEG or PNG, at most `side` pixels long and `most` bytes large."""
    image = _open(job, job.data["side"])
    kind, made = ("PNG", _encode(image, "PNG")) if image.mode == "RGBA" else ("JPEG", _encode(image, "JPEG"))
    quality = 85
    while len(made) > job.data["most"]:
        kind, quality = "JPEG", quality - 15
        if quality < 30:
            quality = 70
            image.thumbnail((image.width * 2 // 3, image.height * 2 // 3))
        made = _encode(_on_white(image), "JPEG", quality)
    return {"mime": f"image/{kind.lower()}", "width": image.width, "height": image.height}, [made]


def describe(job: Job) -> _Made:
    """Return the size and the brightness of a picture: what can be said without a model that sees."""
    from PIL import ImageStat

    image = _on_white(_open(job, 256))
    stat = ImageStat.Stat(image)
    colours = image.quantize(4).convert("RGB").getcolors(65536) or []
    common = ["#{:02x}{:02x}{:02x}".format(*colour) for _, colour in sorted(colours, reverse=True)[:3]]
    brightness = sum(stat.mean) / 3 / 255
    width, height = job.data["size"]
    return {"width": width, "height": height, "brightness": round(brightness, 2), "colours": common}, []


def edit(job: Job) -> _Made:
    """Change a picture step by step, and return it encoded."""
    image, kind = _open(job), job.data.get("format") or _FORMATS[job.data["mime"]]
    for step in job.data["steps"]:
        try:
            image, kind = _edit(image, kind, dict(step), job.data.get("font"))
        except (KeyError, TypeError, ValueError) as problem:
            raise Refused(f"the step {step} is not complete or has a wrong value ({problem})") from None
        if image.width * image.height > _MOST_PIXELS:
            raise Refused(f"the result would have more than {_MOST_PIXELS:,} pixels")
    kind = {"JPG": "JPEG"}.get(kind.upper(), kind.upper())
    if kind not in {*_FORMATS.values()}:
        raise Refused(f"pictures cannot be written as {kind}")
    made = _encode(_on_white(image) if kind in ("JPEG", "BMP") else image, kind)
    return {"mime": f"image/{kind.lower()}", "width": image.width, "height": image.height}, [made]


def _edit(image: Any, kind: str, step: dict[str, Any], font: str | None) -> tuple[Any, str]:
    from PIL import ImageDraw, ImageOps

    match step.pop("do", ""):
        case "crop":
            return image.crop(tuple(_box(step["box"], image))), kind
        case "resize":
            return image.resize(_new_size(image, step.get("width"), step.get("height"))), kind
        case "rotate":
            return image.rotate(-float(step["degrees"]), expand=True, fillcolor="white"), kind
        case "flip":
            return (ImageOps.mirror if step.get("direction", "horizontal") == "horizontal" else ImageOps.flip)(image), kind
        case "grayscale":
            return ImageOps.grayscale(image).convert("RGB"), kind
        case "redact":
            draw = ImageDraw.Draw(image)
            for box in step.get("boxes") or [step["box"]]:
                draw.rectangle(_box(box, image), fill=step.get("color", "black"))
            return image, kind
        case "rectangle":
            draw = ImageDraw.Draw(image)
            draw.rectangle(_box(step["box"], image), outline=step.get("color", "red"), width=int(step.get("width", 3)))
            return image, kind
        case "text":
            _write(image, step, font)
            return image, kind
        case "convert":
            return image, str(step["format"])
        case other:
            raise Refused(f"there is no edit named {other!r}")


def _new_size(image: Any, width: Any, height: Any) -> tuple[int, int]:
    """Return the new size. A side that is not named keeps the proportions."""
    width = int(width or image.width * (height or image.height) / image.height)
    height = int(height or image.height * width / image.width)
    if not 0 < width <= 20_000 or not 0 < height <= 20_000 or width * height > _MOST_PIXELS:
        raise Refused("the new size must be between 1 and 20,000 pixels a side")
    return width, height


def _box(box: Any, image: Any) -> list[float]:
    left, top, right, bottom = [float(one) for one in box]
    if not 0 <= left < right <= image.width + 1 or not 0 <= top < bottom <= image.height + 1:
        raise Refused(f"the box {box} is not inside the picture of {image.width} x {image.height} pixels")
    return [left, top, right, bottom]


def _write(image: Any, step: dict[str, Any], font: str | None) -> None:
    from PIL import ImageDraw, ImageFont

    size = min(500.0, float(step.get("size", 24)))
    drawn = ImageFont.truetype(font, size) if font else ImageFont.load_default(size)
    place = (float(step.get("x", 10)), float(step.get("y", 10)))
    ImageDraw.Draw(image).text(place, str(step["text"])[:2000], font=drawn, fill=step.get("color", "red"))


def _encode(image: Any, kind: str, quality: int = 85) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **({"quality": quality} if kind in ("JPEG", "WEBP") else {}))
    return out.getvalue()


# --- sound and video ---


def _container(job: Job) -> Any:
    import av

    return av.open(io.BytesIO(job.blocks[0]), options={"protocol_whitelist": "pipe", "analyzeduration": "5000000"})


def sound(job: Job) -> _Made:
    """Return the sound of a file as 16-bit samples, one channel, 16 kHz."""
    import av

    longest, pieces, samples = job.data["longest"], [], 0
    with _container(job) as container:
        if not container.streams.audio:
            return {"seconds": 0.0, "silent": True}, [b""]
        resampler = av.AudioResampler(format="s16", layout="mono", rate=RATE)
        for frame in container.decode(container.streams.audio[0]):
            for part in resampler.resample(frame):
                piece = part.to_ndarray().tobytes()
                pieces.append(piece)
                samples += len(piece) // 2
            if samples > longest * RATE:
                raise Refused(f"it is longer than {longest:g} seconds")
    return {"seconds": samples / RATE, "silent": False}, [b"".join(pieces)]


def scenes(job: Job) -> _Made:
    """Return the starts of the scenes of a video, with a picture from the middle of each as JPEG."""
    import numpy as np

    longest, threshold = job.data["longest"], job.data.get("threshold", 18.0)
    found: list[dict[str, Any]] = []
    before: Any = None
    with _container(job) as container:
        stream = _pictures(container)
        of = float(container.duration or 0) / 1_000_000
        seconds = 0.0
        for seconds, frame in _sample(container, stream, job.data.get("rate", 5.0)):
            if seconds > longest:
                raise Refused(f"it is longer than {longest:g} seconds")
            small = frame.reformat(*_SMALL, "rgb24").to_ndarray().astype(np.int16)
            if before is None or float(np.abs(small - before).mean()) > threshold:
                found.append({"start": seconds, "frame": None, "taken": seconds})
                job.progress(seconds, of)
            if found[-1]["frame"] is None or seconds - found[-1]["start"] <= 1.0:  # one second in: after any transition
                found[-1] |= {"frame": frame, "taken": seconds}
            if len(found) > 1 and not isinstance(found[-2]["frame"], bytes):
                found[-2]["frame"] = _jpeg(found[-2]["frame"], job.data["side"])
            if len(found) > job.data["most"]:
                raise Refused(f"it has more than {job.data['most']} scenes")
            before = small
        if not found:
            raise Refused("it has no pictures that can be decoded")
        found[-1]["frame"] = _jpeg(found[-1]["frame"], job.data["side"])
    ends = [*[one["start"] for one in found[1:]], max(of, seconds)]
    told = [{"start": one["start"], "end": end, "taken": one["taken"]} for one, end in zip(found, ends, strict=True)]
    about = {"scenes": told, "seconds": ends[-1], "width": stream.width, "height": stream.height}
    return about, [one["frame"] for one in found]


def _pictures(container: Any) -> Any:
    """Return the stream with the pictures of a video."""
    if not container.streams.video:
        raise Refused("it has no pictures")
    stream = container.streams.video[0]
    if stream.codec_context.width * stream.codec_context.height > _MOST_PIXELS:
        raise Refused(f"its frames have more than {_MOST_PIXELS:,} pixels")
    return stream


def _sample(container: Any, stream: Any, rate: float) -> Iterator[tuple[float, Any]]:
    last = -1.0
    for frame in container.decode(stream):
        seconds = float(frame.time or 0.0)
        if last < 0 or seconds - last >= 1 / rate - 0.001:
            last = seconds
            yield seconds, frame


def _jpeg(frame: Any, side: int) -> bytes:
    image = frame.to_image()
    image.thumbnail((side, side))
    return _encode(image, "JPEG")


def pdf(job: Job) -> _Made:
    """Return the text of the first pages of a PDF file."""
    from pypdf import PdfReader

    pages, characters = [], 0
    for page in PdfReader(io.BytesIO(job.blocks[0])).pages:
        pages.append(page.extract_text())
        characters += len(pages[-1])
        if characters > 20_000 or len(pages) >= 50:
            break
    return {"text": "\n".join(pages)}, []


def identify(job: Job) -> _Made:
    """Identify the kind of a file, with a model that knows about 200 kinds."""
    from magika import Magika

    found = Magika().identify_bytes(job.blocks[0])
    known = found.ok and found.output.label not in ("unknown", "empty") and found.score > 0.9
    return {"mime": found.output.mime_type, "group": found.output.group, "sure": bool(known)}, []
