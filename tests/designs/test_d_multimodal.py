"""Design D, 3.12: pictures, sound and video in the document's names, for real, and as tools of an agent."""

from base64 import b64decode

import pytest

from kaname import Agent, ConfigError, Media, ScriptedModel, call
from kaname.core.messages import ModelReply, Usage, assistant
from kaname.designs import MultiModalProcessor
from kaname.kernel.bases import ModelBase
from kaname.senses.remote import TaskPrice
from kaname.senses.senses import Senses
from tests.senses.files import picture, sound, video
from tests.senses.test_remote import PNG, Server, remote


@pytest.fixture
async def processor():
    made = MultiModalProcessor()
    yield made
    await made.close()


@pytest.mark.requirement("D12")
async def test_d12_picture_is_read_described_and_changed_without_a_key(processor):
    page = picture("請求書 INV-2031", "Total 12,500 yen")
    read = await processor.process_image(page, "ocr")
    assert read.text.replace(" ", "") == "請求書INV-2031\nTotal12,500yen"
    described = await processor.process_image(page)  # as in the document: "describe" if nothing is said
    assert "900 x 160 pixels" in described.text
    assert "INV-2031" in described.text
    assert not described.sees
    assert "No model has looked at it" in described.text
    changed = await processor.process_image(
        page, "edit", steps=[{"do": "redact", "words": ["INV"]}, {"do": "convert", "format": "jpeg"}]
    )
    assert changed.media.mime == "image/jpeg"
    left = await processor.process_image(b64decode(changed.media.data), "ocr")
    assert "INV" not in left.text
    assert "12,500" in left.text


@pytest.mark.requirement("D12")
async def test_d12_picture_is_generated_by_a_provider_and_charged_to_the_run():
    answer = {"data": [{"b64_json": Media.of(PNG).data}]}
    async with Server((200, answer), (200, answer)) as server:
        processor = MultiModalProcessor(Senses(generate=remote(server, price=TaskPrice(picture=0.04))))
        made = await processor.process_image("a cat", "generate", size="512x512")
        assert made.media.mime == "image/png"
        agent = Agent(
            ScriptedModel([call("generate_picture", prompt="a cat"), "here it is"]), processor.tools, journal="memory"
        )
        result = await agent.run("draw a cat")
        await processor.close()
    assert result.usage.cost == pytest.approx(0.04)
    (drawn,) = [one for one in result.state.results.values() if one.media]
    assert drawn.media[0].data == Media.of(PNG).data


@pytest.mark.requirement("D12")
async def test_d12_multimodal_model_describes_what_it_sees():
    class Sees(ModelBase):
        name = "sees"

        async def reply(self, request, emit):
            return ModelReply(assistant(f"{len(request.messages[0].parts) - 1} picture"), "end_turn", Usage(cost=0.01))

    described = await MultiModalProcessor(model=Sees()).process_image(PNG)
    assert (described.text, described.sees, described.usage.cost) == ("1 picture", True, 0.01)


@pytest.mark.nightly
@pytest.mark.requirement("D12")
async def test_d12_speech_is_synthesized_transcribed_and_captioned(processor, hearing):
    said = "The meeting starts at ten o'clock on Friday."
    spoken = await processor.process_audio(said, "synthesize", language="en")
    assert spoken.media.mime == "audio/wav"
    heard = await processor.process_audio(b64decode(spoken.media.data))  # "transcribe" if nothing is said
    assert heard.language == "en"
    assert "meeting starts" in heard.text
    (turn,) = await processor.process_audio(b64decode(spoken.media.data), "speakers")
    assert turn.speaker == "speaker 1"
    film = video([(4.0, "Agenda", "navy")], speech=b64decode(spoken.media.data))
    captions = await processor.process_video(film, "caption", form="vtt")
    assert captions.startswith("WEBVTT\n\n1\n00:00:00.")
    summary = await processor.process_video(film)  # "summarize" if nothing is said
    assert "Agenda" in summary.text
    assert "meeting" in summary.text


@pytest.mark.requirement("D12")
async def test_d12_task_that_does_not_exist_is_refused_with_the_nearest_name(processor):
    for work, known in (
        (processor.process_image, "ocr"),
        (processor.process_audio, "transcribe"),
        (processor.process_video, "caption"),
    ):
        with pytest.raises(ConfigError, match=f"there is no task.*{known}"):
            await work(sound(0.1), known[:-1] + "x")


@pytest.mark.nightly
@pytest.mark.requirement("D12")
async def test_d12_agent_reads_a_picture_of_the_conversation_by_itself(processor):
    model = ScriptedModel([call("read_text", file="bill.png"), "12,500 yen"])
    agent = Agent(model, processor.tools, journal="memory")
    result = await agent.run(["How much is it?", Media.of(picture("Total 12,500 yen"), name="bill.png")])
    (read,) = result.state.results.values()
    assert "12,500" in read.output
    assert {tool.name for tool in processor.tools} >= {"read_text", "describe_picture", "transcribe", "speak", "caption_video"}
    assert "generate_picture" not in {tool.name for tool in processor.tools}  # it has no provider
