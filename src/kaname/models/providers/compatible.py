"""`PROVIDER/NAME` for providers that speak OpenAI's chat completions: groq, openrouter, deepseek, mistral, xai, …"""

from __future__ import annotations

from typing import Any

from ...core.notices import notice
from ..compatible import SERVERS
from .openai import OpenAI
from .quirks import Quirks


class Compatible(OpenAI):
    """A model of such a provider.

    Args:
        provider: A name of the table in `models/compatible.py`.
        model: The provider's name of the model.
        given: What `OpenAI` takes. The key and the address come from the environment where they are not given
            (`GROQ_API_KEY`, `GROQ_BASE_URL`).
    """

    def __init__(self, provider: str, model: str, **given: Any) -> None:
        self.provider, self._server = provider, SERVERS[provider]
        super().__init__(model, **given)
        if not model.startswith(self._server.prefix.partition("/")[0]):
            self._sent_as = self._server.prefix + model
        self.quirks = Quirks(self._server.quirks, self._server.renamed)
        self._more = self._server.more

    def _place(self, model: str, base_url: str | None, api_key: str | None) -> tuple[str, str, str]:
        server = self._server
        url, key = base_url or server.base_url, server.key if api_key is None else api_key
        missing = notice(
            "model.key_missing",
            "{provider}/{model} needs a key: set {key}",
            provider=self.provider,
            model=model,
            key=server.keys[0],
        )
        return url, key, "" if key or url != server.address else missing
