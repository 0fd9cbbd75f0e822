"""Files of the conversation in a tool: `context.file` and `context.files`."""

from __future__ import annotations

from unicodedata import normalize

import pytest

from kaname import Agent, Approve, Compact, ConfigError, Flow, Media, ScriptedModel, ToolContext, ToolResult, call, tool
from kaname.core.openai_shape import result_text

PNG = b"\x89PNG\r\n\x1a\n"


@tool(effect="pure")
def draw(name: str, what: str = "") -> ToolResult:
    """Draw a chart."""
    return ToolResult(f"made {name}", media=(Media.of(PNG + what.encode(), name=name),))


def desk(*calls, policies=(), journal="memory", context=()):
    sent = []

    @tool
    def send_mail(to: str, attachment: str, context: ToolContext) -> str:
        """Send a mail."""
        file = context.file(attachment)
        sent.append((to, file.name, file.mime, file.content))
        return ", ".join(context.files)

    agent = Agent(
        ScriptedModel(calls[0] if callable(calls[0]) else [*calls]),
        [draw, send_mail],
        policies=policies,
        journal=journal,
        context=context,
    )
    return agent, sent


async def test_file_that_a_tool_made_or_the_user_sent_is_there_by_name_and_number():
    mails = [call("send_mail", to="ann", attachment=one) for one in ("bar.png", "note.txt", "#2", "1")]
    agent, sent = desk(call("draw", name="bar.png", what="x"), *mails, "sent", policies=[Flow("off")])
    result = await agent.run(["Draw a chart and mail it.", Media.of(b"hello", name="note.txt")])
    chart, note = ("ann", "bar.png", "image/png", PNG + b"x"), ("ann", "note.txt", "text/plain", b"hello")
    assert sent == [chart, note, chart, note]
    assert list(result.state.results.values())[-1].output == "note.txt, bar.png"


async def test_unknown_file_is_an_error_with_the_names_that_there_are():
    mails = [call("send_mail", to="ann", attachment=one) for one in ("pie.png", "0", "2", "../bar.png", "")]
    agent, sent = desk(call("draw", name="bar.png"), *mails, "sorry")
    result = await agent.run("go")
    assert not sent
    for one in list(result.state.results.values())[1:]:
        assert "in this conversation. Its files: 1 bar.png" in one.error


async def test_files_of_earlier_turns_and_of_what_was_summarised_stay(tmp_path):
    def script(request):
        last = request.messages[-1]
        if last.role == "user" and last.text.startswith(("draw", "mail")):
            made = call("draw", name="bar.png", what="old"), call("send_mail", to="ann", attachment="bar.png")
            return made[last.text.startswith("mail")]
        return "ok"

    summaries = ScriptedModel(lambda request: "a summary")
    agent, sent = desk(script, journal=f"{tmp_path}/j.db", context=[Compact(60, 30, model=summaries)])
    for text in ("draw a chart " + "of the sales " * 9, "hello " * 30, "hello again " * 20, "mail it"):
        result = await agent.run(text, session_id="s")
    assert sent == [("ann", "bar.png", "image/png", PNG + b"old")]
    assert not any(message.holds_media for message in result.state.messages)
    await agent.close()


async def test_newest_file_of_a_name_counts_and_a_name_may_be_written_in_two_ways():
    name = normalize("NFD", "グラフ.png")
    drawn = [call("draw", name=name, what=one) for one in ("1", "2")]
    agent, sent = desk(*drawn, call("send_mail", to="ann", attachment=normalize("NFC", name)), "ok")
    await agent.run("go")
    assert [one[3] for one in sent] == [PNG + b"2"]


async def test_name_means_the_same_file_when_the_answer_comes_after_other_calls_of_the_reply():
    both = [call("send_mail", to="ann", attachment="bar.png"), call("draw", name="bar.png", what="another")]
    agent, sent = desk(call("draw", name="bar.png", what="shown"), both, "ok", policies=[Approve("send_mail")])
    waiting = await agent.run("go")
    assert len(waiting.state.results) == 2  # the other call has its result
    (key,) = waiting.questions
    await agent.resume(waiting.run_id, {key: "yes"})
    assert [one[3] for one in sent] == [PNG + b"shown"]


def test_tool_that_a_program_calls_directly_has_no_files():
    with pytest.raises(ConfigError, match="there is no run here"):
        ToolContext("", "", "", "", "", "", 1).file("bar.png")


def test_medium_gives_its_bytes_or_says_that_they_are_not_base64():
    assert Media.of(b"hello").content == b"hello"
    assert Media("image/*", url="https://example.com/a.png").content == b""
    with pytest.raises(ValueError, match="the data of x is not base64"):
        assert Media("image/png", "?", name="x").content


async def test_model_is_told_the_names_of_files_that_a_tool_returns():
    @tool(effect="pure")
    def plot(form: str) -> object:
        """Plot."""
        file = Media.of(PNG, name=f"{form}.png")
        return {
            "alone": file,
            "listed": ["two", file],
            "result": ToolResult(media=(file,)),
            "mentioned": ToolResult("made mentioned.png", media=(file,)),
            "counted": ToolResult(3, media=(file,)),
        }[form]

    forms = ["alone", "listed", "result", "mentioned", "counted"]
    seen = []

    def script(request):
        seen.extend(request.messages[-1:])
        return call("plot", form=forms[len(seen) - 1]) if len(seen) <= len(forms) else "done"

    await Agent(ScriptedModel(script), [plot], journal="memory").run("go")
    assert [result_text(message.results[0]) for message in seen[1:]] == [
        "[image/png]\n[file: alone.png]",
        '["two", "[image/png]"]\n[file: listed.png]',
        "[file: result.png]",
        "made mentioned.png",
        "3\n[file: counted.png]",
    ]
