"""Errors and signals.

AgentError                      everything that is raised for the caller
├── ConfigError                 something is set up wrongly; nothing has run
│   └── DuplicateToolError      two tools of one name
├── AgentConnectionError        a tool server cannot be reached
├── ModelError (= LLMError)     the provider failed; `.retryable`, `.retry_after`, `.status`, `.provider`, `.model`, `.said`
│   ├── ModelDenied             401, 403: the key, or what it may do
│   ├── ModelNotFound           404: no such model, or a wrong address
│   ├── RequestRefused          400 and the like: the provider does not accept what was sent
│   ├── ContextTooLong          413, or more than the model can read
│   ├── ContentFiltered         the provider's filter withheld the answer
│   ├── RateLimited             429: `.retry_after` says when, if the provider does
│   ├── ModelUnavailable        5xx: the provider is down or overloaded
│   ├── ModelUnreachable        no connection: DNS, TLS, refused, dropped
│   ├── ModelTimeout            no answer in time
│   └── ReplyGarbled            an answer that is none: half a JSON, a web page, nothing at all
├── ToolNotFoundError (= ToolNotFound)
├── ToolExecutionFailed         a tool that the caller ran by hand failed
├── RunStopped                  the run ended without its answer; `.stop` says how
│   ├── MaxStepsExceeded
│   └── OutputDecodingFailed
├── InvalidState                a call that makes no sense now
├── UnexpectedError             a bug, here or in somebody's model or policy
├── ReplayDiverged              a replay took another decision than the record
└── JournalError                the journal cannot do it; what was recorded is safe
    ├── RunNotFound
    ├── RunExists               a run of that id is there already
    ├── RunBusy                 somebody else is running it
    ├── RunNeeded               other runs went on from it, so it cannot be deleted alone
    ├── RunSuperseded           somebody else took it over; this process may not write any more
    ├── JournalFull             no room on the disk, or in the quota
    ├── DiskFailed              reading, writing or syncing failed
    ├── JournalLocked           another program holds the file
    ├── JournalCorrupt          what was read is not what was written
    └── JournalTooNew           a newer kaname made the file

Signal                          never reaches the caller: the loop turns it into a fact
├── Halt(stop, reply)           end the run
└── Suspend(key, prompt)        an answer is needed first

BadArguments                    the model sent arguments that do not fit: it is told what was expected, nobody else
"""

from __future__ import annotations

from collections.abc import Iterable

from .messages import ModelReply, ToolCall
from .notices import Notice, joined, notice
from .steps import Stop


class AgentError(Exception):
    """`run_id`: the run it happened in, if there was one. `agent.resume(error.run_id)` goes on.

    `said`: what a provider said about it in its own words, for the owner, administrators and the log; never for users."""

    run_id: str = ""
    said: str = ""

    @property
    def public(self) -> str:
        """Return the words that can be shown to everybody."""
        return str(self)


class ConfigError(AgentError):
    """`mistakes`: each line of a configuration that is wrong, if it came from a file."""

    mistakes: tuple[str, ...] = ()


class DuplicateToolError(ConfigError): ...


class UnknownParameter(ConfigError, TypeError):
    """A keyword argument that the function does not have. `ours`: what it is in kaname, if it is another library's."""

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
    """The model's provider failed. `public` can be shown to everybody: what kind of failure it is, and what to do.

    Args:
        message: A notice with words of our own. A plain text counts as the provider's words, and is not `public`.
        said: The provider's own words. They may hold a part of a key or an account's id; a traceback shows them as a note.
        retryable: Whether trying the same again makes sense, after `retry_after` seconds where the provider says so.
    """

    retryable = False
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
        return told if isinstance(told, Notice) else joined("", (self.words, self.advice))


class ModelDenied(ModelError):
    words = notice("model.kind_denied", "the provider denied access")
    advice = notice("model.advice_denied", " (check the API key and what it may be used for)")


class ModelNotFound(ModelError):
    words = notice("model.kind_not_found", "the provider does not know this model")
    advice = notice("model.advice_not_found", " (check the model's name and base_url)")


