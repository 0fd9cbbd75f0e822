"""Errors and signals.

AgentError                      everything that is raised for the caller
├── ConfigError                 something is set up wrongly; nothing has run
│   └── DuplicateToolError      two tools of one name
├── AgentConnectionError        a tool server cannot be reached
├── ModelError (= LLMError)     the provider failed; `.retryable`, `.retry_after`, `.status`, `.model`, `.request_id`, `.said`
│   ├── ModelDenied             401, 403: the key, or what it may do
│   ├── ModelNotFound           404: no such model, or a wrong address
│   ├── RequestRefused          400 and the like: the provider does not accept what was sent
│   ├── ContextTooLong          413, or more than the model can read
│   ├── ContentFiltered         the provider's filter withheld the answer
│   ├── RateLimited             429: `.retry_after` says when, if the provider does
│   ├── ModelUnavailable        5xx: the provider is down or overloaded
│   ├── ModelUnreachable        no connection: DNS, TLS, refused, dropped
│   ├── ModelTimeout            no answer in time
│   └── ReplyGarbled            an answer that cannot be read: incomplete JSON, a web page, nothing at all
├── ToolNotFoundError (= ToolNotFound)      `.name`
├── ToolExecutionFailed         a tool that the caller ran directly failed; `.name`, `.underlying_error`
├── RunStopped                  the run ended without its answer; `.stop` says how
│   ├── MaxStepsExceeded        `.steps`
│   └── OutputDecodingFailed
├── InvalidState                a call that makes no sense now
├── UnexpectedError             a bug, in kaname or in a model or policy of yours
├── ReplayDiverged              a replay took another decision than the record
├── AuditError                  the audit log cannot be written or read, so an action that it must record was refused
└── JournalError                the journal cannot do it; what was recorded is safe
    ├── RunNotFound
    ├── RunExists               a run of that id is there already
    ├── RunBusy                 another process executes it
    ├── RunNeeded               other runs continue from it, so it cannot be deleted alone
    ├── RunSuperseded           another process took it over; this one can no longer write
    ├── JournalFull             no room on the disk, or in the quota
    ├── DiskFailed              reading, writing or syncing failed
    ├── JournalLocked           another program holds the file
    ├── JournalUnreachable      the server of the journal is away
    ├── JournalCorrupt          what was read is not what was written
    ├── EncryptionError         the key of a file is missing or wrong (a ConfigError, too)
    └── JournalTooNew           a newer kaname made the file

Signal                          never reaches the caller: the loop turns it into a fact
├── Halt(stop, reply)           end the run
└── Suspend(key, prompt)        an answer is needed first

BadArguments                    the model sent arguments that do not fit; only the model receives the message
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .messages import ModelReply, ToolCall, Usage
from .notices import Notice, join_notices, notice
from .steps import Stop

if TYPE_CHECKING:
    from typing import Self


class AgentError(Exception):
    """Base of all errors that kaname raises.

    Args:
        run_id: The run in which it happened, or "". `agent.resume(error.run_id)` resumes that run.
        said: The provider's own words about it, for the owner, administrators and the log. Never show them to users.
    """

    run_id: str = ""
    said: str = ""

    @classmethod
    def of(cls, code: str, template: str, /, **values: Any) -> Self:
        """Return an error whose message is the notice `code`: it can be shown in other languages."""
        return cls(notice(code, template, **values))

    @property
    def public(self) -> str:
        """Return a text that can be shown to everybody."""
        return str(self)


class ConfigError(AgentError):
    """A configuration mistake. `mistakes`: each wrong line, if the configuration came from a file."""

    mistakes: tuple[str, ...] = ()


class DuplicateToolError(ConfigError): ...


class UnknownParameter(ConfigError, TypeError):
    """A keyword argument that the function does not have. `ours`: its name in kaname, if another library calls it that."""

    def __init__(self, called: str, name: str, ours: str = "", known: Iterable[str] = ()) -> None:
        if ours:
            told = notice(
                "peers.parameter",
                "{called}() has no parameter {name!r}. In kaname it is: {ours}",
                called=called,
                name=name,
                ours=ours,
            )
        else:
            told = notice("peers.no_parameter", "{called}() has no parameter {name!r}", called=called, name=name)
            told += nearest(name, known)
        super().__init__(told)


class AgentConnectionError(AgentError): ...


class ModelError(AgentError):
    """The model's provider failed. `public` can be shown to everybody: the kind of failure, and what to do.

    Args:
        message: A notice in kaname's words. A plain text counts as the provider's words, and is not `public`.
        said: The provider's own words. They may contain a part of a key or an account id; a traceback shows them as a note.
        retryable: True if a retry makes sense, after `retry_after` seconds if the provider says so.

    `usage` is what the failed call has cost. None means that nobody knows: the provider had begun to answer.
    `was_sent` is False if the provider was not asked, because a limit held the call back. `request_id` is the provider's id of
    the request, or "".
    """

    retryable = False
    was_sent = True
    request_id = ""
    usage: Usage | None = None
    words: Notice = notice("model.kind_failed", "the model could not answer")
    advice: str = ""

    def __init__(
        self,
        message: str,
        *,
        provider: str = "",
        model: str = "",
        status: int = 0,
        retry_after: float | None = None,
        said: str = "",
    ) -> None:
        super().__init__(message)
        self.provider, self.model, self.status, self.retry_after = provider, model, status, retry_after
        self.said = str.__str__(said if isinstance(message, Notice) else said or message)
        if said:
            self.add_note(f"Details: {self.said}")

    @property
    def public(self) -> str:
        told = str(self)
        return told if isinstance(told, Notice) else join_notices("", (self.words, self.advice))


class ModelDenied(ModelError):
    words = notice("model.kind_denied", "the provider denied access")
    advice = notice("model.advice_denied", " (check the API key and its permissions)")


class ModelNotFound(ModelError):
    words = notice("model.kind_not_found", "the provider does not know this model")
    advice = notice("model.advice_not_found", " (check the model's name and base_url)")


class RequestRefused(ModelError):
    words = notice("model.kind_refused", "the provider did not accept the request")


class ContextTooLong(ModelError):
    words = notice("model.kind_too_long", "the conversation is too long for this model")
    advice = notice("model.advice_context_too_long", " (shorten the conversation, or use a model with a larger context window)")


class ContentFiltered(ModelError):
    words = notice("model.filtered", "the provider's filter withheld the answer")
    advice = notice("model.advice_filtered", " (rephrase the request)")


class RateLimited(ModelError):
    retryable = True
    words = notice("model.kind_rate_limited", "the provider's rate limit was reached")
    advice = notice("model.advice_rate_limited", " (wait, or ask the provider for a higher limit)")


class ModelUnavailable(ModelError):
    retryable = True
    words = notice("model.kind_unavailable", "the provider is down or overloaded")
    advice = notice("model.advice_unavailable", " (try again later)")


class ModelUnreachable(ModelError):
    retryable = True
    words = notice("model.kind_unreachable", "the provider cannot be reached")


class ModelTimeout(ModelError):
    retryable = True
    words = notice("model.timeout", "no answer in time")


class ReplyGarbled(ModelError):
    retryable = True
    words = notice("model.kind_garbled", "the provider's answer could not be read")


class ToolNotFoundError(AgentError):
    def __init__(self, name: str, known: Iterable[str] = ()) -> None:
        super().__init__(
            notice("tool.not_found", "there is no tool named {name!r}{hint}", name=name, hint=nearest(name, known))
        )
        self.name = name


class ToolExecutionFailed(AgentError):
    """A tool that the caller ran directly failed.

    Args:
        name: The name of the tool.
        underlying_error: The exception that it raised; a text, if it returned an error instead.
        told: A description of `underlying_error`, if its own text is not enough.
    """

    def __init__(self, name: str, underlying_error: BaseException | str, told: str = "") -> None:
        super().__init__(f"{name}: " + (told or str(underlying_error)))
        self.name, self.underlying_error = name, underlying_error


class RunStopped(AgentError):
    def __init__(self, stop: Stop) -> None:
        super().__init__(stop.summary)
        self.stop = stop


class MaxStepsExceeded(RunStopped):
    """The run reached its limit of steps. `steps`: the number of steps taken."""

    def __init__(self, stop: Stop = Stop("max_steps"), steps: int = 0) -> None:  # noqa: B008
        super().__init__(stop)
        self.steps = steps


class OutputDecodingFailed(RunStopped):
    """`stop`: how the run ended; or what did not fit, in words."""

    def __init__(self, stop: Stop | str) -> None:
        super().__init__(Stop("undecodable", stop, "OutputDecodingFailed") if isinstance(stop, str) else stop)


class InvalidState(AgentError): ...


class UnexpectedError(AgentError): ...


class ReplayDiverged(AgentError, AssertionError): ...


class AuditError(AgentError):
    """The audit log cannot be written or read. An action that it must record has not happened."""


class JournalError(AgentError): ...


class EncryptionError(JournalError, ConfigError):
    """The key of a file is missing or wrong, or the file is not encrypted although there is a key. Nothing was changed."""


class RunNotFound(JournalError):
    def __init__(self, run_id: str) -> None:
        super().__init__(notice("run.not_found", "run {run_id!r} was not found in the journal", run_id=run_id))
        self.run_id = run_id


class RunExists(JournalError):
    def __init__(self, run_id: str) -> None:
        super().__init__(notice("run.exists", "run {run_id!r} already exists. Resume it, or choose another id.", run_id=run_id))
        self.run_id = run_id


class RunBusy(JournalError): ...


class RunNeeded(JournalError): ...


class SessionBusy(JournalError):
    """Another run of the session is executing, or has started meanwhile: `run_id`."""

    def __init__(self, run_id: str) -> None:
        super().__init__(
            notice("session.busy", "run {run_id} of the same session is still running. Wait until it ends.", run_id=run_id)
        )
        self.run_id = run_id


class RunSuperseded(JournalError): ...


class JournalFull(JournalError): ...


class DiskFailed(JournalError): ...


class JournalLocked(JournalError): ...


class JournalUnreachable(JournalError): ...


class JournalCorrupt(JournalError): ...


class JournalTooNew(JournalError): ...


LLMError = ModelError
ToolNotFound = ToolNotFoundError


class Signal(BaseException):
    """Control flow, not a failure. `except Exception` in a tool or a policy does not catch it."""


class Halt(Signal):
    """End the run with `stop`. `reply`: the part of a withheld reply that may be kept; its cost is counted."""

    def __init__(self, stop: Stop, reply: ModelReply | None = None) -> None:
        super().__init__(stop.detail)
        self.stop, self.reply = stop, reply


class Suspend(Signal):
    """Suspend the run until the question is answered.

    Args:
        key: The name of the question: `agent.resume(run_id, {key: …})`.
        prompt: The question.
        options: The answers to choose from, if there is a choice.
        in_doubt: True if the question is how an interrupted call ended, not whether a call is allowed.
        about: The call that the question is about, with the arguments that the tool receives.
        by: "other" if the user of the run must not answer it.
        until: When it expires, in seconds since 1970; 0 for never.
        then: Its answer from that time on.
        rules: The rules that demand it. The answer holds for them.
    """

    def __init__(
        self,
        key: str,
        prompt: str,
        options: tuple[str, ...] = (),
        *,
        in_doubt: bool = False,
        about: ToolCall | None = None,
        by: str = "",
        until: float = 0.0,
        then: Any = None,
        rules: tuple[str, ...] = (),
    ) -> None:
        super().__init__(prompt)
        self.key, self.prompt, self.options, self.in_doubt, self.about = key, prompt, options, in_doubt, about
        self.by, self.until, self.then, self.rules = by, until, then, rules


class Released(Signal):
    """The run is to end soon, so a call does not begin, or its child was released. The call is made when the run is resumed."""


class BadArguments(Exception): ...


def did_you_mean(close: str) -> str:
    """Return a hint for the end of an error message: the likely name."""
    return notice("nearest.did_you_mean", "; did you mean {close!r}?", close=close)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint for the end of an error message: the likely name, or the names there are."""
    from difflib import get_close_matches

    names = sorted(known)
    if close := get_close_matches(name, names, n=1, cutoff=0.5):
        return did_you_mean(close[0])
    if not names:
        return notice("nearest.none", "; none are available")
    listed = ", ".join(names[:10]) + (", …" if len(names) > 10 else "")
    return notice("nearest.there_are", "; available: {listed}", listed=listed)
