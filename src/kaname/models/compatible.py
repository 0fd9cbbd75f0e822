"""Providers that speak OpenAI's chat completions: their addresses, their keys, and their differences from OpenAI.

The addresses and the names of the keys are those that LiteLLM 1.106 uses.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ..core.record import field, record

_PLAIN = """
    aiml https://api.aimlapi.com/v1 AIML_API_KEY
    amazon_nova https://api.nova.amazon.com/v1 AMAZON_NOVA_API_KEY
    apertis https://api.stima.tech/v1 STIMA_API_KEY
    cerebras https://api.cerebras.ai/v1 CEREBRAS_API_KEY
    chutes https://llm.chutes.ai/v1 CHUTES_API_KEY
    codestral https://codestral.mistral.ai/v1 CODESTRAL_API_KEY
    cometapi https://api.cometapi.com/v1 COMETAPI_KEY COMETAPI_API_KEY
    compactifai https://api.compactif.ai/v1 COMPACTIFAI_API_KEY
    cortecs https://api.cortecs.ai/v1 CORTECS_API_KEY
    dashscope https://dashscope-intl.aliyuncs.com/compatible-mode/v1 DASHSCOPE_API_KEY
    deepinfra https://api.deepinfra.com/v1/openai DEEPINFRA_API_KEY
    deepseek https://api.deepseek.com DEEPSEEK_API_KEY
    edenai https://api.edenai.run/v3 EDENAI_API_KEY
    featherless_ai https://api.featherless.ai/v1 FEATHERLESS_AI_API_KEY FEATHERLESS_API_KEY
    fireworks https://api.fireworks.ai/inference/v1 FIREWORKS_API_KEY FIREWORKS_AI_API_KEY
    fireworks_ai https://api.fireworks.ai/inference/v1 FIREWORKS_API_KEY FIREWORKS_AI_API_KEY
    friendliai https://api.friendli.ai/serverless/v1 FRIENDLI_TOKEN FRIENDLIAI_API_KEY
    groq https://api.groq.com/openai/v1 GROQ_API_KEY
    hyperbolic https://api.hyperbolic.xyz/v1 HYPERBOLIC_API_KEY
    inception https://api.inceptionlabs.ai/v1 INCEPTION_API_KEY
    lambda_ai https://api.lambda.ai/v1 LAMBDA_API_KEY
    libertai https://api.libertai.io/v1 LIBERTAI_API_KEY
    meta https://api.meta.ai/v1 META_API_KEY
    meta_llama https://api.llama.com/compat/v1 LLAMA_API_KEY
    minimax https://api.minimax.io/v1 MINIMAX_API_KEY
    mistral https://api.mistral.ai/v1 MISTRAL_API_KEY
    modelscope https://api-inference.modelscope.cn/v1 MODELSCOPE_API_KEY
    moonshot https://api.moonshot.ai/v1 MOONSHOT_API_KEY
    morph https://api.morphllm.com/v1 MORPH_API_KEY
    nano-gpt https://nano-gpt.com/api/v1 NANOGPT_API_KEY
    nebius https://api.studio.nebius.ai/v1 NEBIUS_API_KEY
    neosantara https://api.neosantara.xyz/v1 NEOSANTARA_API_KEY
    novita https://api.novita.ai/v3/openai NOVITA_API_KEY
    nscale https://inference.api.nscale.com/v1 NSCALE_API_KEY
    nvidia_nim https://integrate.api.nvidia.com/v1 NVIDIA_NIM_API_KEY
    openrouter https://openrouter.ai/api/v1 OPENROUTER_API_KEY OR_API_KEY
    ovhcloud https://oai.endpoints.kepler.ai.cloud.ovh.net/v1 OVHCLOUD_API_KEY
    parasail https://api.parasail.io/v1 PARASAIL_API_KEY
    perplexity https://api.perplexity.ai PERPLEXITY_API_KEY PERPLEXITYAI_API_KEY
    poe https://api.poe.com/v1 POE_API_KEY
    publicai https://api.publicai.co/v1 PUBLICAI_API_KEY
    sambanova https://api.sambanova.ai/v1 SAMBANOVA_API_KEY
    scaleway https://api.scaleway.ai/v1 SCW_SECRET_KEY
    scx-ai https://api.scx.ai/v1 SCX_API_KEY
    synthetic https://api.synthetic.new/openai/v1 SYNTHETIC_API_KEY
    tencent https://tokenhub-intl.tencentcloudmaas.com/v1 TENCENT_API_KEY
    tensormesh https://serverless.tensormesh.ai/v1 TENSORMESH_INFERENCE_API_KEY
    together https://api.together.ai/v1 TOGETHER_API_KEY TOGETHER_AI_API_KEY TOGETHERAI_API_KEY
    together_ai https://api.together.ai/v1 TOGETHER_API_KEY TOGETHER_AI_API_KEY TOGETHERAI_API_KEY
    v0 https://api.v0.dev/v1 V0_API_KEY
    vercel_ai_gateway https://ai-gateway.vercel.sh/v1 VERCEL_AI_GATEWAY_API_KEY
    volcengine https://ark.cn-beijing.volces.com/api/v3 VOLCENGINE_API_KEY
    wandb https://api.inference.wandb.ai/v1 WANDB_API_KEY
    xai https://api.x.ai/v1 XAI_API_KEY
    xiaomi_mimo https://api.xiaomimimo.com/v1 XIAOMI_MIMO_API_KEY
    zai https://api.z.ai/api/paas/v4 ZAI_API_KEY
