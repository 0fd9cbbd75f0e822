"""Tasks that wait for each other: two prices at once, their sum, and a fallback for what is sold out."""

from kaname import Workflow, tool


@tool(effect="pure")
async def price(item: str) -> int:
    """The price of an item, in yen."""
    return {"tea": 300, "cake": 450, "biscuit": 100}[item]


@tool(effect="pure")
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


flow = Workflow("shopping", params={"sweet": "cake"}, journal="memory")
tea = flow.options(name="tea").task(price, "tea")
sweet = flow.options(name="sweet", fallback=(price, {"item": "biscuit"})).task(price, flow.param("sweet"))
total = flow.task(add, tea, sweet)
twice = flow.options(name="twice", when=total > 500).task(add, total, total)
flow.promise({"total": total, "twice": twice})

for wanted in ("cake", "truffle"):
    result = flow.run_sync({"sweet": wanted})
    print(wanted, result.stop.kind, result.output)

# prints:
#   cake completed {'total': 750, 'twice': 1500}
#   truffle completed {'total': 400, 'twice': None}
