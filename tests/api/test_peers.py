"""Names of Pydantic AI, LangGraph and OpenAI Agents: an error says what they are called here."""

import inspect
import re
import subprocess
import sys

import pytest

import kaname
from kaname import Agent, AgentError, ScriptedModel
from kaname.api.peers.names import ATTRIBUTES, PARAMETERS
from kaname.api.result import Result
from kaname.cli.messages import translated


def agent():
    return Agent(ScriptedModel(["hi"]), journal="memory")


@pytest.mark.parametrize(("name", "ours"), PARAMETERS["Agent"].items())
def test_parameter_of_a_peers_agent_is_explained(name, ours):
    with pytest.raises(TypeError, match=re.escape(f"Agent() has no parameter {name!r}. In kaname it is: {ours}")):
        Agent(ScriptedModel([]), **{name: None})


@pytest.mark.parametrize(("name", "ours"), PARAMETERS["run"].items())
def test_parameter_of_a_peers_run_is_explained(name, ours):
    with pytest.raises(TypeError, match=re.escape(f"run() has no parameter {name!r}. In kaname it is: {ours}")):
        agent().run("hi", **{name: None})


@pytest.mark.parametrize("verb", ["run_sync", "steps", "resume", "fork"])
def test_every_verb_explains_what_it_does_not_take(verb):
    with pytest.raises(AgentError, match=r"has no parameter 'thread_id'. In kaname it is: .*session_id="):
        getattr(agent(), verb)("x", thread_id="1")


@pytest.mark.parametrize("kind", ATTRIBUTES)
def test_attribute_of_a_peer_is_explained(kind):
    held = agent() if kind == "Agent" else agent().run_sync("hi")
    for name, ours in ATTRIBUTES[kind].items():
        with pytest.raises(AttributeError, match=re.escape(f"{kind} has no attribute {name!r}. In kaname it is: {ours}")):
            getattr(held, name)


def test_mistyped_name_is_answered_with_the_likely_one():
    with pytest.raises(TypeError, match="Agent\\(\\) has no parameter 'instruction'; did you mean 'instructions'"):
        Agent(ScriptedModel([]), instruction="x")
    with pytest.raises(TypeError, match="run\\(\\) has no parameter 'sesion_id'; did you mean 'session_id'"):
        agent().run("hi", sesion_id="x")


def test_missing_attribute_stays_one_and_copies_still_work():
    import copy

    assert not hasattr(agent(), "never_heard_of")
    with pytest.raises(AttributeError, match="^'Agent' object has no attribute 'never_heard_of'$"):
        agent().never_heard_of  # noqa: B018
    result = agent().run_sync("hi")
    assert copy.copy(result).output == "hi"


def test_error_of_the_programs_own_is_left_as_it_is():
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'user_input'"):
        agent().run()
    with pytest.raises(AgentError, match="instructions is a text"):
        Agent(ScriptedModel([]), instructions=7)


def test_explanation_is_there_in_japanese(monkeypatch):
    monkeypatch.setenv("KANAME_LANG", "ja")
    with pytest.raises(AgentError) as caught:
        Agent(ScriptedModel([]), output_type=int)
    assert translated(caught.value) == "Agent() に引数 'output_type' はありません。kaname では Agent(output=…) です"


def test_what_is_named_instead_exists():
    told = {*[ours for table in (*PARAMETERS.values(), *ATTRIBUTES.values()) for ours in table.values()]}
    surface = {
        "Agent": set(inspect.signature(Agent).parameters),
        **{f"agent.{verb}": set(inspect.signature(getattr(Agent, verb)).parameters) for verb in ("run", "resume", "fork")},
    }
    for ours in told:
        for called, inside in re.findall(r"(Agent|agent\.(?:run|resume|fork))\(((?:[^()]|\([^()]*\))*)\)", ours):
            named = set(re.findall(r"(?:^|, )(\w+)=", re.sub(r"\([^()]*\)", "", inside)))
            assert named <= surface[called], ours
        for name in re.findall(
            r"\b(Guardrails|Approve|Retry|FallbackStrategy|Memory|ScriptedModel|ToolContext|max_steps|deadline)\b", ours
        ):
            assert hasattr(kaname, name)
        for name in re.findall(r"\bagent\.(\w+)", ours):
            assert hasattr(agent(), name), ours
        for name in re.findall(r"\bresult\.(\w+)", ours):
            assert name in Result.__match_args__ or hasattr(Result, name), ours


def test_no_name_of_ours_is_taken_for_a_peers():
    assert not PARAMETERS["Agent"].keys() & inspect.signature(Agent).parameters.keys()
    assert not PARAMETERS["run"].keys() & inspect.signature(Agent.run).parameters.keys()
    assert not [name for name in ATTRIBUTES["Agent"] if hasattr(Agent, name)]
    assert not [name for name in ATTRIBUTES["Result"] if name in Result.__match_args__ or hasattr(Result, name)]


def test_table_is_loaded_only_when_a_name_was_wrong():
    code = (
        "import sys; from kaname import Agent, ScriptedModel\n"
        "Agent(ScriptedModel(['hi']), journal='memory').run_sync('hi')\n"
        "assert 'kaname.api.peers.names' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
