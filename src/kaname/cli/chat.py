"""`kaname chat`: a conversation. Ctrl-C ends the run and not the conversation, which the journal keeps."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..api.agent import Agent
from ..api.begin import new_run_id
from ..core.errors import AgentError, nearest
from ..core.language import say
from .main import DONE
from .markdown import Markdown
from .run import ask_the_user
from .screen import Screen
from .setting_up import agent_from
from .show import Show

_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


def main(given: argparse.Namespace) -> int:
    return asyncio.run(_Chat(given, Screen()).go())


class _Chat:
    def __init__(self, given: argparse.Namespace, screen: Screen) -> None:
        self._given, self._screen = given, screen
        self._session = given.session or f"chat-{new_run_id()}"
        self._agent: Agent = agent_from(given, screen)
        self._tokens, self._cost, self._known = 0, 0.0, True
        self._said: list[tuple[str, str]] = []
        self._runs: list[str] = []
        self._read = _reader(self.commands)

    @property
    def commands(self) -> dict[str, tuple[Callable[[str], Awaitable[None]], str]]:
        return {
            "/tools": (self._tools, say("what it can do", "使えるツール")),
            "/model": (self._model, say("which model; /model NAME takes another", "モデル。/model NAME で変更")),
            "/cost": (self._money, say("what it has cost so far", "これまでの費用")),
            "/save": (self._save, say("write the conversation to a file", "会話をファイルに保存")),
            "/undo": (self._undo, say("forget the last question and its answer", "直前のやり取りを取り消す")),
            "/help": (self._help, say("this list", "この一覧")),
        }

    async def go(self) -> int:
        name = getattr(self._agent.recipe.model, "name", "?")
        self._screen.note(say(f"{name}; /help for commands, quit to leave", f"{name}。/help で一覧、quit で終了"))
        try:
            while (line := await self._read()) is not None:
                text = line.strip()
                if text in ("quit", "exit", "/quit", "/exit"):
                    break
                if text.startswith("/"):
                    await self._command(text)
                elif text:
                    await self._answer(text)
        finally:
            await self._agent.close()
        self._screen.note(
            say(f"to go on: kaname chat --session {self._session}", f"続きは: kaname chat --session {self._session}")
        )
        return DONE

    async def _command(self, text: str) -> None:
        name, _, rest = text.partition(" ")
        if name not in self.commands:
            unknown = say(f"there is no {name}", f"{name} はありません")
            self._screen.note(unknown + nearest(name, list(self.commands)), "yellow")
            return
        try:
            await self.commands[name][0](rest.strip())
        except (AgentError, OSError) as problem:
            self._screen.note(str(problem), "red")

    async def _answer(self, text: str) -> None:
        stop, show = asyncio.Event(), _ChatShow(self._screen)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, stop.set)
        spinner = asyncio.create_task(_spin(self._screen, show))
        run = self._agent.run(text, session_id=self._session, abort_event=stop)
        try:
            while True:
                async for chunk in run:
                    show.take(chunk)
                result = await run
                answers = ask_the_user(result, self._screen) if result.stop.kind == "waiting" else None
                if not answers:
                    break
                run = self._agent.resume(run.run, answers, abort_event=stop)
            self._said.append((text, result.text or ""))
            self._runs.append(result.run)
            show.finish()
            if result.stop.kind == "cancelled":
                self._screen.note(say("stopped; the conversation goes on", "中断しました。会話は続けられます"), "yellow")
        except AgentError as problem:
            show.finish()
            if not show.failed:
                self._screen.note(str(problem), "red")
        finally:
            loop.remove_signal_handler(signal.SIGINT)
            show.finish()
            spinner.cancel()
            with suppress(asyncio.CancelledError):
                await spinner
        self._tokens += show.tokens
        self._cost, self._known = self._cost + show.cost, self._known and show.cost_known

    async def _tools(self, rest: str) -> None:
        if self._agent.servers is not None:
            await self._agent.servers.start()
        for tool in self._agent.available_tools:
            self._screen.say(f"{tool['name']}: {tool['description']}")
        if not self._agent.available_tools:
            self._screen.note(say("no tools: start with -t FILE.py", "ツールはありません。-t FILE.py で指定してください"))

    async def _model(self, rest: str) -> None:
        if rest:
            self._given.model = rest
            agent = agent_from(self._given, self._screen)
            await self._agent.close()
            self._agent = agent
        self._screen.note(getattr(self._agent.recipe.model, "name", "?"))

    async def _money(self, rest: str) -> None:
        money = f"${self._cost:.4f}" if self._known else say("cost unknown", "費用不明")
        self._screen.note(f"{self._tokens} {say('tokens', 'トークン')}, {money}")

    async def _save(self, rest: str) -> None:
        path = Path(rest or "conversation.md")
        text = "".join([f"## {asked}\n\n{answer}\n\n" for asked, answer in self._said])
        await asyncio.to_thread(path.write_text, text, "utf-8")
        self._screen.note(say(f"written to {path}", f"{path} に保存しました"))

    async def _undo(self, rest: str) -> None:
        if not self._runs:
            self._screen.note(say("there is nothing to undo", "取り消すものがありません"))
            return
        await self._agent.journal.delete(self._runs.pop())
        asked, _ = self._said.pop()
        agent = agent_from(self._given, self._screen)  # a fresh one: it remembers nothing of what is gone
        await self._agent.close()
        self._agent = agent
        self._screen.note(say(f"forgotten: {asked}", f"取り消しました: {asked}"))

    async def _help(self, rest: str) -> None:
        for name, (_, told) in self.commands.items():
            self._screen.say(f"{name:8} {told}")
        self._screen.say(
            say(
                "quit     leave; Ctrl-C stops an answer; Esc Enter makes a new line",
                "quit     終了。Ctrl-C で返答を中断、Esc Enter で改行",
            )
        )


class _ChatShow(Show):
    def __init__(self, screen: Screen) -> None:
        super().__init__(screen)
        self._markdown = Markdown() if screen.out.isatty() and not os.environ.get("NO_COLOR") else None
        self.begun = self.failed = False

    def take(self, chunk: Any) -> None:
        if chunk.type in ("delta", "tool_call", "tool_response", "thinking", "error") and not self.begun:
            self.begun = True
            self._screen.replace("")
        self.failed = self.failed or chunk.type == "error"
        super().take(chunk)

    def _delta(self, data: dict[str, Any]) -> None:
        if self._markdown is None:
            super()._delta(data)
            return
        self._screen.raw(self._markdown.feed(self._screen.safe(data["content"])))
        self._open_line = True

    def _tool_call(self, data: dict[str, Any]) -> None:
        self.finish()
        super()._tool_call(data)

    def finish(self) -> None:
        if not self.begun:
            self.begun = True
            self._screen.replace("")
        if self._markdown is not None:
            self._screen.raw(self._markdown.end())
            self._markdown = Markdown()  # what was left open ends with the message
        self.end_line()


async def _spin(screen: Screen, show: _ChatShow) -> None:
    place = 0
    while not show.begun:
        screen.replace(_SPINNER[place % len(_SPINNER)])
        place += 1
        await asyncio.sleep(0.1)


def _reader(commands: dict[str, Any]) -> Callable[[], Awaitable[str | None]]:
    """Lines from the person: with history, completion and several lines in a terminal; plainly from a pipe."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):

        async def plain() -> str | None:
            line = await asyncio.to_thread(sys.stdin.readline)
            return line or None

        return plain
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import WordCompleter
    from prompt_toolkit.history import FileHistory

    from ..journals.choose import default_path

    history = Path(default_path()).with_name("history")
    history.parent.mkdir(parents=True, exist_ok=True)
    session: PromptSession[str] = PromptSession(
        history=FileHistory(str(history)),
        completer=WordCompleter([*commands, "quit"], sentence=True),
        complete_while_typing=False,
    )
    _new_lines(session)

    async def read() -> str | None:
        while True:
            try:
                return await session.prompt_async("> ", prompt_continuation="  ")
            except KeyboardInterrupt:
                continue
            except EOFError:
                return None

    return read


def _new_lines(session: Any) -> None:
    from prompt_toolkit.key_binding import KeyBindings

    keys = KeyBindings()
    keys.add("escape", "enter")(lambda event: event.current_buffer.insert_text("\n"))
    session.key_bindings = keys
