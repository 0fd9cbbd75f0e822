"""Every adapter for a server keeps the same promises. LiteLLM hides some of what happens on the wire; what it hides is named here."""

import asyncio
import os
import subprocess
import sys

import pytest

from kaname.core.record import replace
from kaname.models import Anthropic, LiteLLM, OpenAI, OpenAIResponses
from kaname.models.registry import maker
from kaname.testing import WireContract, WireServer
from kaname.testing.wire import anthropic_reply, reply, responses_reply
from tests import warm
from tests.properties import nightly

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")


class TestOpenAI(WireContract):
    def make(self, url):
        return OpenAI("any", base_url=url, api_key=self.key)


class TestCompatible(WireContract):
    def make(self, url):
        return maker("mistral")("any", base_url=url, api_key=self.key)


class TestAnthropic(WireContract):
    protocol = "anthropic"

    def make(self, url):
        return Anthropic("any", base_url=url, api_key=self.key)


class TestOpenAIResponses(WireContract):
    protocol = "responses"

    def make(self, url):
        return OpenAIResponses("any", base_url=url, api_key=self.key)


@pytest.mark.nightly
class TestLiteLLMToOpenAI(WireContract):
    hidden = frozenset({"half a JSON", "dropped", "overloaded"})
    unseen = frozenset({"unfinished"})

    def make(self, url):
        return LiteLLM("openai/any", base_url=url, api_key=self.key)


class TestLiteLLMToAnthropic(WireContract):
    protocol = "anthropic"
    hidden = frozenset({"half a JSON", "dropped", "overloaded", "too large"})
    unseen = frozenset({"unfinished"})

    def make(self, url):
        return LiteLLM("anthropic/any", base_url=url.removesuffix("/v1"), api_key=self.key)


def script(protocol):
    """Three requests: a call of the tool after some thought, then words, then the answer in its form."""

    def answer(body):
        said = {"openai": reply, "anthropic": anthropic_reply, "responses": responses_reply}[protocol]
        text = str(body.get("messages") or body["input"])
        if "response_format" in body or "text" in body or "'name': 'answer'" in str(body.get("tool_choice")):
            return said(calls=[("answer", {"total": 3})]) if protocol == "anthropic" else said('{"total": 3}')
        if "tool_result" in text or "'role': 'tool'" in text or "function_call_output" in text:
            return said("もう少しです", thinking="ふむ")
        return said("見てみます", [("add", {"a": 1, "b": 2})], thinking="まず足す")

    return answer


async def life(protocol, server, journal, run, kill_at=None):
    """One process. With `kill_at` it gets SIGKILL when the server has its request of that number in hand."""
    here = len(server.requests)
    command = [sys.executable, "-m", "tests.crash_agents.served", protocol, server.url, str(journal), run]
    process = warm.Popen(command, stdout=subprocess.PIPE, text=True)
    if kill_at is not None:
        async with asyncio.timeout(60):
            while len(server.requests) - here < kill_at and process.poll() is None:
                await asyncio.sleep(0.005)
        process.kill()
    out, _ = await asyncio.to_thread(process.communicate)
    return out


@pytest.mark.parametrize("protocol", ["anthropic", *nightly("openai", "responses")])
async def test_after_a_kill_the_requests_are_the_same_to_the_byte(protocol, tmp_path):
    async with WireServer(script(protocol)) as server:
        assert "output 3" in await life(protocol, server, tmp_path / "calm.db", "-")
    calm = server.raw
    assert len(calm) == 3
    assert "iVBORw0KGgouLg==" in str(calm[0])
    assert "まず足す".encode() in calm[1] or protocol == "openai", "thought goes back to the one who signed it"
    for kill_at in (1, 2, 3):
        answers, left = script(protocol), iter([0.0] * (kill_at - 1) + [5.0] + [0.0] * 9)
        async with WireServer(lambda body: replace(answers(body), delay=next(left))) as server:
            journal = tmp_path / f"killed-{kill_at}.db"
            assert "output" not in await life(protocol, server, journal, "-", kill_at)
            assert "output 3" in await life(protocol, server, journal, "the-run")
        assert server.raw[:kill_at] == calm[:kill_at]
        assert server.raw[kill_at:] == calm[kill_at - 1 :], "the request after the resume, and all that follow"
