"""`kaname models`: what can think here, and the local one fetched."""

from __future__ import annotations

import argparse
import os
from importlib.util import find_spec

from ..core.install import install_command, this_command
from ..models.compatible import SERVERS, with_keys
from ..models.local import weights
from .agent import pull
from .main import DONE
from .messages import say
from .model_servers import nearby
from .terminal.screen import Bar, Screen, padded


def main(given: argparse.Namespace) -> int:
    screen = Screen()
    if given.action == "pull":
        there = weights.folder() / weights.FILE
        bar = Bar(screen, say("checking", "検査中"))
        if given.again or not weights.sound(there, check=given.check, checking=bar.show):
            pull(screen, given.source, again=given.again or given.check)
        else:
            screen.note(say(f"already here: {there}", f"すでにあります: {there}"), "green")
        return DONE
    for name, state in rows():
        screen.say(f"{padded(name, 18)} {state}")
    return DONE


def rows() -> list[tuple[str, str]]:
    there = weights.present()
    local = str(there) if there else say("not fetched", "未取得") + f": {this_command()} models pull (1.1 GB)"
    if find_spec("xllamacpp") is None:
        local += say("; llama.cpp is missing: ", "; llama.cpp がありません: ") + install_command("local")
    other = say("installed", "導入済み") if find_spec("litellm") else install_command("litellm")
    count = len({server.address for server in SERVERS.values()})
    return [
        ("local", local),
        ("local/FILE.gguf", say("any model file for llama.cpp", "llama.cpp のモデルファイル")),
        ("openai/NAME", _key("OPENAI_API_KEY", "OPENAI_BASE_URL")),
        ("anthropic/NAME", _key("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL")),
        *[(f"{name}/NAME", f"{server.variable} {say('is set', '設定済み')}") for name, server in with_keys().items()],
        (
            "groq/NAME, …",
            say(
                f"{count} providers that speak OpenAI's protocol; set their keys (GROQ_API_KEY, MISTRAL_API_KEY, …)",
                f"OpenAI 互換の {count} のプロバイダー。各社のキー (GROQ_API_KEY、MISTRAL_API_KEY など) を設定します",
            ),
        ),
        ("PROVIDER/NAME", f"LiteLLM: {other}"),
        *[
            (one.server, f"OPENAI_BASE_URL={one.address}, --model openai/{', openai/'.join(one.models[:3])}")
            for one in nearby()
        ],
    ]


def _key(key: str, address: str) -> str:
    where = os.environ.get(address)
    is_set = say("is set", "設定済み") if os.environ.get(key) else say("is not set", "未設定")
    return f"{key} {is_set}" + (f", {address}={where}" if where else "")
