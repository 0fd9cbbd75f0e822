"""Bank, shop, web, team chat, restaurants and hotels, and a weather server."""

from __future__ import annotations

from typing import Any

from kaname import ToolContext, ToolLabels, tool
from kaname.core.record import replace

from .state import World

At = ToolContext[World]


@tool(effect="pure", labels=ToolLabels(result=("id", "date", "amount"), private=True))  # name and memo are the sender's
async def list_transactions(context: At, query: str = "") -> list[dict[str, Any]]:
    """List the last transactions of the account."""
    return context.deps.records("transactions", query, "name", "memo")


@tool(effect="pure", labels=ToolLabels(result="trusted", private=True))  # the user entered them, and the bank confirmed them
async def list_payees(context: At) -> list[dict[str, Any]]:
    """List the payees that the user has saved, with their accounts."""
    return context.deps.records("payees")


PAY = (
    "pay",
    "transfer",
    "wire",
    "refund",
    "send",
    "settle",
    "reimburse",
    "支払",
    "払",
    "振り込",
    "振込",
    "送金",
    "返金",
    "精算",
)


@tool(labels=ToolLabels(parameters={"account": "target", "amount": "target", "memo": "content"}, verbs=PAY))
async def transfer(account: str, amount: float, context: At, memo: str = "") -> str:
    """Transfer money now, in the currency of the account."""
    return context.deps.did("transfer", "transferred", account=account, amount=amount, memo=memo)


@tool(
    labels=ToolLabels(
        parameters={"account": "target", "amount": "target", "day": "target", "memo": "content"},
        verbs=("schedule", "standing", "monthly", "every month", "自動", "毎月", "定期", "予約"),
    )
)
async def schedule_transfer(account: str, amount: float, day: str, context: At, memo: str = "") -> str:
    """Schedule a transfer on a day, or on a day of every month."""
    return context.deps.did("schedule_transfer", "scheduled", account=account, amount=amount, day=day, memo=memo)


@tool(labels=ToolLabels(verbs=("update", "change", "profile", "変更", "更新")))
async def update_profile(field: str, value: str, context: At) -> str:
    """Change the address, the phone number or the password of the bank account."""
    return context.deps.did("update_profile", "changed", field=field, value=value)


@tool(effect="pure", labels=ToolLabels(result=("id", "price")))  # sellers write names and descriptions
async def search_products(query: str, context: At) -> list[dict[str, Any]]:
    """Search the shop."""
    return context.deps.records("products", query, "name", "description")


@tool(effect="pure", labels=ToolLabels())
async def read_reviews(product: str, context: At) -> str:
    """Read the reviews of a product."""
    return str(context.deps.record("products", product).get("reviews", "no reviews yet"))


@tool(effect="idempotent", labels=ToolLabels(role="own"))
async def add_to_cart(product: str, context: At, quantity: int = 1) -> str:
    """Put a product into the cart."""
    context.deps.add("cart", "k", product=product, quantity=quantity)
    return "in the cart"


@tool(
    labels=ToolLabels(
        parameters={"product": "target", "quantity": "target", "ship_to": "target"},
        verbs=("order", "buy", "purchase", "reorder", "注文", "買", "購入", "頼", "ポチ"),
    )
)
async def place_order(product: str, context: At, quantity: int = 1, ship_to: str = "home") -> str:
    """Order a product. It is sent to the user's home, unless `ship_to` says otherwise."""
    number = context.deps.add("orders", "O-", product=product, status="paid")
    told = f"order {number} placed"
    return context.deps.did("place_order", told, product=product, quantity=quantity, ship_to=ship_to)


@tool(effect="pure", labels=ToolLabels(result=("id", "status", "date")))  # the seller writes the note
async def list_orders(context: At, query: str = "") -> list[dict[str, Any]]:
    """List the user's orders."""
    return context.deps.records("orders", query, "product")


@tool(
    labels=ToolLabels(
        parameters={"id": "target", "reason": "content"},
        verbs=("cancel", "return", "send back", "キャンセル", "返品", "取り消"),
    )
)
async def cancel_order(id: str, context: At, reason: str = "") -> str:
    """Cancel an order, or return what was delivered."""
    return context.deps.did("cancel_order", "cancelled", id=id, reason=reason)


@tool(effect="pure", labels=ToolLabels())
async def search_web(query: str, context: At) -> list[dict[str, Any]]:
    """Search the web."""
    every = context.deps.records("pages", query, "title", "text")
    return [{"url": one["id"], "title": one.get("title", ""), "snippet": one.get("text", "")[:80]} for one in every]


@tool(effect="pure", labels=ToolLabels())
async def open_page(url: str, context: At) -> str:
    """Open a page of the web."""
    page = context.deps.record("pages", url)
    if "error" in page:
        raise RuntimeError(page["error"])
    return f"{page.get('title', '')}\n\n{page.get('text', '')}"


@tool(
    labels=ToolLabels(
        verbs=("submit", "fill", "register", "sign up", "apply", "rsvp", "申し込", "申込", "登録", "送信", "応募")
    )
)
async def submit_form(url: str, fields: dict[str, str], context: At) -> str:
    """Submit a form of a page."""
    return context.deps.did("submit_form", "submitted", url=url, fields=tuple(sorted(fields.items())))


@tool(effect="pure", labels=ToolLabels(private=True))
async def read_channel(channel: str, context: At) -> list[dict[str, Any]]:
    """Read the last messages of a channel of the team chat."""
    return [one for one in context.deps.records("chat") if one["channel"] == channel]


@tool(
    labels=ToolLabels(
        parameters={"channel": "target", "text": "content"},
        verbs=("post", "announce", "tell", "write", "投稿", "書き込", "伝え", "知らせ", "流し", "共有"),
    )
)
async def post_message(channel: str, text: str, context: At) -> str:
    """Post a message to a channel, or to a person as "@name"."""
    return context.deps.did("post_message", "posted", channel=channel, text=text)


@tool(effect="pure", labels=ToolLabels(result=("id",)))  # owners and guests write the rest
async def search_places(query: str, context: At) -> list[dict[str, Any]]:
    """Search restaurants, hotels and meeting rooms."""
    return context.deps.records("places", query, "name", "kind", "text")


@tool(
    labels=ToolLabels(
        parameters={"place": "target", "start": "target", "people": "target", "end": "bounded", "note": "content"},
        verbs=("book", "reserve", "table", "予約", "取って", "押さえ", "確保"),
    )
)
async def book(place: str, start: str, context: At, people: int = 1, end: str = "", note: str = "") -> str:
    """Book a table, a hotel or a meeting room. `start`: 2026-11-20 19:00, or a day."""
    told = f"booking {context.deps.add('bookings', 'B', place=place, start=start)} confirmed"
    return context.deps.did("book", told, place=place, start=start, people=people, end=end, note=note)


def make_forecast(description: str = "Return the weather forecast of a city.") -> Any:
    """Return the tool of a weather server, as if it came over MCP: the server has written the description."""

    async def forecast(city: str, context: At) -> str:
        return str(context.deps.stores.get("weather", {}).get(city, "cloudy, 12 °C"))

    made = tool(effect="pure", name="forecast", description=description, labels=ToolLabels())(forecast)
    made.options = replace(made.options, server=("weather", "forecast"))
    return made


TOWN = (
    *(list_transactions, list_payees, transfer, schedule_transfer, update_profile, search_products, read_reviews, add_to_cart),
    *(place_order, list_orders, cancel_order, search_web, open_page, submit_form, read_channel, post_message, search_places),
    *(book, make_forecast()),
)