class RequestRefused(ModelError):
    words = notice("model.kind_refused", "the provider did not accept the request")


class ContextTooLong(ModelError):
    words = notice("model.kind_too_long", "the conversation is too long for this model")
    advice = notice("model.advice_context_too_long", " (shorten the conversation, or use a model that reads more)")


class ContentFiltered(ModelError):
    words = notice("model.filtered", "the provider's filter withheld the answer")
    advice = notice("model.advice_filtered", " (rephrase the request)")


class RateLimited(ModelError):
    retryable = True
    words = notice("model.kind_rate_limited", "the provider's limit on requests is reached")
    advice = notice("model.advice_rate_limited", " (wait, or raise the limit with the provider)")


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
    def __init__(self, name: str, known: Iterable[str]) -> None:
        super().__init__(
            notice("tool.not_found", "there is no tool named {name!r}{hint}", name=name, hint=nearest(name, known))
        )
        self.name = name


class ToolExecutionFailed(AgentError): ...


class RunStopped(AgentError):
    def __init__(self, stop: Stop) -> None:
        super().__init__(stop.told)
        self.stop = stop


class MaxStepsExceeded(RunStopped): ...


class OutputDecodingFailed(RunStopped): ...


class InvalidState(AgentError): ...


class UnexpectedError(AgentError): ...


class ReplayDiverged(AgentError, AssertionError): ...


class JournalError(AgentError): ...


class RunNotFound(JournalError):
    def __init__(self, run_id: str) -> None:
        super().__init__(notice("run.not_found", "the journal has no run {run_id!r}", run_id=run_id))
        self.run_id = run_id


class RunExists(JournalError):
    def __init__(self, run_id: str) -> None:
        super().__init__(notice("run.exists", "there is already a run {run_id!r}; resume it", run_id=run_id))
        self.run_id = run_id


class RunBusy(JournalError): ...


class RunNeeded(JournalError): ...


class SessionBusy(JournalError):
    """Another run of the session is being executed, or has begun meanwhile: `run_id`."""

    def __init__(self, run_id: str) -> None:
        super().__init__(notice("session.busy", "run {run_id} of the same session is at it; wait for it", run_id=run_id))
        self.run_id = run_id


class RunSuperseded(JournalError): ...


class JournalFull(JournalError): ...


class DiskFailed(JournalError): ...


class JournalLocked(JournalError): ...


class JournalCorrupt(JournalError): ...


class JournalTooNew(JournalError): ...


LLMError = ModelError
ToolNotFound = ToolNotFoundError


class Signal(BaseException):
    """Control flow, not failure: `except Exception` in a tool or a policy does not catch it."""


class Halt(Signal):
    """`reply`: what may be kept of a reply that was withheld; what it has cost is counted."""

    def __init__(self, stop: Stop, reply: ModelReply | None = None) -> None:
        super().__init__(stop.detail)
        self.stop, self.reply = stop, reply


class Suspend(Signal):
    """Park the run until the question is answered.

    `in_doubt`: the question is how an interrupted call ended, and not whether a call may be made. `about`: the call that the
    question is about, with the arguments that the tool receives.
    """

    def __init__(
        self,
        key: str,
        prompt: str,
        options: tuple[str, ...] = (),
        *,
        in_doubt: bool = False,
        about: ToolCall | None = None,
    ) -> None:
        super().__init__(prompt)
        self.key, self.prompt, self.options, self.in_doubt, self.about = key, prompt, options, in_doubt, about


class BadArguments(Exception): ...


def did_you_mean(close: str) -> str:
    """A hint to end an error with: the likely name."""
    return notice("nearest.did_you_mean", "; did you mean {close!r}?", close=close)


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint to end an error with: the likely name, or what there is."""
    from difflib import get_close_matches

    names = sorted(known)
    if close := get_close_matches(name, names, n=1, cutoff=0.5):
        return did_you_mean(close[0])
    if not names:
        return notice("nearest.none", "; there are none")
    listed = ", ".join(names[:10]) + (", …" if len(names) > 10 else "")
    return notice("nearest.there_are", "; there are: {listed}", listed=listed)
