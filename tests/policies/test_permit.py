"""Permissions: only what a rule names is run, whichever way a call takes to its tool."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kaname import (
    Agent,
    Approve,
    Cache,
    ConfigError,
    Equals,
    FallbackStrategy,
    InvalidState,
    MemoryJournal,
    Permit,
    PermitRule,
    Policy,
    Role,
    ScriptedModel,
    SqliteJournal,
    Team,
    ToolContext,
    call,
    load_config,
    replace,
    tool,
)
from kaname.cli.messages import translate
from kaname.core.events import ToolFinished, ToolStarted
from kaname.workflows.configured import configured_workflows
from tests.parts import facts
from tests.properties import tries

pytestmark = pytest.mark.requirement("D13")

ran: list[tuple] = []


@pytest.fixture(autouse=True)
def _nothing_ran():
    ran.clear()


@tool(effect="irreversible")
def pay(yen: float, to: str = "shop") -> str:
    """Pay."""
    ran.append(("pay", yen, to))
    return "paid"


@tool(effect="pure")
def look(order: str = "A-1") -> str:
    """Look at an order."""
    ran.append(("look", order))
    return f"order {order}"


@tool(effect="pure")
def look_elsewhere(order: str = "A-1") -> str:
    """Look at an order elsewhere."""
    ran.append(("look_elsewhere", order))
    return f"order {order}"


@tool(effect="pure")
def broken(order: str = "A-1") -> str:
    """Fail."""
    raise ConnectionError("down")


CLERK = {"name": "small payments", "role": "clerk", "tool": "pay", "where": {"yen": {"at_most": 100}}}
ROLES = {"ann": ["clerk"], "eve": []}


def agent_that(asks, *policies, name="desk", tools=(pay, look, look_elsewhere, broken), journal="memory", **more):
    def script(request):
        return asks if request.messages[-1].role == "user" else f"it said: {request.messages[-1].parts[0].error}"

    return Agent(ScriptedModel(script), list(tools), policies=policies, name=name, journal=journal, **more)


async def finished(agent, result):
    return [event.body.result for event in await facts(agent, result.run_id) if isinstance(event.body, ToolFinished)]


# What rules say


@pytest.mark.parametrize(
    ("args", "allowed"),
    [
        ({"yen": 100}, True),
        ({"yen": 100.0}, True),
        ({"yen": 101}, False),
        ({"yen": "100"}, False),
        ({"yen": True}, False),
        ({"yen": None}, False),
        ({"yen": float("nan")}, False),
        ({"yen": -float("inf")}, False),
        ({"yen": [100]}, False),
        ({}, False),
        (None, False),
    ],
)
def test_permit_compares_only_what_can_be_compared(args, allowed):
    permit = Permit([CLERK], roles=ROLES)
    assert bool(permit.check_permissions("ann", "use", "pay", arguments=args)) is allowed
    denying = Permit([{"tool": "*"}, {**CLERK, "effect": "deny", "where": {"yen": {"greater_than": 100}}}], roles=ROLES)
    assert bool(denying.check_permissions("ann", "use", "pay", arguments=args)) is allowed


@pytest.mark.parametrize(
    ("condition", "fitting", "others"),
    [
        ("shop-*", ["shop-", "shop-17"], ["shop", "my shop-1", "shop-/../x", 17, None]),
        ("a*b*c", ["abc", "a1b2c", "abbcc"], ["ab", "acb", "abcd"]),
        ("aa*aa", ["aaaa", "aaxaa"], ["aaa", "aa"]),
        ("exact", ["exact"], ["Exact", "exact ", ""]),
        (["a", 1], ["a", 1, 1.0], ["b", True, "1", None, ["a"]]),
        (5, [5, 5.0], [4, "5", True]),
        (True, [True], [1, "true", False]),
        ({"starts_with": "/home/ann/"}, ["/home/ann/x"], ["/home/anna", "/home/ann/../bob", "/home/ann/..", "\\..\\", 1]),
        ({"starts_with": "C:\\ann\\"}, ["C:\\ann\\x..y"], ["C:\\ann\\..\\bob"]),
        ({"less_than": 5, "greater_than": 1}, [2, 4.9], [1, 5, "3"]),
        ({"at_least": 5}, [5, 6.5], [4.99]),
        ({"equals": "*"}, ["*"], ["x"]),
        ({"equals": {"a": [1]}}, [{"a": [1.0]}], [{"a": [2]}, {}]),
        ({"one_of": ["*", None]}, ["*", None], ["x", 0, False]),
    ],
)
def test_permit_conditions_on_an_argument(condition, fitting, others):
    permit = Permit([PermitRule(tool="t", where={"x": condition})])
    for value in fitting:
        assert permit.check_permissions("ann", "use", "t", arguments={"x": value}), value
    for value in others:
        assert not permit.check_permissions("ann", "use", "t", arguments={"x": value}), value


@pytest.mark.parametrize(
    ("rule", "who", "allowed"),
    [
        ({"user": "ann"}, {"user": "ann"}, True),
        ({"user": "a*"}, {"user": "bob"}, False),
        ({"user": "*"}, {"user": ""}, False),
        ({"user": ["bob", "ann"]}, "ann", True),
        ({"role": "clerk"}, "ann", True),
        ({"role": "clerk"}, "eve", False),
        ({"role": "*"}, "eve", False),
        ({"role": "*"}, {"user": "ann", "roles": ""}, False),
        ({"role": "boss"}, {"user": "ann", "roles": "boss"}, True),
        ({"agent": "desk"}, {"user": "ann", "agent": "desk"}, True),
        ({"agent": "*"}, "ann", False),
        ({"path": "desk/*"}, {"user": "ann", "path": ["desk", "billing"]}, True),
        ({"path": "desk/*"}, {"user": "ann", "path": "desk/billing"}, True),
        ({"path": "*/billing"}, {"user": "ann", "path": ["billing"]}, False),
        ({"path": "desk/*"}, {"user": "ann", "path": ["desk/x", "billing"]}, False),
        ({"path": "*"}, "ann", False),
    ],
)
def test_permit_rule_names_who(rule, who, allowed):
    permit = Permit([{**rule, "tool": "t"}], roles=ROLES)
    assert bool(permit.check_permissions(who, "use", "t")) is allowed


def test_permit_keeps_tools_agents_and_data_apart():
    permit = Permit([{"tool": "*"}, {"handoff": "billing"}, {"data": "order:*", "action": ["read", "write"]}])
    for action, resource, allowed in [
        ("use", "anything", True),
        ("use", "transfer_to_agent", False),
        ("hand_over", "billing", True),
        ("hand_over", "anything", False),
        ("read", "order:1", True),
        ("write", "order:1", True),
        ("delete", "order:1", False),
        ("read", "invoice:1", False),
        ("read", "order:../invoice:1", True),
        ("read", "order:/../invoice:1", False),
    ]:
        assert bool(permit.check_permissions("ann", action, resource)) is allowed, (action, resource)


def test_permit_refusal_names_the_rule_also_in_japanese(monkeypatch):
    monkeypatch.setenv("KANAME_LANG", "ja")
    permit = Permit(
        [CLERK, {"tool": "look*"}, {"name": "no shops", "tool": "look", "user": "eve", "effect": "deny"}], roles=ROLES
    )
    reasons = [
        (("eve", "use", "look"), "the rule 'no shops' denies it"),
        (("", "use", "look"), "it is not clear whether the rule 'no shops' denies it"),
        (("eve", "use", "pay"), "no rule allows use 'pay' for user 'eve'"),
        (("ann", "use", "pay"), "the condition of the rule 'small payments' on yen is not met"),
        (("ann", "use", "look"), "the rule '#2' allows it"),
    ]
    for asked, told in reasons:
        reason = permit.check_permissions(*asked).reason
        assert told in reason
        assert translate(reason).isascii() is False


@pytest.mark.parametrize("roles", [lambda user: 1 / 0, lambda user: [1], lambda user: None])
def test_permit_denies_when_roles_are_not_known(roles):
    permit = Permit(
        [{"tool": "t", "role": "clerk"}, {"tool": "u"}, {"tool": "u", "role": "guest", "effect": "deny"}], roles=roles
    )
    assert not permit.check_permissions("ann", "use", "t")
    assert not permit.check_permissions("ann", "use", "u")


async def _async_roles(user):
    return []


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Permit([]), "at least one rule"),
        (lambda: Permit(), "either rules or"),
        (lambda: Permit({"tool": "t"}), "must be a list"),
        (lambda: Permit(["t"]), "rule 1 must be a PermitRule"),
        (lambda: Permit([{"tols": "t"}]), "did you mean 'tool'"),
        (lambda: Permit([{"user": "ann"}]), "must name a tool"),
        (lambda: Permit([{"tool": 5}]), "rule 1: tool must be a text"),
        (lambda: Permit([{"tool": ""}]), "rule 1: tool must be a text"),
        (lambda: Permit([{"tool": "t", "user": []}]), "rule 1: user must be a text"),  # it is not for everybody
        (lambda: Permit([{"tool": "t", "user": None}]), "rule 1: user must be a text"),
        (lambda: Permit([PermitRule(tool="t", role=())]), "rule 1: role must be a text"),
        (lambda: Permit([{"tool": "t", "where": None}]), "where a mapping"),
        (lambda: Permit([{"tool": "t", "effect": "no"}]), "effect must be"),
        (lambda: Permit([{"data": "t", "where": {"x": 1}}]), "conditions"),
        (lambda: Permit([{"tool": "t", "where": {"x": {"at_mots": 1}}}]), "did you mean 'at_most'"),
        (lambda: Permit([{"tool": "t", "where": {"x": {"at_most": "1"}}}]), "at_most cannot be '1'"),
        (lambda: Permit([{"tool": "t", "where": {"x": {"at_most": True}}}]), "at_most cannot be True"),
        (lambda: Permit([{"tool": "t", "where": {"x": {"one_of": []}}}]), "one_of cannot be"),
        (lambda: Permit([{"tool": "t", "where": {"x": {}}}]), "is empty"),
        (lambda: Permit([{"tool": "t"}], roles=_async_roles), "plain function"),
        (lambda: Permit([{"tool": "t"}], resources={"t": 5}), "resources must be"),
    ],
)
def test_permit_with_a_mistake_is_refused(make, told):
    with pytest.raises(ConfigError, match=told):
        make()


async def test_permit_that_denies_a_tool_that_does_not_exist_is_refused():
    agent = agent_that("hi", Permit([{"tool": "*"}, {"tool": "pya", "effect": "deny"}]))
    with pytest.raises(ConfigError, match="did you mean 'pay'"):
        await agent.run("go")


async def test_permit_with_data_of_a_tool_that_does_not_exist_is_refused():
    agent = agent_that("hi", Permit([{"tool": "*"}], resources={"pya": "account:{to}"}))
    with pytest.raises(ConfigError, match="did you mean 'pay'"):
        await agent.run("go")


def test_permit_logs_that_roles_could_not_be_read_without_the_message(caplog):
    def roles(user):
        raise OSError(f"no answer for {user}")

    assert not Permit([{"tool": "t", "role": "clerk"}], roles=roles).check_permissions("ann", "use", "t")
    assert "could not be read: OSError" in caplog.text
    assert "ann" not in caplog.text


_NAMES = st.sampled_from(["ann", "bob", "pay", "desk", "a/b", "p", ""])
_PATTERNS = st.lists(st.sampled_from(["ann", "bob", "pay", "p*", "*y", "*", "desk", "a/*"]), min_size=1, max_size=2)
_RULES = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "effect": st.sampled_from(["allow", "allow", "deny"]),
            **dict.fromkeys(("user", "role", "agent", "path", "tool", "handoff", "data"), _PATTERNS),
        },
    ).filter(lambda rule: {"tool", "handoff", "data"} & {*rule}),
    min_size=1,
    max_size=4,
)


def _named(patterns, *names):
    return any(name and re.fullmatch(".*".join(map(re.escape, one.split("*"))), name) for one in patterns for name in names)


@given(_RULES, _NAMES, st.lists(_NAMES, max_size=2), _NAMES, st.lists(_NAMES, max_size=2), _NAMES, st.data())
@tries(600)
def test_permit_never_allows_what_no_rule_names(rules, user, roles, agent, path, resource, data):
    who = {"user": user, "roles": roles, "agent": agent, "path": path}
    key, action = data.draw(st.sampled_from([("tool", "use"), ("handoff", "hand_over"), ("data", "read")]))
    verdict = Permit(rules).check_permissions(who, action, resource)
    parts = {"user": [user], "role": roles, "agent": [agent], "path": ["/".join(path)], key: [resource or "-"]}
    naming = [r for r in rules if key in r and all(_named(r[part], *names) for part, names in parts.items() if part in r)]
    effects = [rule.get("effect", "allow") for rule in naming]
    if verdict:
        assert "allow" in effects
    if "deny" in effects:
        assert not verdict
    assert bool(Permit(rules[::-1]).check_permissions(who, action, resource)) == bool(verdict)
    stricter = [*rules, {"tool": "*", "effect": "deny"}, {"handoff": "*", "effect": "deny"}, {"data": "*", "effect": "deny"}]
    assert not Permit(stricter).check_permissions(who, action, resource)


# In a run


@pytest.mark.parametrize("permit_first", [True, False])
async def test_refused_call_is_not_run_and_the_model_reads_why(permit_first):
    policies = [Permit([CLERK], roles=ROLES), Approve("pay")]
    agent = agent_that(call("pay", yen=500), *(policies if permit_first else policies[::-1]))
    result = await agent.run("go", user_id="ann")
    (refusal,) = await finished(agent, result)
    assert result.completed, "nobody is asked about a call that is refused anyway"
    assert "small payments" in result.output
    assert (refusal.not_run, refusal.retryable, ran) == (True, False, [])
    assert not [event for event in await facts(agent, result.run_id) if isinstance(event.body, ToolStarted)]


@pytest.mark.parametrize(("user", "yen", "paid"), [("ann", 100, True), ("ann", 101, False), ("eve", 1, False), ("", 1, False)])
async def test_permit_in_a_run_goes_by_the_user_of_the_run(user, yen, paid):
    agent = agent_that(call("pay", yen=str(yen)), Permit([CLERK], roles=ROLES))
    await agent.run("go", user_id=user)
    assert bool(ran) is paid


async def test_data_of_a_call_needs_a_rule():
    rules = [{"tool": "look"}, {"data": "order:A-*"}]
    permit = Permit(rules, resources={"look": "order:{order}"})
    for order in ("A-7", "B-7", "A-/../B-7"):
        await agent_that(call("look", order=order), permit).run("go")
    await agent_that(call("look"), permit).run("go")
    assert ran == [("look", "A-7"), ("look", "A-1")]
    assert permit.check_permissions("ann", "use", "look", arguments={"order": "A-7"})
    assert not permit.check_permissions("ann", "use", "look", arguments={"order": "B-7"})
    assert not permit.check_permissions("ann", "use", "look")


@pytest.mark.parametrize("permit_first", [True, False])
@pytest.mark.parametrize("permitted", [True, False])
async def test_tool_that_stands_in_needs_permission(permit_first, permitted):
    allowed = ["broken", *(["look_elsewhere"] if permitted else [])]
    policies = [Permit([{"tool": allowed}]), FallbackStrategy(0, {"broken": "look_elsewhere"})]
    await agent_that(call("broken", order="B-2"), *(policies if permit_first else policies[::-1])).run("go")
    assert ran == ([("look_elsewhere", "B-2")] if permitted else [])


@pytest.mark.parametrize("permit_first", [True, False])
async def test_equal_tool_needs_permission(permit_first):
    policies = [Permit([{"tool": ["look_elsewhere"]}]), Equals("look", "look_elsewhere")]
    for asks in ("look", "look_elsewhere"):
        await agent_that(call(asks), *(policies if permit_first else policies[::-1])).run("go")
    assert ran == [("look_elsewhere", "A-1")]


@pytest.mark.parametrize("permit_first", [True, False])
@pytest.mark.parametrize(("yen", "paid"), [(90, [("pay", 90.0, "shop")]), (5000, [])])
async def test_approver_cannot_allow_what_is_not_permitted(permit_first, yen, paid):
    policies = [Permit([CLERK], roles=ROLES), Approve("pay")]
    agent = agent_that(call("pay", yen=50), *(policies if permit_first else policies[::-1]))
    waiting = await agent.run("go", user_id="ann")
    answers = {key: {"args": {"yen": yen}} for key in waiting.questions}
    if not paid:
        with pytest.raises(InvalidState, match="not permitted"):
            await agent.resume(waiting.run_id, answers)
    else:
        assert (await agent.resume(waiting.run_id, answers)).completed
    assert ran == paid


async def test_role_that_was_taken_away_while_a_question_waited_is_gone(tmp_path):
    roles = {"ann": ["clerk"]}
    agent = agent_that(
        call("pay", yen=50),
        Permit([CLERK], roles=lambda user: roles[user]),
        Approve("pay"),
        journal=SqliteJournal(tmp_path / "j.db"),
    )
    waiting = await agent.run("go", user_id="ann")
    roles["ann"] = []
    result = await agent.resume(waiting.run_id, dict.fromkeys(waiting.questions, "yes"))
    assert (ran, "no rule allows" in result.output) == ([], True)


class Generous(Policy):
    """Changes the call on its way to the tool."""

    async def tool(self, call, next, view):
        return await next(replace(call, args={"yen": 5000}))


@pytest.mark.parametrize("permit_first", [True, False])
async def test_call_that_a_policy_has_changed_needs_permission_as_it_is_run(permit_first):
    policies = [Permit([CLERK], roles=ROLES), Generous()]
    agent = agent_that(call("pay", yen=5), *(policies if permit_first else policies[::-1]))
    result = await agent.run("go", user_id="ann")
    assert (ran, "small payments" in result.output) == ([], True)


async def test_cached_result_is_not_for_a_user_without_permission(tmp_path):
    permit = Permit([{"tool": "look", "user": "ann"}])
    for policies in ([Cache(path=tmp_path / "c.db"), permit], [permit, Cache(path=tmp_path / "c.db")]):
        for user in ("ann", "eve"):
            agent = agent_that(call("look"), *policies)
            (result,) = await finished(agent, await agent.run("go", user_id=user))
            assert result.not_run is (user == "eve")


async def test_replay_runs_nothing_that_is_not_permitted():
    journal = MemoryJournal()
    open_to_all = agent_that(call("look"), Permit([{"tool": "*"}]), journal=journal)
    result = await open_to_all.run("go", user_id="eve")
    ran.clear()
    closed = agent_that(call("look"), Permit([{"tool": "*", "user": "ann"}]), journal=journal)
    replayed = await closed.replay(result.run_id, rerun_pure_tools=True)
    assert (replayed.same, ran) == (False, [])
    assert (await open_to_all.replay(result.run_id, rerun_pure_tools=True)).same
    assert ran == [("look", "A-1")]


# Children and handoffs


def delegating(child, *policies, **more):
    @tool(effect="idempotent")
    async def ask_clerk(context: ToolContext) -> str:
        """Ask the clerk."""
        return (await context.run_child(child, "go")).output

    return agent_that(call("ask_clerk"), *policies, tools=[ask_clerk, pay], **more)


@pytest.mark.parametrize(
    ("rules", "paid"),
    [
        ([{"tool": "ask_clerk"}], False),
        ([{"tool": "ask_clerk"}, {"tool": "pay", "agent": "clerk"}], False),  # the child would have more than its parent
        ([{"tool": "ask_clerk"}, {"tool": "pay", "agent": "desk"}], False),
        ([{"tool": "ask_clerk"}, {"tool": "pay", "agent": ["desk", "clerk"]}], True),
        ([{"tool": "*"}, {"tool": "pay", "agent": "clerk", "effect": "deny"}], False),
        ([{"tool": "ask_clerk"}, {"tool": "pay", "path": ["desk", "desk/clerk"]}], True),
        ([{"tool": "ask_clerk"}, {"tool": "pay", "path": ["desk", "clerk"]}], False),
        ([{"tool": "*"}, {"tool": "pay", "path": "*/clerk", "effect": "deny"}], False),
    ],
)
async def test_child_never_has_more_than_its_parent(rules, paid):
    clerk = agent_that(call("pay", yen=5), name="clerk")
    await delegating(clerk, Permit(rules)).run("go", user_id="ann")
    assert bool(ran) is paid


async def test_grandchild_needs_the_permission_of_all_above():
    for allowed, paid in [(["desk", "middle", "clerk"], True), (["desk", "clerk"], False), (["middle", "clerk"], False)]:
        ran.clear()
        middle = delegating(agent_that(call("pay", yen=5), name="clerk"), name="middle")
        await delegating(middle, Permit([{"tool": "ask_clerk"}, {"tool": "pay", "agent": allowed}])).run("go")
        assert bool(ran) is paid, allowed


async def test_childs_own_permit_holds_as_well_and_sees_the_path():
    for path, paid in [("desk/clerk", True), ("clerk", False), ("other/*", False)]:
        ran.clear()
        clerk = agent_that(call("pay", yen=5), Permit([{"tool": "pay", "path": path}]), name="clerk")
        desk = delegating(clerk)
        result = await desk.run("go")
        assert bool(ran) is paid, path
        (child,) = await desk.journal.runs(parent=result.run_id)
        clerk.journal = desk.journal
        assert (await clerk.replay(child.run_id)).same


async def test_child_cannot_get_around_its_parents_permit():
    permit = Permit([{"tool": "ask_clerk"}, {"tool": ["pay"], "where": {"yen": {"at_most": 100}}}, {"tool": "broken"}])
    changing = agent_that(call("pay", yen=5), Generous(), name="clerk")
    standing_in = agent_that(call("broken"), FallbackStrategy(0, {"broken": "look_elsewhere"}), name="clerk")
    for clerk in (changing, standing_in):
        await delegating(clerk, permit).run("go")
    assert ran == []
    edited = agent_that(call("pay", yen=5), Approve("pay"), name="clerk")
    desk = delegating(edited, permit)
    waiting = await desk.run("go")
    await desk.resume(waiting.run_id, {key: {"args": {"yen": 5000}} for key in waiting.questions})
    assert ran == []


@pytest.mark.parametrize(("yen", "paid"), [(90, [("pay", 90.0, "shop")]), (5000, [])])
async def test_approver_of_a_childs_call_is_held_to_the_childs_permit(yen, paid):
    permit = Permit([{"tool": "pay", "path": "desk/clerk", "where": {"yen": {"at_most": 100}}}])
    desk = delegating(agent_that(call("pay", yen=5), permit, Approve("pay"), name="clerk"))
    waiting = await desk.run("go")
    await desk.resume(waiting.run_id, {key: {"args": {"yen": yen}} for key in waiting.questions})
    assert ran == paid


@pytest.mark.parametrize("way", ["transfer", "delegate"])
@pytest.mark.parametrize(("handoff", "handed"), [("billing", True), ("bill*", True), ("*", True), ("clerk", False)])
async def test_handoff_needs_a_rule(way, handoff, handed):
    asks = call(f"{way}_to_agent", agent="billing", **({"reason": "x"} if way == "transfer" else {"task": "x"}))
    billing = agent_that("hello from billing", name="billing")
    desk = agent_that(asks, Permit([{"tool": "*"}, {"handoff": handoff}]), team=[billing])
    result = await desk.run("go")
    (answer,) = await finished(desk, result)
    assert (not answer.not_run) is handed
    assert ("no rule allows hand_over 'billing'" in (answer.error or "")) is not handed


@pytest.mark.parametrize(("handoff", "handed"), [("*", True), ("billing", False)])
async def test_delegation_without_a_named_agent_needs_a_rule_for_all(handoff, handed):
    billing = agent_that("hello from billing", name="billing")
    team = Team((billing,), roles={"billing": Role("bills")})
    desk = agent_that(call("delegate_to_agent", task="bills"), Permit([{"handoff": handoff}]), team=team)
    (answer,) = await finished(desk, await desk.run("go"))
    assert (not answer.not_run) is handed


@pytest.mark.parametrize(("agent", "paid"), [("billing", True), ("desk", False)])
async def test_roots_permit_holds_after_a_transfer_for_the_agent_at_work(agent, paid):
    replies = iter([call("pay", yen=5), "done"])
    billing = Agent(ScriptedModel(lambda request: next(replies)), [pay], name="billing")
    permit = Permit([{"handoff": "billing", "agent": "desk"}, {"tool": "pay", "agent": agent}])
    await agent_that(call("transfer_to_agent", agent="billing", reason="x"), permit, team=[billing]).run("go")
    assert bool(ran) is paid


# From a file


async def test_permissions_of_a_file(tmp_path):
    (tmp_path / "some_tools.py").write_text('def double(n: int) -> int:\n    "Double."\n    return 2 * n\n')
    (tmp_path / "s.json").write_text('[{"calls": [{"name": "double", "args": {"n": 4}}]}, "done"]')
    rules = "roles: {ann: [clerk]}\nrules:\n  - {name: small, role: clerk, tool: double, where: {n: {less_than: 5}}}\n"
    (tmp_path / "permissions.yaml").write_text(rules)
    agents = "agents: {desk: {model: scripted/s.json, tools: ['some_tools:double']}}\njournal: memory\n"
    inline = "permissions:\n" + "".join(f"  {line}\n" for line in rules.splitlines())
    for written in (agents + inline, agents + "permissions: permissions.yaml\n"):
        path = tmp_path / "kaname.yaml"
        path.write_text(written)
        for user, allowed in (("ann", True), ("eve", False)):
            agent = Agent(load_config(path))
            (answer,) = await finished(agent, await agent.run("go", user_id=user))
            assert (answer.output == 8, answer.not_run) == (allowed, not allowed)


@pytest.mark.parametrize(("agent", "allowed"), [("flow", True), ("desk", False)])
async def test_permissions_of_a_file_hold_for_its_workflows(tmp_path, agent, allowed):
    (tmp_path / "some_tools.py").write_text('def double(n: int) -> int:\n    "Double."\n    return 2 * n\n')
    steps = "steps:\n    - {name: twice, tool: double, args: {n: 4}}\n"
    (tmp_path / "flow.yaml").write_text(f"workflow:\n  name: flow\n  {steps}")
    (tmp_path / "s.json").write_text('["done"]')
    (tmp_path / "kaname.yaml").write_text(
        "agents: {desk: {model: scripted/s.json, tools: ['some_tools:double']}}\njournal: memory\nworkflows: [flow.yaml]\n"
        f"permissions: {{rules: [{{tool: double, agent: {agent}}}]}}\n"
    )
    config = load_config(tmp_path / "kaname.yaml")
    (flow,) = configured_workflows(config, {"desk": Agent(config)}, "memory")
    result = await flow.run()
    assert (result.completed, "no rule allows" in result.stop.detail) == (allowed, not allowed)


async def test_permissions_of_a_file_deny_a_tool_by_a_wrong_name(tmp_path):
    (tmp_path / "s.json").write_text('["done"]')
    desk, denying = (
        "desk: {model: scripted/s.json, tools: [calculator]}",
        "permissions: {rules: [{tool: calculater, effect: deny}]}",
    )
    (tmp_path / "kaname.yaml").write_text(f"agents: {{{desk}}}\njournal: memory\n{denying}\n")
    with pytest.raises(ConfigError, match="did you mean 'calculator'"):
        await Agent(load_config(tmp_path / "kaname.yaml")).run("go")
    (tmp_path / "kaname.yaml").write_text(
        f"agents: {{{desk}, other: {{model: scripted/s.json}}}}\njournal: memory\n{denying}\n"
    )
    assert (await Agent(load_config(tmp_path / "kaname.yaml")).run("go")).completed, "it can be a tool of the other agent"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "permissions:\n  rules:\n    - tool: a\n    - {tool: b, where: {x: {at_mots: 1}}}\n",
            r"yaml:5: .*did you mean 'at_most'",
        ),
        ("permissions:\n  rules:\n    - tool: a\n    - tols: b\n", r"yaml:5: .*did you mean 'tool'"),
        ("permissions:\n  rules:\n    - user: a\n", r"yaml:4: .*must name a tool"),
        ("permissions:\n  rules: []\n", r"yaml:2: .*at least one rule"),
        ("permissions: {}\n", r"yaml:2: .*either rules or"),
        ("permissions:\n", r"yaml:2: "),
        ("permissions: other.yaml\n", r"other.yaml:2: .*did you mean 'tool'"),
        ("permissions: nowhere.yaml\n", r"nowhere.yaml:1: .*cannot be read"),
    ],
)
def test_permissions_of_a_file_with_mistakes_are_told_with_their_line(tmp_path, text, told):
    (tmp_path / "other.yaml").write_text("rules:\n  - tols: b\n")
    (tmp_path / "kaname.yaml").write_text("agents: {desk: {model: scripted/s.json}}\n" + text)
    with pytest.raises(ConfigError, match=told):
        load_config(tmp_path / "kaname.yaml")


# Cedar

CEDAR = """
@id("small payments")
permit(principal in Role::"clerk", action == Action::"use", resource == Tool::"pay") when { context.args.yen.lessThan(decimal("100.0")) };
@id("no evil")
forbid(principal, action, resource) when { context.args has to && context.args.to like "evil*" };
permit(principal, action == Action::"read", resource) when { resource == Data::"order:1" };
permit(principal == Agent::"desk", action, resource == Tool::"look");
"""


async def test_cedar_policies_decide(tmp_path):
    pytest.importorskip("cedarpy")
    (tmp_path / "p.cedar").write_text(CEDAR)
    permit = Permit(cedar=tmp_path / "p.cedar", roles=ROLES)
    for user, args, told in [
        ("ann", {"yen": 99.5}, "'small payments' allows it"),
        ("ann", {"yen": 100.5}, "no rule allows"),
        ("ann", {"yen": 5.0, "to": "evil corp"}, "'no evil' denies it"),
        ("eve", {"yen": 5.0}, "no rule allows"),
        ("ann", {"yen": "5"}, "cannot be evaluated"),
        ("ann", {}, "cannot be evaluated"),
        ("ann", {"yen": 5.0, "x": 1e-9}, "cannot be evaluated"),
        ("ann", {"yen": 5.0, "x": 2**70}, "cannot be evaluated"),
        ("ann", {"yen": 5.0, "x": {"__entity": {"type": "Role", "id": "x"}}}, "cannot be evaluated"),
    ]:
        verdict = permit.check_permissions(user, "use", "pay", arguments=args)
        assert (told in verdict.reason, bool(verdict)) == (True, "allows it" in told), (args, verdict)
    assert permit.check_permissions("eve", "read", "order:1")
    assert not permit.check_permissions("eve", "read", "order:2")
    for user, asks, count in [("ann", call("pay", yen=99.0), 1), ("eve", call("pay", yen=1.0), 1), ("", call("look"), 2)]:
        await agent_that(asks, permit).run("go", user_id=user)
        assert len(ran) == count
    known = [{"uid": {"type": "User", "id": "zoe"}, "attrs": {}, "parents": [{"type": "Role", "id": "clerk"}]}]
    described = Permit(cedar=tmp_path / "p.cedar", entities=known)
    assert described.check_permissions("zoe", "use", "pay", arguments={"yen": 5.0})


def test_cedar_file_with_a_mistake_is_refused(tmp_path):
    pytest.importorskip("cedarpy")
    (tmp_path / "p.cedar").write_text("permit(principal, action, resource")
    with pytest.raises(ConfigError, match="cannot be used"):
        Permit(cedar=tmp_path / "p.cedar")


def test_cedar_that_is_not_installed_is_told_with_the_command(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "cedarpy", None)
    with pytest.raises(ConfigError, match=r"cedarpy is not installed.*cedar\]"):
        Permit(cedar=tmp_path / "p.cedar")
