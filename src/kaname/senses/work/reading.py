"""Read the text in a picture (OCR) with RapidOCR: English, Japanese and Chinese."""

from __future__ import annotations

from typing import Any

from ..process.child import Job

_GOOD, _FAIR, _BETTER = 0.9, 0.85, 0.05  # scores of a reading: need no second look, can be believed, is clearly better
_engine: Any = None


def load(opening: dict[str, Any]) -> None:
    global _engine
    import logging

    from rapidocr import RapidOCR

    logging.disable(logging.WARNING)
    _engine = RapidOCR(
        params={
            "Global.log_level": "error",
            "Global.use_cls": False,
            "Det.limit_type": "max",
            "Det.limit_side_len": 1600,
            "EngineConfig.onnxruntime.intra_op_num_threads": opening.get("threads", 2),
        }
    )


def text(job: Job) -> tuple[dict[str, Any], list[bytes]]:
    """Return the lines of a picture that `decoding.raster` made, with their boxes and how sure the reader is of them.

    The reader turns lines that run from top to bottom by itself, but reads lines that stand on their head as nonsense, with low
    scores. So a picture with low scores is read again upside down, and the better reading counts. `turned`: by how many
    degrees the picture must be turned clockwise to stand upright. `sure`: False if the reading may be wrong or out of order.
    """
    import numpy as np

    width, height, factor = job.data["width"], job.data["height"], job.data["factor"]
    pixels = np.frombuffer(job.blocks[0], np.uint8).reshape(height, width, 3)[:, :, ::-1]  # it wants blue first
    lines, turned = _read(np.ascontiguousarray(pixels)), 0
    if _score(lines) < _GOOD:
        other = _read(np.ascontiguousarray(pixels[::-1, ::-1]))
        if _score(other) > max(_score(lines) + _BETTER, _FAIR) and _length(other) >= _length(lines) / 2:
            lines = [{**one, "box": _upside_down(one["box"], width, height)} for one in other]
            turned = 180
    upright = [one for one in lines if not _is_tall(one)]
    tall = _length(upright) < _length(lines) / 2
    turned = (turned + 270) % 360 if tall else turned
    vertical = tall and any(map(_is_east_asian, "".join([one["text"] for one in lines])))
    sure = not vertical and (not lines or _score(lines) >= _FAIR)
    found = [{**one, "box": [side * factor for side in one["box"]]} for one in lines]
    return {"lines": found, "turned": turned, "sure": sure}, []


def _is_east_asian(char: str) -> bool:
    return "\u3040" <= char <= "\u30ff" or "\u4e00" <= char <= "\u9fff"


def _read(pixels: Any) -> list[dict[str, Any]]:
    found = _engine(pixels)
    lines = []
    boxes = found.boxes if found.boxes is not None else ()
    for box, words, score in zip(boxes, found.txts or (), found.scores or (), strict=True):
        xs, ys = [float(x) for x, _ in box], [float(y) for _, y in box]
        lines.append({"text": words, "box": [min(xs), min(ys), max(xs), max(ys)], "score": round(float(score), 3)})
    return lines


def _length(lines: list[dict[str, Any]]) -> int:
    return sum([len(one["text"]) for one in lines])


def _score(lines: list[dict[str, Any]]) -> float:
    """Return the average confidence of the reader, weighted by characters."""
    return float(sum([one["score"] * len(one["text"]) for one in lines])) / max(1, _length(lines))


def _is_tall(line: dict[str, Any]) -> bool:
    left, top, right, bottom = line["box"]
    return len(line["text"]) > 1 and bottom - top > 1.5 * (right - left)


def _upside_down(box: list[float], width: int, height: int) -> list[float]:
    left, top, right, bottom = box
    return [width - right, height - bottom, width - left, height - top]