"""


@record
class ProviderServer:
    """The address of a provider, and its differences from OpenAI.

    Attributes: address: The base address. keys: Environment variables that may hold the key; the first that is set counts.
    quirks: Features that the server does not support, by the names in `providers/quirks.py`. renamed: Settings that have
    another name there. more: Fields to add to every request. prefix: The beginning of a model's name there, if the user left
    it out.
    """

    address: str
    keys: tuple[str, ...]
    quirks: tuple[str, ...] = ()
    renamed: Mapping[str, str] = field(factory=dict)
    more: Mapping[str, Any] = field(factory=dict)
    prefix: str = ""

    @property
    def variable(self) -> str:
        """Return the environment variable of the key: the first that is set, or the first to set."""
        return next((name for name in self.keys if os.environ.get(name)), self.keys[0])

    @property
    def key(self) -> str:
        """Return the key from the environment, or ""."""
        return os.environ.get(self.variable, "")

    @property
    def base_url(self) -> str:
        """Return the address from the environment (`GROQ_BASE_URL`, or LiteLLM's `GROQ_API_BASE`), or the provider's own."""
        stem = self.keys[0].removesuffix("_API_KEY")
        return os.environ.get(f"{stem}_BASE_URL") or os.environ.get(f"{stem}_API_BASE") or self.address


_MISTRAL: dict[str, Any] = {
    "quirks": ("stream_options", "echo", "ids", "order", "max_completion_tokens", "choice"),
    "renamed": {"seed": "random_seed"},
}
_ACCOUNTS: dict[str, Any] = {"quirks": ("max_completion_tokens",), "prefix": "accounts/fireworks/models/"}
_OTHERWISE: dict[str, dict[str, Any]] = {
    "cerebras": {"quirks": ("echo", "streamed_form")},
    "codestral": _MISTRAL,
    "deepseek": {"quirks": ("max_completion_tokens",)},
    "fireworks": _ACCOUNTS,
    "fireworks_ai": _ACCOUNTS,
    "groq": {"quirks": ("echo", "streamed_form")},
    "mistral": _MISTRAL,
    "openrouter": {"quirks": ("tools",), "more": {"usage": {"include": True}}},  # then it says what a reply cost
    "perplexity": {"quirks": ("stream_options", "echo", "max_completion_tokens")},
}


def _servers() -> dict[str, ProviderServer]:
    rows = [row.split() for row in _PLAIN.split("\n") if row.strip()]
    return {name: ProviderServer(address, tuple(keys), **_OTHERWISE.get(name, {})) for name, address, *keys in rows}


SERVERS = _servers()


def with_keys() -> dict[str, ProviderServer]:
    """Return the providers whose key is set in the environment; of two names of one provider, the first."""
    found: dict[str, ProviderServer] = {}
    for name, server in SERVERS.items():
        if server.key and not any(server.address == other.address for other in found.values()):
            found[name] = server
    return found
