"""Speech that is spoken here is heard here, in a video too, and two voices are told apart."""

from base64 import b64decode

import pytest
import pytest_asyncio
from benchmarks.senses import ENGLISH, JAPANESE, joined, rate, word_rate

from kaname import Media
from kaname.senses.captions import captions
from kaname.senses.senses import Senses
from tests.properties import nightly

from .files import video

pytestmark = pytest.mark.asyncio(loop_scope="module")  # the models, which take seconds to load, are those of an event loop


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def senses(hearing):
    made = Senses()
    yield made
    await made.close()


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def conversation(senses):
    """Three sentences of a woman, a man and the woman, and when each is said."""
    voices = ["jf_alpha", "jm_kumo", "jf_alpha"]
    spoken = [
        b64decode((await senses.speak(line, "ja", voice)).media.data) for line, voice in zip(JAPANESE, voices, strict=False)
    ]
    return joined(*spoken, gap=0.6)


@pytest.mark.parametrize("sentences", [1, *nightly(3)])
async def test_speech_is_written_down_and_captions_are_in_time(senses, sentences):
    spoken = [b64decode((await senses.speak(line, "en")).media.data) for line in ENGLISH[:sentences]]
    sound, times = joined(*spoken)
    shown = [
        (end - start + 1.0, "scene", colour) for (start, end), colour in zip(times, ("navy", "darkred", "purple"), strict=False)
    ]
    heard = await senses.transcribe(Media.of(video(shown, speech=sound), "video/mp4"), "en")
    assert word_rate(" ".join(ENGLISH[:sentences]), heard.text) <= 0.15
    for start, _ in times:
        assert min(abs(one.start - start) for one in heard.sentences) <= 0.5
    assert captions(heard.sentences).count("-->") >= sentences


@pytest.mark.nightly
async def test_japanese_is_heard_with_more_errors_than_english_as_the_docs_say(senses, conversation):
    heard = await senses.transcribe(Media.of(conversation[0], "audio/wav"), "ja")
    assert heard.language == "ja"
    assert rate("".join(JAPANESE[:3]), heard.text) <= 0.25


@pytest.mark.nightly
async def test_a_woman_and_a_man_are_told_apart(senses, conversation):
    sound, times = conversation
    turns = await senses.speakers(sound, 2)
    names = [max(turns, key=lambda turn, at=at: min(at[1], turn.end) - max(at[0], turn.start)).speaker for at in times]
    assert names == ["speaker 1", "speaker 2", "speaker 1"]
