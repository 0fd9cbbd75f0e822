"""Tell voices apart by their pitch and timbre. Small means: for a few speakers who do not speak at once."""

from __future__ import annotations

from typing import Any

from ..process.child import Job
from .hearing import speech_parts

_RATE, _FRAME, _HOP, _BANDS = 16_000, 512, 160, 26


def load(opening: dict[str, Any]) -> None:
    import faster_whisper.vad
    import numpy  # noqa: F401

    assert faster_whisper.vad


def separate(job: Job) -> tuple[dict[str, Any], list[bytes]]:
    """Return the times at which each voice speaks. `count`: the number of voices, or 0 to detect it."""
    import numpy as np

    samples = np.frombuffer(job.blocks[0], np.int16).astype(np.float32) / 32768
    parts = [(start, end) for start, end in speech_parts(job.blocks[0]) if end - start >= 0.4]
    if not parts:
        return {"turns": []}, []
    pieces = [piece for start, end in parts for piece in _pieces(start, end)]
    voices = np.array([_voice(samples[int(start * _RATE) : int(end * _RATE)]) for start, end in pieces])
    scaled = (voices - voices.mean(0)) / (voices.std(0) + 1e-6) if len(pieces) > 1 else voices * 0
    names = _cluster(scaled, voices[:, 0], job.data.get("count", 0))
    turns: list[dict[str, Any]] = []
    for (start, end), name in zip(pieces, names, strict=True):
        if turns and turns[-1]["speaker"] == name and start - turns[-1]["end"] < 1.0:
            turns[-1]["end"] = round(end, 2)
        else:
            turns.append({"start": round(start, 2), "end": round(end, 2), "speaker": name})
    return {"turns": turns}, []


def _pieces(start: float, end: float) -> list[tuple[float, float]]:
    count = max(1, round((end - start) / 2.0))
    step = (end - start) / count
    return [(start + n * step, start + (n + 1) * step) for n in range(count)]


def _voice(samples: Any) -> Any:
    """Return the pitch (in octaves, weighted) and the mean cepstrum of a piece of speech."""
    import numpy as np

    count = 1 + max(0, len(samples) - _FRAME) // _HOP
    padded = np.pad(samples, (0, max(0, _FRAME - len(samples))))
    frames = np.stack([padded[n * _HOP : n * _HOP + _FRAME] for n in range(count)]) * np.hanning(_FRAME)
    power = np.abs(np.fft.rfft(frames, axis=1)) ** 2
    loud = power.sum(1) > np.percentile(power.sum(1), 40)
    mel = np.log(power[loud] @ _filters().T + 1e-8)
    basis = np.cos(np.pi / _BANDS * (np.arange(_BANDS) + 0.5)[None, :] * np.arange(1, 13)[:, None])
    cepstrum = (mel @ basis.T).mean(0) / 10
    pitch = [found for frame in _long_frames(samples) if (found := _pitch(frame))]
    return np.array([4 * np.log2(np.median(pitch) / 100) if pitch else 0.0, *cepstrum])


def _long_frames(samples: Any) -> list[Any]:
    return [samples[at : at + 1024] for at in range(0, len(samples) - 1024, 512)]


def _pitch(frame: Any) -> float:
    """Return the pitch of a frame in Hz by autocorrelation, 0 if it has none."""
    import numpy as np

    frame = frame - frame.mean()
    same = np.correlate(frame, frame, "full")[len(frame) - 1 :]
    low, high = _RATE // 400, _RATE // 70
    if same[0] <= 0:
        return 0.0
    at = low + int(np.argmax(same[low:high]))
    return _RATE / at if same[at] > 0.4 * same[0] else 0.0


def _filters() -> Any:
    import numpy as np

    edges = 700 * (10 ** (np.linspace(0, 2595 * np.log10(1 + 8000 / 700), _BANDS + 2) / 2595) - 1)
    bins = np.floor((_FRAME + 1) * edges / _RATE).astype(int)
    made = np.zeros((_BANDS, _FRAME // 2 + 1))
    for band in range(_BANDS):
        left, middle, right = bins[band : band + 3]
        made[band, left:middle] = (np.arange(left, middle) - left) / max(1, middle - left)
        made[band, middle:right] = (right - np.arange(middle, right)) / max(1, right - middle)
    return made


def _cluster(voices: Any, pitch: Any, count: int) -> list[str]:
    """Join the most similar groups until `count` are left, or until the next two differ clearly."""
    import numpy as np

    weights = np.ones(voices.shape[1])
    weights[0] = 3.0  # the pitch tells most
    points = voices * weights
    groups = [[n] for n in range(len(points))]
    while len(groups) > max(1, count):
        pairs = [(a, b) for a in range(len(groups)) for b in range(a)]
        distances = [float(np.linalg.norm(points[groups[a]].mean(0) - points[groups[b]].mean(0))) for a, b in pairs]
        best = int(np.argmin(distances))
        a, b = pairs[best]
        apart = abs(float(np.median(pitch[groups[a]]) - np.median(pitch[groups[b]])))
        if not count and distances[best] > 5.5 and apart > 1.0:
            break
        groups[b] += groups.pop(a)
    order = sorted(groups, key=min)
    names = {piece: f"speaker {number}" for number, group in enumerate(order, 1) for piece in group}
    return [names[piece] for piece in range(len(points))]
