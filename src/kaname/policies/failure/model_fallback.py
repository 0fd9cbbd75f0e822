"""Ask the next model when one fails, and spread the load over equal ones."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Sequence
from typing import TYPE_CHECKING, Any
from zlib import crc32

from ...core.errors import (
    ConfigError,
    ContextTooLong,
    Halt,
    ModelDenied,
    ModelError,
    ModelNotFound,
    ModelTimeout,
    ModelUnavailable,
    ModelUnreachable,
    RateLimited,
    ReplyGarbled,
    RequestRefused,
)
from ...core.messages import ModelReply, ModelRequest
from ...core.notices import notice
from ...core.record import replace
from ...kernel.bases import PolicyInfo
from ...kernel.ports import Model, ModelHandler, Policy
from .breaker import Instance, Limits
from .portable import author_of, left_out, settings_for, signed, without_seals

if TYPE_CHECKING:
    from ...kernel.view import RunView

_AT_LEAST = 1.0  # seconds until a list of which no model can be called is tried again
_TURN = 5.0  # seconds to wait for a model whose rate limit holds the call back, when no other has answered


class ModelFallback(Policy):
    """Asks the next model of a list when one fails. `Agent(["openai/…", "anthropic/…"])` adds it.

    Args:
        models: The models to ask after the agent's own, in order. A list inside the list holds equals, such as the same model
            with another key: each call goes to the one with the fewest calls under way.
        on: The kinds of `ModelError` after which the next model is asked. By default all but `RequestRefused` and
            `ContentFiltered`: another provider would be asked to do what this one refused.
        failures: A model that fails so often in a row (default 5) within `window` seconds (default 60) is not called for a
            while. One that denies access or does not exist is not called for a while after its first failure.
        pause: Seconds (default 15) until such a model gets a single call, to find out whether it works again; if the provider
            says how long to wait, that long instead.

    Words that a failed model has already shown are withdrawn: readers get a `status` chunk `restarted`, and the recorded
    message holds only the words of the model that answered. `reply.model` and `result.models` name it.
    """

    place = "model"
    about = PolicyInfo(is_default=True, chooses_models=True)
    on: tuple[type[ModelError], ...] = (
        *(RateLimited, ModelUnavailable, ModelUnreachable, ModelTimeout, ReplyGarbled),
        *(ModelDenied, ModelNotFound, ContextTooLong),
    )

    def __init__(
        self,
        models: Sequence[Any] = (),
        *,
        on: Sequence[type[ModelError]] | None = None,
        failures: int = 5,
        window: float = 60.0,
        pause: float = 15.0,
    ) -> None:
        self.models = models
        if failures < 1 or window <= 0 or pause <= 0:
            raise ConfigError.of(
                "model_fallback.numbers",
                "ModelFallback: failures must be at least 1, and window and pause greater than 0, not {failures!r}, "
                "{window!r} and {pause!r}",
                failures=failures,
                window=window,
                pause=pause,
            )
        if on is not None:
            self.on = tuple(on)
        if not all(isinstance(kind, type) and issubclass(kind, ModelError) for kind in self.on):
            raise ConfigError.of(
                "model_fallback.on", "ModelFallback: on must list subclasses of ModelError, not {on!r}", on=self.on
            )
        self._limits = Limits(failures, window, pause)
        self.tiers: tuple[tuple[Instance, ...], ...] = ()

    def around(self, tiers: Sequence[Sequence[Model]]) -> ModelFallback:
        """Return a copy of this policy with all models of an agent, its own first."""
        limits = self._limits
        made = type(self)(on=self.on, failures=limits.failures, window=limits.window, pause=limits.pause)
        made.tiers = tuple([tuple([Instance(model, limits) for model in tier]) for tier in tiers])
        return made

    @property
    def all_models(self) -> list[Any]:
        return [instance.model for tier in self.tiers for instance in tier]

    @property
    def names(self) -> list[Any]:
        """Return the names of the models in order, those of equals as a list."""
        named = [[instance.name for instance in tier] for tier in self.tiers]
        return [names[0] if len(names) == 1 else names for names in named]

    async def model(self, request: ModelRequest, next: ModelHandler, view: RunView) -> ModelReply:
        asked = request.model or view.agent.model
        if not self.tiers or asked is not self.tiers[0][0].model:  # another agent of the team, or a model for this call alone
            return await next(request)
        return await _Round(self, request, next, view).answer()

    def choose(self, tried: Sequence[Instance], key: str) -> tuple[Instance, int] | None:
        """Begin a call to the best model that has not been tried. Return it with the ticket of its breaker, or None."""
        for instance in self._in_order(tried, key):
            if (ticket := instance.breaker.enter()) is not None:
                return instance, ticket
        return None

    def _in_order(self, tried: Sequence[Instance], key: str) -> Iterator[Instance]:
        """Yield the models by tier, and within a tier by the calls under way. Where these are equal, a conversation stays
        with the same model, whose cache knows it."""
        for tier in self.tiers:
            if len(tier) == 1:
                yield from [tier[0]] if tier[0] not in tried else []
                continue
            shift = crc32(key.encode("utf-8", "replace"))
            turned = [tier[(shift + place) % len(tier)] for place in range(len(tier))]
            yield from sorted([one for one in turned if one not in tried], key=lambda one: one.breaker.busy)

    def has_equals(self, instance: Instance) -> bool:
        return any(instance in tier and len(tier) > 1 for tier in self.tiers)


class _Round:
    """One model call of an agent: the models of its list, until one answers."""

    def __init__(self, policy: ModelFallback, request: ModelRequest, next: ModelHandler, view: RunView) -> None:
        self._policy, self._request, self._next, self._view = policy, request, next, view
        self._emit = request.emit or view.emit
        self._shown = False
        self._reply: Any = None
        self._tried: list[Instance] = []
        self._failures: list[ModelError] = []
        self._too_dear: Halt | None = None
        self._held: dict[Instance, float] = {}  # models whose rate limit held the call back, and for how long it still does

    async def answer(self) -> ModelReply:
        key = self._view.state.session or self._view.run_id
        while (chosen := self._policy.choose(self._tried, key)) is not None:
            self._tried.append(chosen[0])
            if await self._try(*chosen):
                return self._reply  # type: ignore[no-any-return]
        if (held := self._choose_held_back()) is not None and await self._try(*held, waits=True):
            return self._reply  # type: ignore[no-any-return]
        if self._too_dear is not None and not self._failures:
            raise self._too_dear
        raise await self._give_up([one for tier in self._policy.tiers for one in tier if one not in self._tried])

    def _choose_held_back(self) -> tuple[Instance, int] | None:
        """Begin a call to the model whose rate limit holds the call back for the shortest time, if that is short."""
        soonest = min(self._held, key=lambda one: self._held[one], default=None)
        if soonest is None or self._held[soonest] >= _TURN or (ticket := soonest.breaker.enter()) is None:
            return None
        return soonest, ticket

    async def _try(self, instance: Instance, ticket: int, *, waits: bool = False) -> bool:
        """Ask a model. Return True if it has answered. `waits`: if its rate limit holds the call back, wait for a while."""
        outcome: ModelError | bool | None = None
        try:
            await self._announce(instance, waits)
            reply = await self._ask(instance, _TURN if waits else None)
            outcome = True
            self._reply = signed(reply, instance.name) if isinstance(reply, ModelReply) else reply
        except ModelError as error:
            outcome = error if error.was_sent else None
            if type(error) is not ModelError and not isinstance(error, self._policy.on):
                raise
            self._failures.append(error)
            if not error.was_sent:
                self._held[instance] = error.retry_after or 0.0
        except Halt as dear:  # a limit on money does not allow this model; another may be cheaper
            if dear.stop.kind != "budget" or len(self._tried) == len(self._policy.all_models):
                raise
            self._too_dear = dear
            await self._view.warn("fallback", dear.stop.detail)
        except ConfigError as problem:  # such as a picture that this model does not take
            if not self._failures:
                raise
            await self._view.warn("fallback", problem.public)
        finally:
            instance.breaker.leave(ticket, outcome)
        return outcome is True

    async def _announce(self, instance: Instance, waits: bool) -> None:
        """Say why another model than the first is asked, and withdraw the words of the one before."""
        if self._shown:
            await self._show("", "restarted")
        if waits:
            told = notice("model.fallback_waits", "no other model can answer now; waiting for {model}", model=instance.name)
        elif self._failures:
            problem = self._failures[-1].public
            told = notice("model.fallback", "{problem}; asking {model} instead", problem=problem, model=instance.name)
        elif instance in self._policy.tiers[0] or self._answered_last() == instance.name:
            return
        else:
            first = self._policy.tiers[0][0]
            told = notice(
                "model.fallback_resting",
                "{first} is not called for {seconds:.0f} s because it failed before; asking {model} instead",
                first=first.name,
                seconds=first.breaker.rest,
                model=instance.name,
            )
        given = self._request.settings
        if names := left_out(instance.model, given, settings_for(instance.model, self._policy.tiers[0][0].model, given)):
            told += notice("model.fallback_settings", " (settings left out: {names})", names=", ".join(names))
        await self._view.warn("fallback", told)

    def _answered_last(self) -> str:
        replies = self._view.state.replies
        return replies[-1].reply.model if replies else ""

    async def _ask(self, instance: Instance, longest_wait: float | None) -> ModelReply:
        request, first = self._request, self._policy.tiers[0][0].model
        messages = without_seals(request.messages, instance.name)
        settings = settings_for(instance.model, first, request.settings)
        request = replace(
            request, messages=messages, settings=settings, model=instance.model, emit=self._show, longest_wait=longest_wait
        )
        try:
            return await self._next(request)
        except RequestRefused:
            bare = without_seals(messages, None)
            if self._shown or bare is messages or not self._may_be_foreign(instance):
                raise
        return await self._next(replace(request, messages=bare))

    def _may_be_foreign(self, instance: Instance) -> bool:
        """Return True if another key, or a model that is not known, may have sealed a part of the conversation."""
        said = [message for message in self._request.messages if message.role == "assistant"]
        return self._policy.has_equals(instance) or not all(author_of(message) for message in said)

    def _show(self, text: str, kind: str = "text", *more: Any) -> Awaitable[None]:
        self._shown = kind != "restarted" and (self._shown or kind != "progress")
        return self._emit(text, kind, *more)

    async def _give_up(self, resting: Sequence[Instance]) -> ModelError:
        """Return the failure that a retry is most likely to mend; that of a resting model, if no other has hope.

        The words that were shown are withdrawn if `Retry` may begin again. The last failure has not been reported yet.
        """
        best = max(self._failures, key=lambda error: (_is_hopeful(error), -(error.retry_after or 0.0)), default=None)
        if resting and (best is None or not _is_hopeful(best)):
            error = _resting_error(resting)
            best = error if best is None or error.retryable else best
        assert best is not None
        if self._failures and best is not self._failures[-1]:
            await self._view.warn("fallback", self._failures[-1].public)
        if self._shown and _is_hopeful(best):
            await self._show("", "restarted")
        return best


def _resting_error(resting: Sequence[Instance]) -> ModelError:
    """Return the error of models of which none can be called now. It says when the first of them can."""
    found = [(one.breaker.rest, one.breaker.error or ModelUnavailable(ModelUnavailable.words)) for one in resting]
    rest, error = min(found, key=lambda one: (isinstance(one[1], ModelDenied | ModelNotFound), one[0]))
    text = notice("model.all_resting", "no model can be called now: {problem}", problem=error.public)
    kind = type(error) if isinstance(error, ModelDenied | ModelNotFound) else ModelUnavailable
    after = max(rest, _AT_LEAST)
    return kind(text, provider=error.provider, model=error.model, status=error.status, retry_after=after)


def _is_hopeful(error: ModelError) -> bool:
    return error.retryable and not isinstance(error, ModelTimeout)
