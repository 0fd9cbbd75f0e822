"""Every way on which data comes in or goes out: histories, answers, forks, nested results, escapes, other digits."""

import json
from random import Random
from threading import current_thread

import pytest

from kaname import Agent, Approve, MemoryJournal, Privacy, ProjectContext, call, sanitize_data, tool
from kaname.core.messages import Message, Text, ToolCall, ToolResult, system, user
from kaname.policies.content.privacy.kinds import built_in
from kaname.policies.content.privacy.scan import DataStream, find
from kaname.policies.content.privacy.values import mask, replace_found
from tests.policies.privacy.test_privacy import ADDRESS, BOSS, CARD, Watched, agent_of, recorded, shown

OTHER_DIGITS = ("٤١١١١١١١١١١١١١١١", "४१११११११११११११११", "４１１１１１１１１１１１１１１１")


@pytest.fixture
def mail():
    got = []

    @tool
    def send(to: str) -> str:
        """Send a mail."""
        got.append(to)
        return "sent"

    send.got = got
    return send


def test_sanitize_data_takes_a_value_with_its_key_and_the_key_above_it():
    data = {"passport": {"number": "TK1234567"}, "birth": {"date": "1985-04-01"}, "口座": {"番号": ["1234567"]}, "n": "1234567"}
    masked = {"passport": {"number": "[passport]"}, "birth": {"date": "[date_of_birth]"}, "口座": {"番号": ["[bank_account]"]}}
    assert sanitize_data(data) == {**masked, "n": "1234567"}


def test_sanitize_data_finds_numbers_that_are_written_with_a_point_or_in_another_script():
    assert sanitize_data({"card": 4111111111111111.0, "price": 3.0}) == {"card": "[card]", "price": 3.0}
    for digits in OTHER_DIGITS:
        assert sanitize_data(f"card {digits}.") == "card [card]."


def test_sanitize_data_reads_json_in_a_text_without_its_escapes():
    inner = json.dumps({"口座番号": "1234567", "text": "call\n090-1234-5678"})
    assert "\\u" in inner
    made = sanitize_data({"body": inner, "mail": '{"to": "a.b\\u0040example.com"}'})
    assert json.loads(made["body"]) == {"口座番号": "[bank_account]", "text": "call\n[phone]"}
    assert made["mail"] == '{"to": "[email]"}'


async def test_privacy_gives_a_value_with_escapes_the_pseudonym_of_the_value(mail):
    @tool
    def look() -> str:
        """Look."""
        return '{"to": "a.b\\u0040example.com"}'

    model = Watched(call("look"), call("send", to="<EMAIL_1>"), "ok")
    await agent_of(model, look, mail).run(f"I am {ADDRESS}")
    assert "EMAIL_2" not in model.sent[1]
    assert mail.got == [ADDRESS]


def test_data_stream_loses_no_character_that_is_not_shown():
    family, random = "👨\u200d👩\u200d👧 \u200bhi\u200b, می\u200cخواهم ❤\ufe0f ", Random(3)
    text = family + f"{ADDRESS}\u200b" + family + CARD + family
    whole = replace_found(text, find(text, built_in()), mask)
    for cuts in [range(1, len(text)), *[sorted(random.sample(range(1, len(text)), 9)) for _ in range(50)]]:
        stream, shown, last = DataStream(built_in(), mask), "", 0
        for cut in [*cuts, len(text)]:
            shown, last = shown + stream.feed(text[last:cut]), cut
        assert shown + stream.end() == whole


async def test_privacy_hides_data_in_a_system_message_of_the_caller_and_leaves_the_instructions():
    model = Watched("ok")
    agent = Agent(model, instructions=f"Support: {BOSS}", policies=[Privacy()], journal=MemoryJournal())
    await agent.run([system(f"The user is {ADDRESS}"), user("Hi")])
    assert "The user is <EMAIL_1>" in model.sent[0]
    assert BOSS in model.sent[0]


async def test_privacy_hides_data_in_a_system_message_of_the_caller_that_stands_with_project_files(tmp_path):
    (tmp_path / "AGENTS.md").write_text(f"Escalate to {BOSS}.")
    model, context = Watched("ok"), ProjectContext(tmp_path)
    agent = Agent(model, instructions="Be kind.", context=context, policies=[Privacy()], journal=MemoryJournal())
    await agent.run([system(f"The user is {ADDRESS}"), user("Hi")])
    assert "The user is <EMAIL_1>" in model.sent[0]
    assert ADDRESS not in model.sent[0]
    assert f"Escalate to {BOSS}." in model.sent[0]


