"""`Privacy` in runs: what the model, the tools, the user and the journal get."""

import pytest

from kaname import (
    Agent,
    ConfigError,
    Guardrails,
    Judge,
    MemoryJournal,
    ModelError,
    ModelReply,
    Privacy,
    ScriptedModel,
    SqliteJournal,
    ToolContext,
    call,
    load_config,
    tool,
)
from kaname.core.messages import Message, Text, Thinking
from kaname.policies.content.privacy.pseudonyms import FACT

ADDRESS, BOSS, CARD = "a.b@example.com", "boss@corp.example", "4111 1111 1111 1111"


class Watched(ScriptedModel):
    """A scripted model that keeps what it was sent, and streams one character at a time."""

    def __init__(self, *replies):
        super().__init__([])
        self.replies, self.sent = list(replies), []

    async def reply(self, request, emit):
        self.sent.append(repr(request.messages))
        said = self.replies.pop(0)
        if isinstance(said, Exception):
            raise said
        message = said if isinstance(said, Message) else Message("assistant", (Text(said) if isinstance(said, str) else said,))
        for part in message.parts:
            for char in getattr(part, "text", ""):
                await emit(char, "thinking" if isinstance(part, Thinking) else "text")
        return ModelReply(message, "tool_use" if message.calls else "end_turn")


def called(name, **args):
    return call(name, **args)


@pytest.fixture
def mail():
    got = []

    @tool
    def send(to: str, text: str = "") -> str:
        """Send a mail."""
        got.append(to)
        return f"sent to {to}, copy to {BOSS}"

    send.got = got
    return send


def agent_of(model, *tools, journal=None, **given):
    return Agent(model=model, tools=list(tools), policies=[Privacy(**given)], journal=journal or MemoryJournal())


async def recorded(journal, run_id):
    return "\n".join([repr(event.body) for event in [event async for event in journal.read(run_id)]])


async def shown(agent, text):
    run = agent.run(text)
    pieces = [chunk["content"] async for chunk in run if chunk.type == "delta"]
    return "".join(pieces), await run


async def test_privacy_shows_the_model_pseudonyms_and_tool_and_user_the_values(mail):
    model = Watched(called("send", to="<EMAIL_1>"), "Sent to <EMAIL_1> and <EMAIL_2>, not to <EMAIL_9>.")
    result = await agent_of(model, mail).run(f"Write to {ADDRESS} today")
    assert mail.got == [ADDRESS]
    assert result.output == f"Sent to {ADDRESS} and {BOSS}, not to <EMAIL_9>."
    assert not any(value in sent for sent in model.sent for value in (ADDRESS, BOSS))
    assert "<EMAIL_1>" in model.sent[0]
    assert "<EMAIL_2>" in model.sent[1]


@pytest.mark.parametrize(
    "said",
    [
        "<email_1>",
        "<Email_1>",
        "<EMAIL 1>",
        "<EMAIL-1>",
        "< EMAIL_1 >",
        "<EMAIL\\_1>",
        "<EMAIL1>",
        "[EMAIL_1]",
        "&lt;EMAIL_1&gt;",
        "＜ｅｍａｉｌ_１＞",
    ],
)
async def test_privacy_puts_the_value_back_where_the_model_writes_the_pseudonym_in_another_form(said, mail):
    model = Watched(called("send", to=said), f"Sent to {said}; not <email_7>, [email], a[1] or <b>.")
    text, result = await shown(agent_of(model, mail), f"Write to {ADDRESS} today")
    assert mail.got == [ADDRESS]
    assert text == result.output == f"Sent to {ADDRESS}; not <email_7>, [email], a[1] or <b>."


async def test_privacy_puts_back_a_pseudonym_of_several_words_in_another_form():
    model = Watched("You were born on <date of birth 1>, not <Date-of-Birth_2>.")
    result = await agent_of(model).run("My date of birth is 1985-04-01.")
    assert result.output == "You were born on 1985-04-01, not <Date-of-Birth_2>."


