"""Error rates of the local senses, on files that are made here: rendered text, synthesised speech, a video.

python benchmarks/senses.py             # all, some minutes
python benchmarks/senses.py ocr         # one: ocr, speech, captions, voices

The character error rate is the edit distance to the text over its length, without spaces and punctuation. Tesseract is
measured next to it where it is installed.
"""

from __future__ import annotations

import asyncio
import io
import re
import shutil
import subprocess
import sys
import time
import unicodedata
import wave
from base64 import b64decode
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.senses.files import picture, video

from kaname import Media
from kaname.senses.senses import Senses

ENGLISH = (
    "The invoice of March was paid in full on Tuesday.",
    "Please send two copies of the signed contract to our office.",
    "Water boils at a lower temperature on high mountains.",
    "Our train leaves at seven and arrives before noon.",
)
JAPANESE = (
    "三月の請求書は火曜日に全額支払われました。",
    "署名した契約書を二部、事務所に送ってください。",
    "高い山の上では水は低い温度で沸騰します。",
    "電車は七時に出発し、正午前に到着します。",
)
SPOKEN = (
    *JAPANESE,
    "来週の水曜日に新しい図書館が開館します。",
    "駅前の喫茶店で友人と昼食を食べました。",
    "この薬は一日三回、食後に飲んでください。",
    "天気予報によると、明日は午後から雨が降るそうです。",
    "会社の売上は去年より二割増えました。",
    "子供たちは公園で元気に遊んでいます。",
    "荷物は金曜日までに届く予定です。",
    "彼は大学で経済学を勉強しています。",
)
CONDITIONS = {
    "clean, 28 px": {"size": 28},
    "small, 16 px": {"size": 16},
    "large, 44 px": {"size": 44, "width": 1400},
    "noise": {"size": 28, "noise": 25},
    "white on blue": {"size": 28, "background": "#204080", "fill": "white"},
    "JPEG": {"size": 28, "fmt": "JPEG"},
}


_NUMERALS = str.maketrans("一二三四五六七八九", "123456789")


def plain(text: str) -> str:
    """Return the characters that count. 三月 and 3月 are the same: speech does not tell how a number is written."""
    return re.sub(r"[\W_]", "", unicodedata.normalize("NFKC", text).lower()).translate(_NUMERALS)


def distance(one: str, other: str) -> int:
    row = list(range(len(other) + 1))
    for a, left in enumerate(one, 1):
        before, row[0] = row[0], a
        for b, right in enumerate(other, 1):
            before, row[b] = row[b], min(row[b] + 1, row[b - 1] + 1, before + (left != right))
    return row[-1]


def rate(wanted: str, found: str) -> float:
    return distance(plain(wanted), plain(found)) / max(1, len(plain(wanted)))


def tesseract(content: bytes, language: str) -> str:
    command = ["tesseract", "-", "-", "-l", language, "--psm", "6"]
    return subprocess.run(command, input=content, capture_output=True, check=False).stdout.decode()


async def ocr(senses: Senses) -> None:
    beside = shutil.which("tesseract") is not None
    for language, lines in (("eng", ENGLISH), ("jpn", JAPANESE)):
        for name, how in CONDITIONS.items():
            content = picture(*lines, **how)
            started = time.perf_counter()
            found = (await senses.read(content)).text
            lasted = time.perf_counter() - started
            other = f"   tesseract {rate(''.join(lines), tesseract(content, language)):6.1%}" if beside else ""
            print(f"ocr {language} {name:<16} {rate(''.join(lines), found):6.1%}  {lasted:5.1f} s{other}", flush=True)


async def speech(senses: Senses) -> None:
    for language, voice, lines in (("en", "", ENGLISH), ("ja", "jf_alpha", SPOKEN), ("ja", "jm_kumo", SPOKEN)):
        gap = " " if language == "en" else ""
        found, lasted, seconds = "", 0.0, 0.0
        for at in range(0, len(lines), 4):
            spoken = await senses.speak(gap.join(lines[at : at + 4]), language, voice)
            started = time.perf_counter()
            heard = await senses.transcribe(spoken.media, language)
            found, lasted, seconds = found + heard.text, lasted + time.perf_counter() - started, seconds + heard.seconds
        more = f", words {word_rate(' '.join(lines), found):6.1%}" if language == "en" else reading_rate("".join(lines), found)
        print(
            f"speech {language} {voice}: characters {rate(''.join(lines), found):6.1%}{more}; {seconds:.0f} s in {lasted:.0f} s"
        )
        print(f"   {found}", flush=True)


