"""The tiny agent's configuration, made in code: the same checks and the same agent as of its `config.yaml`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.errors import ConfigError

LLM_SETTINGS: Mapping[str, Any] = {"temperature": 0.7, "max_tokens": 1000}  # if it is not said


class ProviderConfig:
    """A provider's block. `base_url`: of a server that speaks the same protocol; `settings` go into every request."""

    def __init__(
        self,
        api_key: str = "",
        model: str = "",
        base_url: str = "",
        headers: Mapping[str, str] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.api_key, self.model, self.base_url = api_key, model, base_url
        self.headers, self.settings = dict(headers or {}), dict(settings or {})

    def in_file(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if value}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.model!r}>"  # and no key


class OpenAIConfig(ProviderConfig):
    """The block `openai`.

    Args:
        api_key: The key, by default that of the environment.
        model: The name of the model.
        base_url: The address of a server with the same protocol.
        headers: HTTP headers for every request.
        settings: Sent with every request, such as temperature.
    """


class ClaudeConfig(ProviderConfig):
    """The block `claude`.

    Args:
        api_key: The key, by default that of the environment.
        model: The name of the model.
        base_url: The address of a server with the same protocol.
        headers: HTTP headers for every request.
        settings: Sent with every request, such as temperature.
    """


class LLMConfig:
    """`provider`, and a block of that name: `LLMConfig("openai", openai=OpenAIConfig(model="gpt-4", api_key="…"))`.

    A block of another provider is a mapping, as in the file. `temperature` and `max_tokens` go into every request; None leaves
    them to the provider. Each block is an attribute, and None if it was not given.
    """

    openai: OpenAIConfig | None = None
    claude: ClaudeConfig | None = None

    def __init__(self, provider: str, *, temperature: float | None = 0.7, max_tokens: int | None = 1000, **blocks: Any) -> None:
        self.provider, self.temperature, self.max_tokens = provider, temperature, max_tokens
        self.blocks = {name: _block(name, given) for name, given in blocks.items() if given is not None}
        self.__dict__.update(self.blocks)

    def in_file(self) -> dict[str, Any]:
        """Return the mapping that would stand under `llm` in a file."""
        said = {name: getattr(self, name) for name in ("provider", *LLM_SETTINGS)}
        return {
            **said,
            **{name: block.in_file() if isinstance(block, ProviderConfig) else block for name, block in self.blocks.items()},
        }

    def __repr__(self) -> str:
        return f"<LLMConfig {self.provider!r}: temperature={self.temperature}, max_tokens={self.max_tokens}>"  # and no keys


def _block(name: str, given: Any) -> Any:
    kind: type[ProviderConfig] | None = {"openai": OpenAIConfig, "claude": ClaudeConfig}.get(name)
    if kind is None or isinstance(given, kind):
        return given
    if isinstance(given, Mapping):
        return kind(**given) if set(given) <= set(vars(kind())) else given  # what else there is, the check of the file reports
    raise ConfigError.of(
        "config.block", "{name} must be of type {kind} or a mapping, not {given!r}", name=name, kind=kind.__name__, given=given
    )
