"""Name kaname's own parameter or attribute for one of another agent library, in the error that it raises."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from inspect import Parameter, signature
from typing import Any, NoReturn

from ...core.errors import UnknownParameter
from ...core.notices import notice

_INSTRUCTIONS = 'Agent(instructions="…")'
_OUTPUT = "Agent(output=…)"
_SETTINGS = 'Agent(settings={"temperature": 0})'
_STEPS = "Agent(stops=max_steps(20))"
_SESSION = 'agent.run("…", session_id="…")'
_DEPS = 'agent.run("…", deps=…), ToolContext[…]'
_GUARDRAILS = "Agent(policies=[Guardrails(…)])"
_SINKS = "Agent(sinks=[…])"
_STREAM = 'async for chunk in agent.run("…")'
_INPUT = 'agent.run("…")'
_AWAIT = 'await agent.run("…")'
_TOOL = "@kaname.tool, Agent(tools=[…])"
_MESSAGES = "result.messages"


def _each(names: str, ours: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), ours)


PARAMETERS: Mapping[str, Mapping[str, str]] = {
    "Agent": {
        **_each(
            "system_prompt system prompt system_message state_modifier role goal backstory handoff_description", _INSTRUCTIONS
        ),
        **_each("output_type result_type response_format response_model output_schema", _OUTPUT),
        **_each("deps_type context_type context_schema deps", _DEPS),
        **_each("model_settings temperature max_tokens top_p tool_choice", _SETTINGS),
        **_each("llm", "Agent(model=…)"),
        **_each("toolsets functions", "Agent(tools=[…], mcp_servers={…})"),
        **_each("handoffs sub_agents agents", "Agent(team=[…])"),
        **_each("input_guardrails output_guardrails guardrails", _GUARDRAILS),
        **_each("middleware", "Agent(policies=[…])"),
        **_each("retries max_retries output_retries", "Agent(policies=[FallbackStrategy(max_retries=2), Retry(tries=5)])"),
        **_each("interrupt_before interrupt_after interrupt_on", 'Agent(policies=[Approve("…")])'),
        **_each("hooks callbacks instrument event_stream_handler", _SINKS),
        **_each("checkpointer db", 'Agent(journal="app.db")'),
        **_each("store memory history_processors", "Agent(context=[Memory()])"),
        **_each("max_turns max_iterations max_steps recursion_limit usage_limits", _STEPS),
        **_each("timeout", 'Agent(stops=deadline("5m"))'),
    },
    "run": {
        **_each("thread_id conversation_id session config previous_response_id", _SESSION),
        **_each("message_history messages history chat_history", _SESSION),
        **_each("user_prompt prompt input query message", _INPUT),
        **_each("context dependencies", _DEPS),
        **_each("user", 'agent.run("…", user_id="…")'),
        **_each("instructions system_prompt", _INSTRUCTIONS),
        **_each("output_type result_type response_format", _OUTPUT),
        **_each("model_settings temperature max_tokens run_config", 'agent.run("…", settings={"temperature": 0})'),
        **_each("max_turns max_steps recursion_limit usage_limits", _STEPS),
        **_each("timeout", 'Agent(stops=deadline("5m"))'),
        **_each("toolsets tools", "Agent(tools=[…], mcp_servers={…})"),
        **_each("hooks callbacks event_stream_handler", _SINKS),
        **_each("stream stream_mode", _STREAM),
        **_each("deferred_tool_results command", 'agent.resume(run_id, answers={"…": "yes"})'),
    },
}
ATTRIBUTES: Mapping[str, Mapping[str, str]] = {
    "Agent": {
        **_each("run_stream run_streamed run_stream_events stream astream stream_events astream_events", _STREAM),
        **_each("iter", 'agent.steps("…")'),
        **_each("invoke", 'agent.run_sync("…")'),
        **_each("ainvoke arun kickoff kickoff_async run_async", _AWAIT),
        **_each("tool tool_plain add_tool toolset", _TOOL),
        **_each("system_prompt instructions", _INSTRUCTIONS),
        **_each("output_type output_validator result_validator", _OUTPUT),
        **_each("as_tool", "Agent(team=[…])"),
        **_each("override", "Agent(ScriptedModel([…]))"),
        **_each("get_state get_state_history aget_state", "await agent.result(run_id)"),
        **_each("update_state aupdate_state", "agent.fork(run_id, at)"),
        **_each("clone copy", 'Agent(model=…, tools=[*agent.tools.values()], instructions="…")'),
        **_each("to_a2a to_ag_ui to_web", "kaname serve"),
        **_each("to_cli to_cli_sync", "kaname chat"),
        **_each("model", "agent.recipe.model"),
    },
    "Result": {
        **_each("final_output data value final_answer", "result.output"),
        **_each("all_messages new_messages to_input_list", _MESSAGES),
        **_each("new_items intermediate_steps", "result.steps"),
        **_each("interruptions", "result.questions"),
        **_each("last_agent", "result.state.agent"),
        **_each("stream_events stream_text", _STREAM),
    },
}


def explain(function: Callable[..., Any], options: Iterable[str], owner: Any) -> None:
    """Raise `UnknownParameter` if one of the options is not a parameter of the function. The error names ours.

    `owner`: the class whose method it is.
    """
    known = signature(function).parameters
    if any(one.kind is Parameter.VAR_KEYWORD for one in known.values()):
        return
    own = [name for name in known if name != "self"]
    called = "Agent" if function.__name__ == "__init__" else function.__name__
    for name in options:
        if name not in known:
            raise UnknownParameter(called, name, _ours(called, name, owner), own) from None


def _ours(called: str, name: str, owner: Any) -> str:
    """Return the parameter of kaname for a peer's name, or for one of ours that belongs to the other call."""
    here, there = ("Agent", "run") if called == "Agent" else ("run", "Agent")
    if name in PARAMETERS[here]:
        return PARAMETERS[here][name]
    taken = signature(owner.run if there == "run" else owner.__init__).parameters
    if name in taken and name != "self":
        return f'agent.run("…", {name}=…)' if there == "run" else f"Agent({name}=…)"
    return PARAMETERS[there].get(name, "")


def raise_missing(held: object, name: str, result: type | None = None) -> NoReturn:
    """Raise the `AttributeError` for an attribute that is not there; the message names ours. `result`: what a run returns."""
    if (found := _of_result(result, name)) is not None:
        told = notice(
            "run.not_awaited",
            "a Run has no attribute {name!r}; its result has: await the run (result = {waits}), or use run_sync "
            "(result = {sync}). Then: {found}",
            name=name,
            waits=_AWAIT,
            sync='agent.run_sync("…")',
            found=found,
        )
        raise AttributeError(told)
    kind = next((one.__name__ for one in type(held).__mro__ if one.__name__ in ATTRIBUTES), "")
    if (ours := ATTRIBUTES.get(kind, {}).get(name)) is None:
        raise AttributeError(f"{type(held).__name__!r} object has no attribute {name!r}", name=name, obj=held)
    told = notice(
        "peers.attribute",
        "{kind} has no attribute {name!r}. In kaname it is: {ours}",
        kind=kind,
        name=name,
        ours=ours,
    )
    raise AttributeError(told)


def _of_result(result: type | None, name: str) -> str | None:
    """Return the expression that reads the attribute from the result of a run, if a result has it, also under a peer's name."""
    if result is None or name.startswith("_"):
        return None
    return f"result.{name}" if hasattr(result, name) else ATTRIBUTES["Result"].get(name)
