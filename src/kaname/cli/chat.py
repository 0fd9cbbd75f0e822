"""`kaname chat`: a conversation. Ctrl-C stops the run, but not the conversation. The journal keeps both."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any
from unicodedata import normalize

from ..agent.agent import Agent
from ..core.errors import AgentError, nearest
from ..core.events import Interjected, Opened, Received, ToolStarted
from ..core.install import this_command
from ..core.messages import Media
from ..core.project import user_state
from ..core.runs import RunInfo
from ..core.state import what_was_said
from ..core.values import plain_text
from ..kernel.load import load, read_run
from ..kernel.threads import off_loop
from ..run.request import new_run_id
from ..run.run import Run
from ..stores.default import choose
from .agent import agent_from, input_for, restore_options
from .main import DONE
from .messages import say, translate
from .messages.stops import status_word
from .place import journal_for, place_options
from .terminal.attachments import attach_files, from_clipboard
from .terminal.chunks import Show
from .terminal.questions import ask_yes_no, can_ask, resume_with_answers
from .terminal.screen import Screen, truncate
from .terminal.signals import Ending, run_to_the_end
from .terminal.typing import hear_lines, is_typed

_HARMLESS = ("pure", "idempotent")
_OPEN = ("interrupted", "waiting")  # a turn that can be continued
_LEAVE = ("quit", "exit", "/quit", "/exit")


def main(args: argparse.Namespace) -> int:
    return run_to_the_end(lambda ending: _Chat(args, Screen(), ending).go())


class _Chat:
    def __init__(self, args: argparse.Namespace, screen: Screen, ending: Ending) -> None:
        self._args, self._screen, self._ending = args, screen, ending
        self._session = args.session or f"chat-{new_run_id()}"
        self._agent: Agent  # made when the conversation begins
        self._spent: tuple[int, float] = (0, 0.0)  # tokens and cost of undone runs
        self._files: list[Media] = []  # for the next message
        self._held: list[str] = []  # commands that were typed while the agent worked
        self._read = _reader(self.commands, ending)

    @property
    def commands(self) -> dict[str, tuple[Callable[[str], Awaitable[None]], str, str]]:
        return {
            "/tools": (self._tools, "List the tools.", "ツールを一覧表示します。"),
            "/model": (
                self._model,
                "Show the model. /model NAME changes it.",
                "モデルを表示します。/model 名前 で変更します。",
            ),
            "/cost": (self._money, "Show the cost so far.", "これまでの費用を表示します。"),
            "/save": (
                self._save,
                "Save the conversation to a file: /save FILE.",
                "会話をファイルに保存します: /save ファイル。",
            ),
            "/file": (
                self._file,
                "Attach a file or web address to your next message: /file FILE.",
                "次の発言にファイルまたは Web アドレスを添付します: /file ファイル。",
            ),
            "/undo": (self._undo, "Delete your last message and its answer.", "直前の発言と回答を取り消します。"),
            "/help": (self._help, "Show this list.", "この一覧を表示します。"),
        }

    async def go(self) -> int:
        await self._begin()
        name = getattr(self._agent.recipe.model, "name", "?")
        self._screen.tell(f"{name}; /help for commands, quit to leave", f"{name}。/help で一覧、quit で終了")
        try:
            await self._continue_last_turn()
            while not self._ending.signal and (line := await self._next_line()) is not None:
                text = as_command(line.strip())
                if text.lower() in _LEAVE:
                    break
                if text.startswith("/"):
                    await self._command(text)
                elif text:
                    await self._answer(text)
        finally:
            await self._agent.close()
        where = place_options(self._args)
        self._screen.tell(
            f"to continue: kaname chat --session {self._session}{where}",
            f"続けるには: kaname chat --session {self._session}{where}",
        )
        return DONE

    async def _next_line(self) -> str | None:
        return self._held.pop(0) if self._held else await self._read()

    async def _begin(self) -> None:
        """Make the agent and show the last exchanges. A session is continued with the agent that it was begun with."""
        if self._args.session:
            journal = choose(journal_for(self._args))
            past = await journal.runs(session=self._session, limit=1)
            if past:
                first = (await read_run(journal, past[0].run_id))[0].body
                restore_options(self._args, first.recipe if isinstance(first, Opened) else {}, past[0].agent)
                self._args.journal = journal_for(self._args)
        self._agent = agent_from(self._args, self._screen)
        past = await self._runs()
        for asked, answer in (await self._exchanges(past))[-3:]:
            self._screen.note(truncate(f"> {asked}", 200))
            self._screen.note(truncate(answer, 400))

    async def _runs(self) -> list[RunInfo]:
        """Return the runs of this conversation, the oldest first."""
        mine = self._agent.journal.runs(session=self._session, agent=self._agent.name, user="", limit=1000)
        return list(reversed(await mine))

    async def _exchanges(self, runs: list[RunInfo]) -> list[tuple[str, str]]:
        exchanges = []
        for one in runs:
            events = await read_run(self._agent.journal, one.run_id)
            said = [message for event, message in what_was_said(events) if isinstance(event.body, Received | Interjected)]
            asked = [message.text for message in said if message.role != "tool"]
            state = await load(self._agent.journal, one.run_id)
            answer = plain_text(state.output) if state.output is not None else f"[{status_word(one.status)}]"
            exchanges.append(("\n".join(asked), answer))
        return exchanges

    async def _command(self, text: str) -> None:
        name, _, rest = text.partition(" ")
        if name not in self.commands:
            unknown = say(f"unknown command {name}", f"{name} は不明なコマンドです")
            self._screen.note(translate(unknown + nearest(name, list(self.commands))), "yellow")
            return
        try:
            await self.commands[name][0](rest.strip())
        except (AgentError, OSError) as problem:
            self._screen.note(translate(problem), "red")

    async def _continue_last_turn(self) -> None:
        """Offer to continue the last turn, if its program was killed or a question of it is open."""
        last = (await self._runs())[-1:]
        if not last or last[0].status not in _OPEN:
            return
        left = say(
            f"the last turn is not finished; to continue it: {this_command()} runs resume {last[0].run_id}",
            f"直前の発言への回答は途中です。続けるには: {this_command()} runs resume {last[0].run_id}",
        ) + place_options(self._args)
        offer = say("The last turn was interrupted. Continue it? [Y/n] ", "直前の回答が中断されました。続けますか? [Y/n] ")
        if last[0].status == "waiting":
            offer = say(
                "A question of the last turn is open. Answer it now? [Y/n] ", "未回答の確認があります。回答しますか? [Y/n] "
            )
        if not can_ask() or not ask_yes_no(offer, self._screen):
            self._screen.note(left)
            return
        await self._follow(lambda stop: self._agent.resume(last[0].run_id, abort_event=stop))

    async def _answer(self, text: str) -> None:
        def begin(stop: asyncio.Event) -> Run[Any]:
            words, files, self._files = input_for(self._args, text), self._files, []
            asked: str | list[str | Media] = [words, *files] if files else words
            return self._agent.run(asked, session_id=self._session, abort_event=stop)

        await self._follow(begin)

    async def _follow(self, begin: Callable[[asyncio.Event], Run[Any]]) -> None:
        """Show a turn until its end, and ask its questions."""
        stop, show, begun = asyncio.Event(), Show(self._screen), monotonic()
        loop = asyncio.get_running_loop()
        try:
            run = begin(stop)
            while True:
                loop.add_signal_handler(signal.SIGINT, stop.set)
                async with self._screen.spinner(still=is_typed()):
                    with hear_lines(self._screen, partial(self._hear, run)):
                        async for chunk in run:
                            show.take(chunk)
                    result = await run
                if result.stop.kind != "waiting":
                    break
                going = await resume_with_answers(
                    self._agent, result, self._screen, show.asked, stop, where=place_options(self._args)
                )
                if going is None:
                    break
                run = going
            show.finish(plain_text(result.output) if result.completed else "", result.citations)
            how = "" if result.completed else f"{status_word(result.stop.kind)}: {translate(result.stop.detail)}; "
            if result.stop.kind == "cancelled":
                how = say("cancelled; you can continue the conversation; ", "キャンセルしました。会話は続けられます; ")
            self._screen.note(f"[{how}{show.spent()}, {monotonic() - begun:.1f} s]")
        except AgentError as problem:
            show.finish()
            if not show.failed:
                self._screen.note(translate(problem), "red")
        finally:
            with suppress(ValueError, RuntimeError):
                loop.remove_signal_handler(signal.SIGINT)
            show.end_line()

    async def _hear(self, run: Run[Any], text: str, urgent: bool) -> bool:
        """Say to the run what was typed while it works. A command is carried out after the answer."""
        if (command := as_command(text)).startswith("/") or command.lower() in _LEAVE:
            self._held.append(command)
            return True
        return await run.say(text, urgent=urgent)

    async def _tools(self, rest: str) -> None:
        if self._agent.servers is not None:
            await self._agent.servers.start()
            for problem in self._agent.servers.problems.values():
                self._screen.note(problem, "red")
        for tool in self._agent.available_tools:
            self._screen.say(f"{tool['name']}: {tool['description']}")
        if not self._agent.available_tools:
            self._screen.tell("no tools: start with -t FILE.py", "ツールはありません。-t FILE.py で指定してください")

    async def _model(self, rest: str) -> None:
        if rest:
            before, self._args.model = self._args.model, rest
            try:
                agent = agent_from(self._args, self._screen)
            except AgentError:
                self._args.model = before
                raise
            await self._agent.close()
            self._agent = agent
        self._screen.note(getattr(self._agent.recipe.model, "name", "?"))

    async def _money(self, rest: str) -> None:
        runs = await self._runs()
        tokens = self._spent[0] + sum(one.input + one.output for one in runs)
        costs = [one.cost for one in runs]
        known = self._spent[1] + sum(cost for cost in costs if cost is not None)
        money = f"${known:.4f}" + (say(" plus an unknown amount", " (ほかに不明分あり)") if None in costs else "")
        self._screen.note(f"{tokens} {say('tokens', 'トークン')}, {money}")

    async def _save(self, rest: str) -> None:
        path = _path(rest or "conversation.md")
        said = await self._exchanges(await self._runs())
        if not said:
            self._screen.tell("there is nothing to save yet", "まだ保存するものがありません")
            return
        text = "".join([f"## {asked}\n\n{answer}\n\n" for asked, answer in said])
        if not _may_write(path, f"## {said[0][0]}\n"):
            self._screen.tell(
                f"{path} already exists with other content. Choose another name: /save NAME",
                f"{path} には別の内容がすでにあります。/save 名前 で別の名前を指定してください",
                colour="yellow",
            )
            return
        await asyncio.to_thread(path.write_text, text, "utf-8")
        self._screen.tell(f"written to {path}", f"{path} に保存しました")

    async def _file(self, rest: str) -> None:
        """Keep a file for the next message. Without a name, list the kept ones, or take the picture of the clipboard."""
        self._files += await attach_files([rest]) if rest else await from_clipboard()
        names = ", ".join([f"{one.name or one.url} ({one.mime})" for one in self._files])
        none = say("no file is attached: /file FILE", "添付されたファイルはありません: /file ファイル")
        self._screen.note(say(f"attached: {names}", f"添付: {names}") if names else none)

    async def _undo(self, rest: str) -> None:
        runs = await self._runs()
        if not runs:
            self._screen.tell("there is nothing to undo", "取り消すものがありません")
            return
        events = await read_run(self._agent.journal, runs[-1].run_id)
        done = [
            event.body.call.name
            for event in events
            if isinstance(event.body, ToolStarted) and event.body.effect not in _HARMLESS
        ]
        if done:
            names = ", ".join(dict.fromkeys(done))
            stays = say(
                f"{names} cannot be undone, so the message stays in the record", f"{names} は取り消せないため記録に残ります"
            )
            self._screen.note(stays, "yellow")
            return
        self._spent = (self._spent[0] + runs[-1].input + runs[-1].output, self._spent[1] + (runs[-1].cost or 0.0))
        await self._agent.journal.delete(runs[-1].run_id)
        agent = agent_from(self._args, self._screen)  # a new agent, without the deleted run
        await self._agent.close()
        self._agent = agent
        self._screen.tell(f"deleted: {runs[-1].title}", f"取り消しました: {runs[-1].title}")

    async def _help(self, rest: str) -> None:
        for name, (_, english, nihongo) in self.commands.items():
            self._screen.say(f"{name:8} {say(english, nihongo)}")
        leave = say("Leave. Ctrl-C stops an answer. Esc Enter starts a new line.",
                    "終了します。Ctrl-C で回答を停止、Esc Enter で改行します。")  # fmt: skip
        add = say("Type while the agent works to add something; begin with ! to interrupt it.",
                  "実行中に入力した行は次のステップで伝わります。! で始めると割り込みます。")  # fmt: skip
        self._screen.say(f"quit     {leave}\n         {add}")


def as_command(text: str) -> str:
    """Return a command in plain letters, for full-width input (`／ｈｅｌｐ　…`); any other text as it is."""
    if text[:1] not in ("/", "／"):
        return text
    name, *rest = text.split(maxsplit=1)
    return " ".join([normalize("NFKC", name), *rest])


def _path(text: str) -> Path:
    return Path(text).expanduser()


def _may_write(path: Path, beginning: str) -> bool:
    """Return True if the file is new, or holds this conversation as it was saved before."""
    return not path.exists() or path.read_text("utf-8", "replace").startswith(beginning)


def _reader(commands: dict[str, Any], ending: Ending) -> Callable[[], Awaitable[str | None]]:
    """Return a function that reads lines: in a terminal with history, completion and several lines; from a pipe as they are."""
    if sys.stdin is None or not (sys.stdin.isatty() and sys.stdout.isatty()):

        async def read_line() -> str | None:
            line = await off_loop(sys.stdin.readline) if sys.stdin is not None else ""  # exit does not wait for it
            return line or None

        return read_line
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import WordCompleter
    from prompt_toolkit.history import FileHistory

    history = Path(user_state()) / "history"
    history.parent.mkdir(parents=True, exist_ok=True)
    session: PromptSession[str] = PromptSession(
        history=FileHistory(str(history)),
        completer=WordCompleter([*commands, "quit"], sentence=True),
        complete_while_typing=False,
    )
    _new_lines(session)

    async def prompt() -> str | None:
        while True:
            try:
                return await session.prompt_async("> ", prompt_continuation="  ")
            except KeyboardInterrupt:
                if ending.signal:
                    return None
            except EOFError:
                return None

    return prompt


def _new_lines(session: Any) -> None:
    from prompt_toolkit.key_binding import KeyBindings

    keys = KeyBindings()
    keys.add("escape", "enter")(lambda event: event.current_buffer.insert_text("\n"))
    session.key_bindings = keys