async def test_privacy_blocks_an_argument_with_a_pseudonym_in_another_form(mail):
    rules = {"email": {"input": "pseudonymise", "arguments": "block"}}
    model = Watched(called("send", to="<email_1>"), "It was refused.")
    result = await agent_of(model, mail, kinds=rules).run(f"Write to {ADDRESS} today")
    assert (mail.got, result.output) == ([], "It was refused.")


async def test_privacy_keeps_pseudonyms_for_the_session_and_records_no_value_for_it(tmp_path):
    path, texts = tmp_path / "j.db", ["ok", "again", "third"]
    for number, question in enumerate([f"I am {ADDRESS}", f"Ask {BOSS}", f"Both: {BOSS} {ADDRESS}"]):
        journal, model = SqliteJournal(path), Watched(texts[number])  # another process each time
        result = await agent_of(model, journal=journal).run(question, session_id="s")
        facts = await recorded(journal, result.run_id)
        await journal.close()
    assert "Both: <EMAIL_2> <EMAIL_1>" in model.sent[0]
    assert FACT not in facts  # nothing new in the last turn


async def test_privacy_gives_a_resumed_run_the_same_pseudonyms(tmp_path, mail):
    path, question = tmp_path / "j.db", f"Ask {BOSS}, then tell {ADDRESS}"
    journal = SqliteJournal(path)
    run = agent_of(Watched(called("send", to="<EMAIL_2>"), ModelError("down")), mail, journal=journal).run(question)
    with pytest.raises(ModelError):
        await run
    await journal.close()
    model, journal = Watched("Told <EMAIL_2>, copy to <EMAIL_1>."), SqliteJournal(path)
    result = await agent_of(model, mail, journal=journal).resume(run.run_id)
    await journal.close()
    assert "Ask <EMAIL_1>, then tell <EMAIL_2>" in model.sent[0]
    assert ADDRESS not in model.sent[0]
    assert (result.output, mail.got) == (f"Told {ADDRESS}, copy to {BOSS}.", [ADDRESS])


async def test_privacy_records_digests_of_pseudonymised_values_and_not_the_values():
    journal = MemoryJournal()
    result = await agent_of(Watched("ok"), journal=journal).run(f"I am {ADDRESS}")
    (fact,) = [
        event.body for event in [e async for e in journal.read(result.run_id)] if getattr(event.body, "name", "") == FACT
    ]
    assert list(fact.data["labels"].values()) == ["<EMAIL_1>"]
    assert ADDRESS not in repr(fact)
    assert fact.shown is False


async def test_privacy_hides_a_value_from_the_model_also_where_no_word_says_what_it_is(mail):
    model = Watched(called("send", to="<DATE_OF_BIRTH_1>"), "ok")
    await agent_of(model, mail).run("生年月日は1985年4月1日です。")
    assert mail.got == ["1985年4月1日"]
    assert "1985年4月1日" not in model.sent[1]


async def test_privacy_hides_a_value_of_the_user_from_the_model_also_in_a_result_that_is_allowed(mail):
    model = Watched(called("send", to="<EMAIL_1>"), "ok")
    await agent_of(model, mail, kinds={"email": {"input": "pseudonymise"}}).run(f"I am {ADDRESS}")
    assert f"sent to <EMAIL_1>, copy to {BOSS}" in model.sent[1]


async def test_privacy_records_a_new_pseudonym_before_the_user_sees_it():
    events = []
    policies = [Privacy({"email": {"output": "pseudonymise"}})]
    agent = Agent(model=Watched(f"Ask {BOSS} soon"), policies=policies, journal=MemoryJournal(), sinks=[events.append])
    text, _ = await shown(agent, "Whom?")
    seen = [repr(event) for event in events]
    shows = [place for place, event in enumerate(seen) if "Delta" in event and "EMAIL" in event]
    records = [place for place, event in enumerate(seen) if FACT in event]
    assert text == "Ask <EMAIL_1> soon"
    assert records[0] < shows[0]


