"""`kaname models`: list the models that can be used, and fetch the local one."""

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
from .terminal.screen import Bar, Screen, pad


def main(args: argparse.Namespace) -> int:
    screen = Screen()
    if args.action == "pull" and args.what == "senses":
        return _pull_senses(screen, again=args.again)
    if args.action == "pull":
        there = weights.folder() / weights.FILE
        bar = Bar(screen, say("checking", "検査中"))
        if args.again or not weights.is_sound(there, check=args.check, checking=bar.show):
            pull(screen, args.source, again=args.again or args.check)
        else:
            screen.tell(f"already downloaded: {there}", f"取得済みです: {there}", colour="green")
        return DONE
    for name, state in rows():
        screen.say(f"{pad(name, 18)} {state}")
    return DONE


def _pull_senses(screen: Screen, *, again: bool) -> int:
    from ..senses.weights import BUNDLES, pull_bundle

    for bundle in BUNDLES:
        place = pull_bundle(bundle, Bar(screen, say(f"fetching {bundle.name}", f"{bundle.name} を取得中")).show, again=again)
        screen.replace("")
        screen.tell(f"ready: {place}", f"準備ができました: {place}", colour="green")
    return DONE


def rows() -> list[tuple[str, str]]:
    there = weights.find_weights()
    local = str(there) if there else say("not downloaded", "未取得") + f": {this_command()} models pull (1.1 GB)"
    if find_spec("xllamacpp") is None:
        local += say("; llama.cpp is not installed: ", "; llama.cpp がインストールされていません: ") + install_command("local")
    other = say("installed", "インストール済み") if find_spec("litellm") else install_command("litellm")
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
                f"{count} providers with an OpenAI-compatible API; set their keys (GROQ_API_KEY, …)",
                f"OpenAI 互換のプロバイダー {count} 社。各社のキー (GROQ_API_KEY など) を設定します",
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
