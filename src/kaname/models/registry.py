"""Find the adapter for `provider/model`. An adapter is imported when its name is first used."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Any

from ..core.errors import ConfigError, did_you_mean, nearest
from ..core.notices import notice
from ..kernel.bases import refuse_replaced
from ..kernel.ports import Model

# provider: "module:what makes a model from the rest of the name"
PROVIDERS = {
    "openai": "kaname.models.providers.responses:openai",
    "openai-responses": "kaname.models.providers.responses:OpenAIResponses",
    "anthropic": "kaname.models.providers.anthropic:Anthropic",
    "scripted": "kaname.models.providers.scripted:ScriptedModel.from_file",
    "litellm": "kaname.models.providers.litellm:LiteLLM",
    "local": "kaname.models.local.model:Local",
    "replay": "kaname.models.providers.replay:ReplayModel.from_file",
}
# Those that LiteLLM 1.106 serves, unless we have an adapter (`SERVERS`). `litellm/PROVIDER/NAME` takes any name to it.
_SERVED = """
    ai21 ai21_chat aiml aiohttp_openai amazon_nova apertis azure azure_ai azure_text baseten bedrock bedrock_mantle
    bytez cerebras chatgpt chutes clarifai cloudflare codestral cohere cohere_chat cometapi compactifai cortecs
    custom_openai dashscope databricks datarobot deepinfra deepseek docker_model_runner edenai empower featherless_ai
    fireworks_ai friendliai galadriel gdc gemini gigachat github github_copilot gradient_ai groq helicone heroku
    hosted_vllm huggingface hyperbolic inception lambda_ai lemonade libertai litellm_proxy llamafile lm_studio
    maritalk meta meta_llama minimax mistral modelscope moonshot morph nano-gpt nebius neosantara nlp_cloud novita
    nscale nvidia_nim oci ollama ollama_chat oobabooga openai_like openrouter ovhcloud parasail perplexity petals poe
    predibase publicai qwen_ai_platform qwencloud replicate sagemaker sagemaker_chat sagemaker_nova sambanova sap
    scaleway scx-ai snowflake synthetic tencent tensormesh text-completion-codestral text-completion-openai
    together_ai triton v0 vercel_ai_gateway vertex_ai vertex_ai_beta vllm volcengine wandb watsonx watsonx_text xai
    xiaomi_mimo xinference zai
"""
LITELLM = frozenset(_SERVED.split())
GROUP = "kaname.models"  # the entry-point group where a package announces providers of its own


def resolve(name: str | Model) -> Model:
    """Return the model of that name. A model object is returned as it is."""
    if not isinstance(name, str):
        if not hasattr(name, "reply"):
            raise ConfigError.of(
                "model.kind",
                "model must be a name such as 'provider/model' or an object with an async reply(request, emit), not {name!r}",
                name=name,
            )
        refuse_replaced("model", name)
        return name
    provider, slash, rest = name.partition("/")
    if name == "local":
        return maker(provider)()  # type: ignore[no-any-return]
    if not slash or not rest or ":" in provider:
        message = notice("model.name_form", "a model name must have the form provider/model, not {name!r}", name=name)
        raise ConfigError(message + (with_slash(name) or _with_provider(name)))
    model: Model = maker(provider)(rest)
    return model


def resolve_all(given: Any) -> list[list[Model]]:
    """Return the models of a list, in order, each as a list of equals with mostly one model in it."""
    if not isinstance(given, list | tuple):
        return [[resolve(given)]]
    tiers = [list(one) if isinstance(one, list | tuple) else [one] for one in given]
    if not tiers or not all(tiers):
        raise ConfigError.of("model.empty_list", "a list of models must not be empty")
    return [[resolve(name.strip() if isinstance(name, str) else name) for name in tier] for tier in tiers]


def with_slash(name: str) -> str:
    """Return the hint for a name that is written with a colon, as in other libraries: `openai:gpt-5.4-mini`."""
    from .compatible import SERVERS

    provider, _, rest = name.partition(":")
    return did_you_mean(f"{provider}/{rest}") if rest and provider in {*PROVIDERS, *SERVERS, *LITELLM} else ""


def _with_provider(name: str) -> str:
    """Return the hint for a name without its provider: `gpt-5.4-mini`. The table of prices knows most models."""
    from difflib import get_close_matches

    from .prices import known_models

    known = {one.partition("/")[2]: one for one in known_models()}
    longer = [one for one in known if name and one.startswith(f"{name}-")]
    family = [one for one in known if name.partition("-")[0] == one.partition("-")[0]]
    for found in ([name] if name in known else [], longer[-1:], get_close_matches(name, known, n=1, cutoff=0.8)):
        if found:
            return did_you_mean(known[found[0]])
    return did_you_mean(f"{known[family[0]].partition('/')[0]}/{name}") if family else ""


def maker(provider: str) -> Any:
    """Return the function that builds a model from the rest of its name."""
    if provider in PROVIDERS:
        return _import_from(PROVIDERS[provider])
    from .compatible import SERVERS  # most programs need no more than the above

    if provider in SERVERS:
        return partial(_import_from("kaname.models.providers.compatible:Compatible"), provider)
    from importlib.metadata import entry_points  # slow to load, and seldom needed

    others = {entry.name: entry for entry in entry_points(group=GROUP)}
    if provider in others:
        return others[provider].load()
    if provider in LITELLM:
        make = _import_from(PROVIDERS["litellm"])
        return lambda rest, **given: make(f"{provider}/{rest}", **given)
    known = [*PROVIDERS, *SERVERS, *others, *LITELLM]
    raise ConfigError.of(
        "model.no_provider",
        "the provider {provider!r} is not known{hint}",
        provider=provider,
        hint=nearest(provider, known),
    )


def _import_from(place: str) -> Any:
    module, _, path = place.partition(":")
    target: Any = import_module(module)
    for attribute in path.split("."):
        target = getattr(target, attribute)
    return target
