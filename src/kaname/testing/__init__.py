"""Tools for tests: contracts for every port, a crash check, recorded runs as tests, a scripted model and a scripted server."""

from ..models.providers.scripted import ScriptedModel, call
from . import crash
from .combine import combine
from .contracts import ModelContract, PolicyContract, SinkContract, StrategyContract, ToolContract
from .frozen import agent_of, freeze, recorded, save_run
from .journal_contract import JournalContract
from .queue_contract import QueueContract
from .simulation.simulate import simulate
from .stores_contract import StoresContract
from .wire import WireServer, reply
from .wire_contract import WireContract

__all__ = [
    "JournalContract",
    "ModelContract",
    "PolicyContract",
    "QueueContract",
    "ScriptedModel",
    "SinkContract",
    "StoresContract",
    "StrategyContract",
    "ToolContract",
    "WireContract",
    "WireServer",
    "agent_of",
    "call",
    "combine",
    "crash",
    "freeze",
    "recorded",
    "reply",
    "save_run",
    "simulate",
]