@pytest.mark.parametrize(("treatment", "left"), [("mask", "I am [email]."), ("remove", "I am .")])
async def test_privacy_masks_or_removes_before_anything_is_recorded(treatment, left):
    journal, model = MemoryJournal(), Watched("ok")
    result = await agent_of(model, journal=journal, kinds={"email": treatment}).run(f"I am {ADDRESS}.")
    assert left in model.sent[0]
    facts = await recorded(journal, result.run_id)
    assert left in facts
    assert ADDRESS not in facts


async def test_privacy_blocks_a_message_before_it_is_recorded():
    journal, model = MemoryJournal(), Watched("ok")
    result = await agent_of(model, journal=journal, kinds={"card": "block"}).run(f"Pay with {CARD}")
    assert (result.stop.kind, result.stop.withheld, model.sent) == ("blocked", "input", [])
    assert "card" in result.stop.detail
    assert CARD not in await recorded(journal, result.run_id)


async def test_privacy_warns_once_and_changes_nothing():
    journal = MemoryJournal()
    model = Watched(f"Hello {ADDRESS}")
    result = await agent_of(model, journal=journal, kinds={"email": "warn"}).run(f"I am {ADDRESS}")
    assert result.output == f"Hello {ADDRESS}"
    assert ADDRESS in model.sent[0]
    facts = await recorded(journal, result.run_id)
    assert facts.count("personal data was found (input): email") == facts.count("personal data was found (output): email") == 1


@pytest.mark.parametrize(
    ("treatment", "seen"), [("mask", "copy to [email]"), ("remove", "copy to "), ("block", "blocked here (results): email")]
)
async def test_privacy_treats_results_before_they_are_recorded(mail, treatment, seen):
    journal, model = MemoryJournal(), Watched(called("send", to="x"), "ok")
    result = await agent_of(model, mail, journal=journal, kinds={"email": {"results": treatment}}).run("Go")
    assert seen in model.sent[1]
    assert BOSS not in await recorded(journal, result.run_id)


@pytest.mark.parametrize(("treatment", "got"), [("mask", ["[email]"]), ("block", []), ("pseudonymise", ["<EMAIL_1>"])])
async def test_privacy_treats_arguments_that_the_model_wrote_itself_or_as_pseudonyms(mail, treatment, got):
    rules = {"email": {"input": "pseudonymise", "arguments": treatment}}
    for said in (ADDRESS, "<EMAIL_1>"):
        mail.got.clear()
        await agent_of(Watched(called("send", to=said), "ok"), mail, kinds=rules).run(f"I am {ADDRESS}")
        assert mail.got == got


async def test_privacy_streams_values_in_place_of_pseudonyms_and_masks_what_the_model_says():
    rules = {"email": "pseudonymise", "phone": {"output": "mask"}, "ip": {"output": "remove"}}
    said = "Mail <EMAIL_1>, call 090-1234-5678 from 192.0.2.1 <EMAIL"
    text, result = await shown(agent_of(Watched(said), kinds=rules), f"I am {ADDRESS}")
    assert text == result.output == f"Mail {ADDRESS}, call [phone] from  <EMAIL"


async def test_privacy_blocks_a_reply_and_shows_and_records_none_of_the_data():
    journal = MemoryJournal()
    agent = agent_of(Watched(f"It is {CARD}, I think"), journal=journal, kinds={"card": {"output": "block"}})
    text, result = await shown(agent, "Which card?")
    assert (text, result.stop.kind, result.stop.withheld) == ("It is ", "blocked", "output")
    assert "4111" not in await recorded(journal, result.run_id)


async def test_privacy_treats_a_pseudonym_in_the_output_by_the_rule_of_the_output():
    rules = {"date_of_birth": {"input": "pseudonymise", "output": "mask"}}
    text, result = await shown(agent_of(Watched("You: <DATE_OF_BIRTH_1>."), kinds=rules), "生年月日は1985年4月1日です。")
    assert text == result.output == "You: [date_of_birth]."


