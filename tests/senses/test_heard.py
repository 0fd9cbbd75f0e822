"""Speech that is spoken here is heard here, in a video too, and two voices are told apart."""

from base64 import b64decode

from benchmarks.senses import ENGLISH, JAPANESE, joined, rate, word_rate

from kaname import Media
from kaname.senses.captions import captions
from kaname.senses.senses import Senses

from .files import video


async def test_speech_is_written_down_and_captions_are_in_time(hearing):
    senses = Senses()
    spoken = [b64decode((await senses.speak(line, "en")).media.data) for line in ENGLISH[:3]]
    sound, times = joined(*spoken)
    shown = [
        (end - start + 1.0, "scene", colour) for (start, end), colour in zip(times, ("navy", "darkred", "purple"), strict=True)
    ]
    heard = await senses.transcribe(Media.of(video(shown, speech=sound), "video/mp4"), "en")
    await senses.close()
    assert word_rate(" ".join(ENGLISH[:3]), heard.text) <= 0.15
    for start, _ in times:
        assert min(abs(one.start - start) for one in heard.sentences) <= 0.5
    assert captions(heard.sentences).count("-->") >= 3


async def test_japanese_is_heard_with_more_errors_than_english_as_the_docs_say(hearing):
    senses = Senses()
    spoken = await senses.speak("".join(JAPANESE), "ja")
    heard = await senses.transcribe(spoken.media, "ja")
    await senses.close()
    assert heard.language == "ja"
    assert rate("".join(JAPANESE), heard.text) <= 0.25


async def test_a_woman_and_a_man_are_told_apart(hearing):
    senses = Senses()
    voices = ["jf_alpha", "jm_kumo", "jf_alpha"]
    spoken = [
        b64decode((await senses.speak(line, "ja", voice)).media.data) for line, voice in zip(JAPANESE, voices, strict=False)
    ]
    sound, times = joined(*spoken, gap=0.6)
    turns = await senses.speakers(sound, 2)
    await senses.close()
    names = [max(turns, key=lambda turn, at=at: min(at[1], turn.end) - max(at[0], turn.start)).speaker for at in times]
    assert names == ["speaker 1", "speaker 2", "speaker 1"]