def reading_rate(wanted: str, found: str) -> str:
    """Return the error rate of the readings: a homophone such as 成球所 for 請求書 is misspelled, not misheard."""
    from pyopenjtalk import g2p

    return f", readings {rate(g2p(wanted, kana=True), g2p(found, kana=True)):6.1%}"


def word_rate(wanted: str, found: str) -> float:
    one, other = ([plain(word) for word in text.split()] for text in (wanted, found))
    codes = {word: chr(0x4E00 + n) for n, word in enumerate(dict.fromkeys([*one, *other]))}
    return distance("".join([codes[w] for w in one]), "".join([codes[w] for w in other])) / len(one)


def joined(*sounds: bytes, gap: float = 1.0) -> tuple[bytes, list[tuple[float, float]]]:
    """Return the sounds one after the other, at 16 kHz, and where each begins and ends."""
    import av
    import numpy

    pieces, times, at = [], [], 0.5
    pieces.append(numpy.zeros(8000, "int16"))
    for one in sounds:
        with av.open(io.BytesIO(one)) as given:
            resampler = av.AudioResampler(format="s16", layout="mono", rate=16_000)
            samples = numpy.concatenate(
                [part.to_ndarray()[0] for frame in given.decode(audio=0) for part in resampler.resample(frame)]
            )
        times.append((at, at + len(samples) / 16_000))
        pieces += [samples, numpy.zeros(int(gap * 16_000), "int16")]
        at = times[-1][1] + gap
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes(numpy.concatenate(pieces).tobytes())
    return out.getvalue(), times


async def captions(senses: Senses) -> None:
    spoken = [b64decode((await senses.speak(line, "en")).media.data) for line in ENGLISH]
    sound, times = joined(*spoken)
    shown = [
        (end - start + 1.0, f"scene {n}", colour)
        for n, ((start, end), colour) in enumerate(zip(times, ("navy", "darkred", "darkgreen", "purple"), strict=True))
    ]
    found = (await senses.transcribe(Media.of(video(shown, speech=sound), "video/mp4"), "en")).sentences
    off = [min(abs(one.start - start) for one in found) for start, _ in times]
    late = [min(abs(one.end - end) for one in found) for _, end in times]
    print(f"captions: starts off by at most {max(off):.2f} s, ends by at most {max(late):.2f} s", flush=True)
    scenes = await senses.scenes(Media.of(video(shown, speech=sound), "video/mp4"))
    print(f"scenes: {len(scenes)} of {len(shown)} found, starts {[one.start for one in scenes]}")


async def voices(senses: Senses) -> None:
    """Two voices take turns: how much of the time is given to the wrong one."""
    pairs = {"woman, man": ("jf_alpha", "jm_kumo"), "two women": ("jf_alpha", "jf_tebukuro")}
    for name, both in pairs.items():
        spoken = [b64decode((await senses.speak(line, "ja", both[n % 2])).media.data) for n, line in enumerate(JAPANESE)]
        sound, times = joined(*spoken, gap=0.6)
        for count in (2, 0):
            turns = await senses.speakers(sound, count)
            shares: dict[tuple[int, str], float] = {}
            for turn in turns:
                for n, (start, end) in enumerate(times):
                    key = (n % 2, turn.speaker)
                    shares[key] = shares.get(key, 0.0) + max(0.0, min(end, turn.end) - max(start, turn.start))
            names = sorted({speaker for _, speaker in shares})
            best = max(
                [sum(shares.get((n, names[m]), 0.0) for n, m in enumerate(order)) for order in orders(len(names))], default=0.0
            )
            wrong = 1 - best / max(0.01, sum(shares.values()))
            print(
                f"voices, {name}, {'number known' if count else 'number unknown'}: {wrong:5.1%} of the time wrong, {len(names)} found",
                flush=True,
            )


def orders(count: int) -> list[tuple[int, ...]]:
    return [(a, b) for a in range(count) for b in range(count) if a != b] or [(0,)]


async def main() -> None:
    every = {"ocr": ocr, "speech": speech, "captions": captions, "voices": voices}
    senses = Senses()
    for name in sys.argv[1:] or every:
        await every[name](senses)
    await senses.close()


if __name__ == "__main__":
    asyncio.run(main())
