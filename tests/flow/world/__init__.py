"""The world in which the scenarios happen: stateful tools with the labels that a careful developer gives them."""

from .base import BASE
from .desk import DESK
from .state import World
from .town import TOWN, make_forecast

TOOLS = {each.name: each for each in (*DESK, *TOWN)}
OWN = frozenset({"draft_mail", "move_mail", "create_file", "remember", "add_to_cart"})
ACTING = frozenset(name for name, each in TOOLS.items() if each.effect != "pure") - OWN

__all__ = ["ACTING", "BASE", "OWN", "TOOLS", "World", "make_forecast"]
