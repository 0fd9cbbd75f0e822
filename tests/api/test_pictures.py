"""Pictures and files in a question, as the providers' servers get them."""

from base64 import b64decode

import pytest

from kaname import Agent, Media
from kaname.models import Anthropic, OpenAI
from kaname.testing.wire import WireServer, anthropic_reply, reply

DOT = b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")


@pytest.fixture
def dot(tmp_path):
    (tmp_path / "dot.png").write_bytes(DOT)
    return tmp_path / "dot.png"


@pytest.mark.parametrize(("model", "answer"), [(OpenAI, reply), (Anthropic, anthropic_reply)])
async def test_picture_of_a_file_reaches_the_server(model, answer, dot):
    async with WireServer([answer("One dot.")]) as server:
        async with Agent(model("some-model", base_url=server.url, api_key="none"), journal="memory") as agent:
            result = await agent.run(["What is on it?", Media.file(dot)])
        assert result.output == "One dot."
        text, picture = server.requests[0]["messages"][0]["content"]
    assert text == {"type": "text", "text": "What is on it?"}
    assert dot.read_bytes() == b64decode(str(picture).split("base64,")[-1].split("'data': '")[-1].split("'")[0])
    (run,) = await agent.journal.runs()
    assert run.title == "What is on it?"


def test_file_says_what_it_is_by_its_content_or_its_name_or_is_told(dot, tmp_path):
    assert (Media.file(dot).mime, Media.file(dot).name) == ("image/png", "dot.png")
    (tmp_path / "scan").write_bytes(b"%PDF-1.7")
    assert Media.file(tmp_path / "scan").mime == "application/pdf"
    (tmp_path / "data").write_bytes(b"\0\1\2")
    assert Media.file(tmp_path / "data").mime == "application/octet-stream"
    assert Media.file(str(tmp_path / "scan"), "application/pdf").mime == "application/pdf"
    with pytest.raises(FileNotFoundError):
        Media.file(tmp_path / "nothing.png")