async def test_privacy_masks_calls_and_results_of_a_history_before_they_are_recorded():
    journal, model = MemoryJournal(), Watched("ok")
    asked = Message("assistant", (ToolCall("c1", "send", {"to": ADDRESS}),))
    sent = Message("tool", (ToolResult(f"sent to {ADDRESS}", call_id="c1", name="send"),))
    history = [user("Hi"), asked, sent, user("And?")]
    result = await agent_of(model, journal=journal, kinds={"email": "mask"}).run(history)
    assert ADDRESS not in await recorded(journal, result.run_id)
    assert ADDRESS not in model.sent[0]
    assert "output='sent to [email]'" in model.sent[0]


async def test_privacy_records_no_blocked_call_of_a_history():
    journal, model = MemoryJournal(), Watched("ok")
    asked = Message("assistant", (Text("ok"), ToolCall("c1", "pay", {"with": CARD})))
    history = [user("Hi"), asked, Message("tool", (ToolResult("paid", call_id="c1", name="pay"),)), user("And?")]
    result = await agent_of(model, journal=journal, kinds={"card": "block"}).run(history)
    assert CARD not in await recorded(journal, result.run_id) + "".join(model.sent)


async def test_privacy_finds_data_that_goes_over_the_end_of_a_part():
    for kinds, said in (({"card": "mask"}, "[card]"), ({"card": "pseudonymise"}, "<CARD_1>")):
        model = Watched("ok")
        await agent_of(model, kinds=kinds).run([Message("user", (Text(f"Pay with {CARD[:9]}"), Text(CARD[9:])))])
        assert f"Pay with {said}" in model.sent[0]
        assert CARD[9:] not in model.sent[0]


async def test_privacy_shows_a_person_and_the_journal_the_arguments_that_the_tool_gets(mail):
    journal = MemoryJournal()
    policies = [Approve("send"), Privacy({"email": {"arguments": "mask"}})]
    agent = Agent(Watched(call("send", to=ADDRESS), "ok"), [mail], policies=policies, journal=journal)
    result = await agent.run("Write")
    (question,) = result.questions.values()
    assert '"[email]"' in question.prompt
    result = await agent.resume(result.run_id, {question.key: "yes"})
    assert mail.got == ["[email]"]
    assert ADDRESS not in await recorded(journal, result.run_id)


async def test_privacy_masks_the_texts_of_an_answer_that_is_not_a_text(mail):
    journal, model = MemoryJournal(), Watched(call("send", to="x"), "ok")
    agent = Agent(model, [mail], policies=[Approve("send"), Privacy({"email": "mask"})], journal=journal)
    result = await agent.run("Write")
    (key,) = result.questions
    result = await agent.resume(result.run_id, {key: {"approved": False, "reason": f"Ask {BOSS} first"}})
    assert "Ask [email] first" in model.sent[1]
    assert BOSS not in await recorded(journal, result.run_id)


async def test_privacy_masks_the_results_that_are_given_to_a_fork(mail):
    journal = MemoryJournal()
    agent = Agent(
        Watched(call("send", to="x")), [mail], policies=[Approve("send"), Privacy({"email": "mask"})], journal=journal
    )
    first = await agent.run("Write")
    (question,) = first.questions.values()
    model = Watched("ok")
    fork = await agent.fork(first.run_id, results={question.call_id: f"sent to {BOSS}"}, model=model)
    assert "sent to [email]" in model.sent[0]
    assert BOSS not in await recorded(journal, fork.run_id)


async def test_privacy_hides_two_thousand_values_of_a_result():
    addresses = [f"user{n}.{n * 7}@example.com" for n in range(2_000)]

    @tool
    def customers() -> str:
        """Return all customers."""
        return "\n".join(addresses)

    model = Watched(call("customers"), call("customers"), "The last is <EMAIL_2000>.")
    result = await agent_of(model, customers).run("Who?")
    assert result.output == f"The last is {addresses[-1]}."
    assert not any("@example.com" in sent for sent in model.sent)


async def test_privacy_streams_what_the_output_says_if_data_of_two_kinds_overlaps():
    said = "The IBAN is ES30 1912 6456 2997 1147 7046."  # a part of it is a valid card number, which has a rule
    agent = agent_of(Watched(said), kinds={"*": "pseudonymise", "card": {"output": "mask"}})
    text, result = await shown(agent, "Which?")
    assert text == result.output


async def test_privacy_looks_through_a_long_result_while_other_runs_go_on():
    record = json.dumps({"name": "x", "date of birth": "1985-04-01", "mail": ADDRESS, "note": "口座番号 1234567"})
    threads = []

    def where(text):
        threads.append(current_thread())
        return []

    @tool
    def customers() -> str:
        """Return all customers."""
        return "\n".join([record] * 150)

    journal, model = MemoryJournal(), Watched(call("customers"), "ok")
    result = await agent_of(model, customers, journal=journal, kinds={"*": "mask"}, detectors=[where]).run("Who?")
    facts = await recorded(journal, result.run_id)
    assert not any(value in facts for value in (ADDRESS, "1985-04-01", "1234567"))
    assert facts.count("[email]") >= 150, "each value is masked, and not the whole text"
    assert any(one is not current_thread() for one in threads)
