"""Read the text in a picture (OCR) with RapidOCR: English, Japanese and Chinese."""

from __future__ import annotations

from typing import Any

from ..process.child import Job

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
    """Return the lines of a picture that `decoding.raster` made, with their boxes and how sure the reader is of them."""
    import numpy as np

    width, height, factor = job.data["width"], job.data["height"], job.data["factor"]
    pixels = np.frombuffer(job.blocks[0], np.uint8).reshape(height, width, 3)
    found = _engine(np.ascontiguousarray(pixels[:, :, ::-1]))  # it wants blue first
    lines = []
    boxes = found.boxes if found.boxes is not None else ()
    for box, words, score in zip(boxes, found.txts or (), found.scores or (), strict=True):
        xs, ys = [float(x) * factor for x, _ in box], [float(y) * factor for _, y in box]
        lines.append({"text": words, "box": [min(xs), min(ys), max(xs), max(ys)], "score": round(float(score), 3)})
    return {"lines": lines}, []
