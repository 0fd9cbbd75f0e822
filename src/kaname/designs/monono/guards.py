"""MONONO's guards: `Guardrail` for what goes in, what comes out and what tools do; `TokenGuard` for the use of tools."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ...core.demands import Refuse
from ...core.durations import is_whole
from ...core.errors import ConfigError
from ...core.messages import ToolCall
from ...core.notices import notice
from ...kernel.chain import overrides
from ...kernel.ports import Policy
from ...policies.content.guardrails.policy import Guardrails
from ...policies.content.guardrails.tool_rules import ToolRule
from ...policies.content.guardrails.verdicts import GuardrailAction, run_check

if TYPE_CHECKING:
    from ...kernel.view import RunView

_CHECKS = ("check_input", "check_output", "check_tool")


class Guardrail(Guardrails):
    """`Guardrails` with a check of every tool call. Override `check_input`, `check_output` and `check_tool`."""

    def check_tool(self, name: str, arguments: Mapping[str, Any]) -> Any:
        """Judge a call before it is executed. It can be async.

        Args:
            name: The tool.
            arguments: The arguments as the tool receives them: parsed and validated.

        Returns:
            None or True to allow the call, the reason (or False) to refuse it, or a `GuardrailResult`. The model is told the
            reason.
        """

    async def demand(self, call: ToolCall, view: RunView) -> Refuse | None:
        if overrides(self, "check_tool", Guardrail):

            def check_tool(arguments: Any) -> Any:
                return self.check_tool(call.name, arguments)

            verdict = await run_check(check_tool, call.args, self.check_seconds)  # type: ignore[arg-type]
            if verdict.action is GuardrailAction.BLOCK:
                return Refuse(verdict.reason)
            if verdict.action is GuardrailAction.WARN:
                await view.warn("guardrails", verdict.reason)
        return await super().demand(call, view)


class TokenGuard(Guardrail):
    """Control which tools an agent uses, how often, with which arguments, and up to how many tokens.

    Args:
        max_tokens: No tool is run once the turn has used so many tokens. The model then answers without.
        allowed_tools: Names of the tools that can be used. By default all.
        max_calls: How often a tool can be called in a turn: a number for each, or a mapping of names to numbers.
        arguments: By tool and argument, a regular expression that the whole value has to match, or a function.
    """

    def __init__(
        self,
        max_tokens: int | None = None,
        *,
        allowed_tools: Iterable[str] | None = None,
        max_calls: int | Mapping[str, int] | None = None,
        arguments: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        if max_tokens is not None and not is_whole(max_tokens, 1):
            raise ConfigError.of(
                "monono.max_tokens", "max_tokens must be an integer of at least 1, or None, not {it!r}", it=max_tokens
            )
        calls = max_calls if isinstance(max_calls, Mapping) else {}
        every = None if isinstance(max_calls, Mapping) else max_calls
        about, allowed = arguments or {}, None if allowed_tools is None else tuple(allowed_tools)
        names = dict.fromkeys([*(allowed or ()), *calls, *about])
        rules = [
            ToolRule(name, allowed is None or name in allowed, calls.get(name, every), about.get(name, {})) for name in names
        ]
        rules += [ToolRule("*", allowed is None, every)] if allowed is not None or every is not None else []
        super().__init__(None, None, tools=rules)
        self.max_tokens = max_tokens

    async def demand(self, call: ToolCall, view: RunView) -> Refuse | None:
        used = view.state.spent.usage.total
        if self.max_tokens is not None and used >= self.max_tokens:
            message = notice(
                "monono.tokens_used",
                "{name} was not run: this turn has used {used:,} tokens, and the limit is {limit:,}; answer without it",
                name=call.name,
                used=used,
                limit=self.max_tokens,
            )
            return Refuse(message)
        return await super().demand(call, view)


def as_policy(given: Any) -> list[Policy]:
    """Return a guardrail as a policy: itself, or a form of an object with checks of its own. None is none."""
    if given is None:
        return []
    if isinstance(given, Policy):
        return [given]
    checks = {name: getattr(given, name) for name in _CHECKS if callable(getattr(given, name, None))}
    if not checks:
        raise ConfigError.of(
            "monono.guardrail",
            "{it!r:.100} is not a guardrail: it has no check_input(text), check_output(text) or check_tool(name, arguments)",
            it=given,
        )
    made = Guardrail(None, None)
    for name, check in checks.items():
        setattr(made, name, check)
    return [made]
