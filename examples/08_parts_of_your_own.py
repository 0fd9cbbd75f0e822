"""A model, a policy, a sink, a stop rule of your own: one small class or function each."""

import asyncio

from kaname import Agent, Message, ModelReply, Policy, Stop, ToolCall, ToolResult, tool
from kaname.core.messages import Text


class Parrot:
    """A model: a name, and `reply`."""

    name = "parrot"

    async def reply(self, request, emit):
        heard = request.messages[-1]
        if heard.role == "user":
            return ModelReply(Message("assistant", (ToolCall("", "shout", {"text": heard.text}),)), "tool_use")
        said = str(heard.results[0].output)
        await emit(said)
        return ModelReply(Message("assistant", (Text(said),)), "end_turn")


class Polite(Policy):
    """A policy: wraps every model or tool call."""

    async def tool(self, call, next, view):
        result = await next(call)
        return ToolResult(f"{result.output}, please")


def watch(event):
    """A sink: sees every fact and delta."""
    print("  saw", type(event.body).__name__)


def not_too_loud(state, step):
    """A stop rule: judges the step that is proposed."""
    return Stop("blocked", "too loud") if any("!!!" in m.text for m in state.messages) else None


@tool(effect="pure")
def shout(text: str) -> str:
    """Shout."""
    return text.upper()


agent = Agent(Parrot(), [shout], policies=[Polite()], sinks=[watch], stops=not_too_loud, journal="memory")


async def main() -> None:
    print((await agent.run("a biscuit")).output)
    stop = (await agent.run("a biscuit!!!")).stop
    print(f"{stop.kind}: {stop.detail}")


asyncio.run(main())

# prints:
#   saw ToolFinished
#   A BISCUIT, please
#   blocked: too loud
