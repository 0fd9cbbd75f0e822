"""Two tools to try things with: `kaname run -t examples/tools.py "…"`."""

from kaname import tool

PRICES = {"teapot": 4200, "cup": 800, "fan": 1900, "急須": 4200, "湯のみ": 800, "扇子": 1900}


@tool(effect="pure")
def price_of(item: str) -> int:
    """The price of one item of the shop, in yen.

    Args:
        item: teapot, cup, fan, 急須, 湯のみ or 扇子
    """
    if item.lower() not in PRICES:
        raise ValueError(f"the shop has no {item!r}; it has {', '.join(PRICES)}")
    return PRICES[item.lower()]


@tool(effect="pure")
def multiply(a: int | float, b: int | float) -> int | float:
    """Multiply two numbers."""
    return a * b
