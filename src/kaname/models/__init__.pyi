"""The names of `kaname.models`: type checkers read them here, and `lazy_names` does."""

from .http.client import Timeouts as Timeouts
from .local.model import Local as Local
from .prices import Price as Price
from .prices import price_of as price_of
from .providers.anthropic import Anthropic as Anthropic
from .providers.litellm import LiteLLM as LiteLLM
from .providers.openai import OpenAI as OpenAI
from .providers.replay import ReplayModel as ReplayModel
from .providers.responses import OpenAIResponses as OpenAIResponses
from .providers.scripted import ScriptedModel as ScriptedModel
