"""Ask a model beside the conversation: through the agent's policies, unseen by the reader, and no part of the history."""

from __future__ import annotations

from ..core.errors import ConfigError
from ..core.messages import Message, ModelReply, ModelRequest
from ..core.notices import notice
from .chain import around_model
from .ports import Model
from .scope import silent
from .view import RunView


async def ask_beside(messages: tuple[Message, ...], view: RunView, model: Model | None = None) -> ModelReply:
    """`model`: another than the agent's own. What it costs is not counted yet: record it with what comes of it."""
    asked = model or view.agent.model
    if asked is None:
        raise ConfigError(notice("agent.no_model", "agent {name!r} has no model: pass Agent(model=…)", name=view.agent.name))

    async def reply_to(request: ModelRequest) -> ModelReply:
        return await asked.reply(request, silent)

    settings = {} if model is not None else view.agent.settings
    return await around_model(view.policies(), reply_to, view)(ModelRequest(messages, (), None, settings, stream=False))