async def test_privacy_masks_thoughts_and_drops_the_signature_of_the_old_text():
    message = Message("assistant", (Thinking(f"He is {ADDRESS}", "sig"), Text("ok")))
    journal = MemoryJournal()
    result = await agent_of(Watched(message), journal=journal, kinds={"email": {"output": "mask"}}).run("Hi")
    facts = await recorded(journal, result.run_id)
    assert "He is [email]" in facts
    assert "sig" not in facts.replace("signature", "")


def names(text):
    return [(place, place + 4, "person") for place in range(len(text)) if text[place : place + 4] == "山田太郎"]


async def test_privacy_uses_detectors_for_what_patterns_cannot_find():
    model = Watched("こんにちは、<PERSON_1>さん")
    result = await agent_of(model, detectors=[names]).run("私は山田太郎です")
    assert "私は<PERSON_1>です" in model.sent[0]
    assert result.output == "こんにちは、山田太郎さん"


async def test_privacy_shows_a_reply_at_its_end_if_a_detector_judges_the_output():
    text, result = await shown(agent_of(Watched("彼は山田太郎です"), kinds={"person": "mask"}, detectors=[names]), "誰?")
    assert text == result.output == "彼は[person]です"


async def test_privacy_lets_nothing_through_if_a_detector_fails():
    def broken(text):
        raise ValueError(text)

    journal, model = MemoryJournal(), Watched("ok")
    result = await agent_of(model, journal=journal, detectors=[broken]).run(f"I am {ADDRESS}")
    assert result.stop.kind == "blocked"
    assert model.sent == []
    assert ADDRESS not in await recorded(journal, result.run_id)


async def test_privacy_stands_around_judges_and_children(mail):
    judge, child = Watched('{"reason": "", "action": "allow"}'), Watched("done")
    inner = Agent(model=child, name="inner", journal=MemoryJournal())

    @tool
    async def ask(question: str, context: ToolContext) -> str:
        """Ask another agent."""
        return str((await context.run_child(inner, question)).output)

    rails = Guardrails(input_checks=[Judge(judge, "Is it polite?")])
    model = Watched(called("ask", question="Who is <EMAIL_1>?"), "ok")
    agent = Agent(model=model, tools=[ask], policies=[rails, Privacy()], journal=MemoryJournal())
    await agent.run(f"I am {ADDRESS}")
    for sent in (*judge.sent, *child.sent, *model.sent):
        assert "<EMAIL_1>" in sent
        assert ADDRESS not in sent
    assert judge.sent
    assert child.sent


@pytest.mark.parametrize(
    ("kinds", "said"),
    [
        ({"emial": "mask"}, "email"),
        ({"email": "hide"}, "pseudonymise"),
        ({"email": {"inputs": "mask"}}, "input"),
        ({"ip": 3}, "3"),
    ],
)
def test_privacy_refuses_rules_that_it_does_not_know(kinds, said):
    with pytest.raises(ConfigError, match=said):
        Privacy(kinds)


async def test_privacy_of_a_file(tmp_path):
    (tmp_path / "found.py").write_text("def names(text):\n    return []\n")
    text = (
        "agents:\n  a:\n    model: scripted/s.json\n    privacy:\n      kinds: {email: mask, employee: {input: mask}, card: {output: block}}\n"
        "      patterns: {employee: 'E[0-9]{6}'}\n      detectors: ['found:names']\n"
    )
    (tmp_path / "s.json").write_text('["ok"]')
    file = tmp_path / "kaname.yaml"
    file.write_text(text)
    policies = load_config(file).parts()["policies"]
    (privacy,) = [one for one in policies if isinstance(one, Privacy)]
    model = Watched("fine", f"it is {CARD}")
    agent = Agent(model, policies=[privacy], journal="memory")
    assert (await agent.run(f"{ADDRESS} {CARD} E123456")).output == "fine"
    assert CARD in model.sent[0], "only the output is blocked"
    assert ADDRESS not in model.sent[0]
    assert "E123456" not in model.sent[0]
    assert (await agent.run("and the card?")).stop.kind == "blocked"
    file.write_text(text.replace("email: mask", "email: hide"))
    with pytest.raises(ConfigError, match="privacy"):
        load_config(file).parts()
