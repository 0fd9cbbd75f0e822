"""Forty tasks in two fresh sets for a model that is held to a schema, with tools whose results have other forms than tables.

    uv run python benchmarks/two_steps.py ferry|library|FOLDER [--plain] [task ids…]

`ferry`: tools that return JSON objects. `library`: lines of `key: value`, and sentences. FOLDER: tasks.json, tools.py and check.py
of your own. Half of each set is Japanese, 14 of 20 take two steps. Expected values are computed from the data. `--plain` switches
the plan off. Prints what was solved with its 95 % interval (Wilson), model calls and CPU seconds a task.
"""

import argparse
import asyncio
import collections
import importlib
import json
import math
import os
import re
import sys
import time
import unicodedata
from pathlib import Path

from kaname import Agent, tool
from kaname.models import Local
from kaname.models.http.provider import ServedModel

INSTRUCTIONS = "You are a helpful assistant. Use the tools when needed. Answer in the user's language with the final value."


def plain(text):
    return re.sub(r"[\s・'’]+", "", unicodedata.normalize("NFKC", str(text)).casefold())


def named(table, name):
    """The entry whose name is, holds or is held by what was asked for."""
    wanted = plain(name)
    return next((one for one in table if wanted and (wanted in plain(one) or plain(one) in wanted)), None)


def arithmetic(expression):
    text = unicodedata.normalize("NFKC", expression).replace("×", "*").replace("÷", "/").replace("−", "-")
    text = re.sub(r"(?<=\d),(?=\d{3})", "", text)
    if not re.fullmatch(r"[0-9+\-*/(). ]{1,100}", text) or "**" in text:
        raise ValueError(f"{expression!r} is not arithmetic: write numbers and + - * / ( )")
    return round(eval(text), 6)


# --- ferry: JSON objects ---

SHIPS = {
    "Northwind": {"captain": "Marta Solberg", "seats": 412, "cars": 96, "length_m": 118.5},
    "Grey Heron": {"captain": "Tom Ferris", "seats": 268, "cars": 41, "length_m": 84.0},
    "Silver Tide": {"captain": "Ana Ruiz", "seats": 530, "cars": 134, "length_m": 141.2},
    "はやぶさ丸": {"captain": "小川直樹", "seats": 347, "cars": 72, "length_m": 103.4},
    "みなと号": {"captain": "森田由美", "seats": 189, "cars": 28, "length_m": 66.8},
}
CREW = {
    "Marta Solberg": {"home": "Bergen", "years": 23, "phone": "4471"},
    "Tom Ferris": {"home": "Cork", "years": 9, "phone": "4438"},
    "Ana Ruiz": {"home": "Cadiz", "years": 17, "phone": "4402"},
    "小川直樹": {"home": "長崎", "years": 31, "phone": "4495"},
    "森田由美": {"home": "函館", "years": 12, "phone": "4460"},
}
ROUTES = {
    "Island line": {"adult": 38, "child": 19, "car": 126, "minutes": 145, "ship": "Grey Heron"},
    "Night line": {"adult": 94, "child": 47, "car": 310, "minutes": 660, "ship": "Silver Tide"},
    "西海航路": {"adult": 2650, "child": 1330, "car": 9800, "minutes": 195, "ship": "はやぶさ丸"},
    "北岬航路": {"adult": 1840, "child": 920, "car": 7400, "minutes": 110, "ship": "みなと号"},
}


def ship(name: str) -> dict:
    """Data of one of the company's ships: captain, seats, places for cars, length in metres.

    Args:
        name: The name of the ship
    """
    if (found := named(SHIPS, name)) is None:
        raise ValueError(f"there is no ship called {name!r}")
    return {"ship": found, **SHIPS[found]}


def crew(name: str) -> dict:
    """Data of a member of the crew: home town, years of service, phone.

    Args:
        name: The full name of the person
    """
    found = named(CREW, name)
    return {} if found is None else {"name": found, **CREW[found]}


def route(name: str) -> dict:
    """Data of a route: fares for an adult, a child and a car, minutes it takes, and the ship that sails it.

    Args:
        name: The name of the route
    """
    found = named(ROUTES, name)
    return {"results": []} if found is None else {"results": [{"route": found, **ROUTES[found]}]}


def compute(formula: str) -> dict:
    """Work out a formula.

    Args:
        formula: Numbers and + - * / ( )
    """
    return {"value": arithmetic(formula)}


def of_route(name):
    return SHIPS[ROUTES[name]["ship"]]


FERRY = [
    ("en", "route>compute", "How much do tickets for 23 adults on the Island line cost in total?", 23 * ROUTES["Island line"]["adult"]),
    ("en", "route>compute", "How much do 14 cars cost on the Night line?", 14 * ROUTES["Night line"]["car"]),
    ("en", "route>compute", "The Island line is sailed 37 times. How many minutes is that in total?", 37 * ROUTES["Island line"]["minutes"]),
    ("en", "ship>crew", "In which town is the captain of the Northwind at home?", CREW["Marta Solberg"]["home"]),
    ("en", "ship>crew", "How many years has the captain of the Silver Tide served?", CREW["Ana Ruiz"]["years"]),
    ("en", "route>ship", "How many seats does the ship of the Night line have?", of_route("Night line")["seats"]),
    ("en", "ship>compute", "The Grey Heron is full on 26 trips. How many cars does it carry on them in total?", 26 * SHIPS["Grey Heron"]["cars"]),
    ("en", "ship", "Who is the captain of the Grey Heron?", SHIPS["Grey Heron"]["captain"]),
    ("en", "crew", "What is the phone number of Ana Ruiz?", int(CREW["Ana Ruiz"]["phone"])),
    ("en", "compute", "What is 4,318 * 267?", 4318 * 267),
    ("ja", "route>compute", "西海航路に大人18人で乗ると、運賃は全部でいくらですか。", 18 * ROUTES["西海航路"]["adult"]),
    ("ja", "route>compute", "北岬航路に子ども27人で乗ると、運賃は全部でいくらですか。", 27 * ROUTES["北岬航路"]["child"]),
    ("ja", "ship>crew", "はやぶさ丸の船長の出身地はどこですか。", CREW["小川直樹"]["home"]),
    ("ja", "ship>crew", "みなと号の船長の勤続年数は何年ですか。", CREW["森田由美"]["years"]),
    ("ja", "route>ship", "西海航路を走る船の座席数はいくつですか。", of_route("西海航路")["seats"]),
    ("ja", "route>ship", "北岬航路の船の船長は誰ですか。", of_route("北岬航路")["captain"]),
    ("ja", "ship>compute", "はやぶさ丸が満席で16回運航すると、乗客は全部で何人ですか。", 16 * SHIPS["はやぶさ丸"]["seats"]),
    ("ja", "route", "北岬航路の所要時間は何分ですか。", ROUTES["北岬航路"]["minutes"]),
    ("ja", "ship", "みなと号には車を何台載せられますか。", SHIPS["みなと号"]["cars"]),
    ("ja", "compute", "91,728 ÷ 56 はいくつですか。", 91728 // 56),
]  # fmt: skip

# --- library: lines of `key: value`, and sentences ---

BOOKS = {
    "Salt Roads": {"author": "Edith Crane", "pages": 384, "shelf": "C12", "copies": 7},
    "The Quiet Engine": {"author": "Paul Okafor", "pages": 256, "shelf": "F03", "copies": 3},
    "Lantern Hill": {"author": "Greta Winter", "pages": 512, "shelf": "A27", "copies": 11},
    "雨の図書室": {"author": "藤本さやか", "pages": 298, "shelf": "J08", "copies": 6},
    "遠い汽笛": {"author": "高木修", "pages": 336, "shelf": "J15", "copies": 4},
}
AUTHORS = {
    "Edith Crane": {"town": "Bristol", "born": 1948, "books": 16},
    "Paul Okafor": {"town": "Lagos", "born": 1971, "books": 5},
    "Greta Winter": {"town": "Graz", "born": 1963, "books": 22},
    "藤本さやか": {"town": "金沢", "born": 1979, "books": 8},
    "高木修": {"town": "盛岡", "born": 1955, "books": 27},
}
RULES = [
    "A lost reader's card is replaced for 650 yen.",
    "A book that comes back late costs 35 yen for each day.",
    "The reading room is rented for 1,480 yen an hour. The book of the month is Lantern Hill.",
    "Copies cost 15 yen a page. The oldest book of the house is Salt Roads.",
    "自習室の利用料は1時間280円です。定員は24人です。",
    "講演会の参加費は1人1,250円です。今月の課題図書は「遠い汽笛」です。",
    "ロッカーの保証金は1つ120円です。",
]


def lines(found, held):
    return "\n".join([f"{key}: {value}" for key, value in {"name": found, **held}.items()])


def book(title: str) -> str:
    """Look up a book in the catalogue: author, pages, shelf, copies.

    Args:
        title: The title of the book
    """
    found = named(BOOKS, title)
    return "There is no book with this title." if found is None else lines(found, BOOKS[found])


def author(name: str) -> str:
    """Look up an author: town, year of birth, number of books.

    Args:
        name: The author's name
    """
    found = named(AUTHORS, name)
    return "No author found." if found is None else lines(found, AUTHORS[found])


def words(text):
    text = unicodedata.normalize("NFKC", text).lower()
    other = [text[place : place + 2] for place in range(len(text) - 1) if ord(text[place]) > 0x3000 < ord(text[place + 1])]
    return {word[:5] for word in re.findall(r"[a-z]{4,}", text)} | set(other)


def house_rules(topic: str) -> str:
    """Search the house rules of the library: fees, rooms, events, recommendations.

    Args:
        topic: A few words
    """
    scored = sorted([(len(words(topic) & words(rule)), rule) for rule in RULES], reverse=True)
    return " ".join([rule for score, rule in scored[:2] if score]) or "Nothing is written about this."


def reckon(expression: str) -> str:
    """Reckon with numbers.

    Args:
        expression: Numbers and + - * / ( )
    """
    return (
        f"The result is {arithmetic(expression):g}."
        if arithmetic(expression) < 1e5
        else f"The result is {arithmetic(expression)}."
    )


LIBRARY = [
    ("en", "rules>reckon", "A book comes back 19 days late. How much does that cost?", 19 * 35),
    ("en", "rules>reckon", "How much does it cost to rent the reading room for 6.5 hours?", 1480 * 6.5),
    ("en", "rules>reckon", "How much are copies of 48 pages?", 48 * 15),
    ("en", "book>reckon", "How many pages do 29 copies of Salt Roads have together?", 29 * BOOKS["Salt Roads"]["pages"]),
    ("en", "book>author", "In which town does the author of The Quiet Engine live?", AUTHORS["Paul Okafor"]["town"]),
    ("en", "book>author", "In which year was the author of Salt Roads born?", AUTHORS["Edith Crane"]["born"]),
    ("en", "rules>book", "On which shelf is the book of the month?", BOOKS["Lantern Hill"]["shelf"]),
    ("en", "book", "How many copies of Lantern Hill are there?", BOOKS["Lantern Hill"]["copies"]),
    ("en", "author", "How many books did Greta Winter write?", AUTHORS["Greta Winter"]["books"]),
    ("en", "rules", "What does a new reader's card cost if the old one is lost?", 650),
    ("ja", "rules>reckon", "自習室を13時間使うと、利用料は全部でいくらですか。", 13 * 280),
    ("ja", "rules>reckon", "講演会に36人で参加すると、参加費は全部でいくらですか。", 36 * 1250),
    ("ja", "book>reckon", "「雨の図書室」を1日14ページずつ読むと、何日で読み終わりますか。", 298 / 14),
    ("ja", "book>author", "「遠い汽笛」の作者はどの町の人ですか。", AUTHORS["高木修"]["town"]),
    ("ja", "book>author", "「雨の図書室」の作者の生まれた年はいつですか。", AUTHORS["藤本さやか"]["born"]),
    ("ja", "rules>book", "今月の課題図書は何ページありますか。", BOOKS["遠い汽笛"]["pages"]),
    ("ja", "book>author", "「遠い汽笛」の作者は本を何冊書きましたか。", AUTHORS["高木修"]["books"]),
    ("ja", "book", "「雨の図書室」はどの棚にありますか。", BOOKS["雨の図書室"]["shelf"]),
    ("ja", "author", "藤本さやかは何年生まれですか。", AUTHORS["藤本さやか"]["born"]),
    ("ja", "reckon", "7,236 + 48,905 はいくつですか。", 7236 + 48905),
]  # fmt: skip
SETS = {"ferry": (FERRY, (compute, crew, route, ship)), "library": (LIBRARY, (author, book, house_rules, reckon))}


def solved(task, text):
    """Right if the value stands in an answer that is not a copied passage. A quotient may be rounded to two places, or up."""
    wanted, said = task["expected"][0], unicodedata.normalize("NFKC", str(text or ""))
    if task["type"] == "string":
        return len(said) <= 300 and plain(wanted) in plain(said)
    found = {float(number) for number in re.findall(r"(?<![\d.])\d+(?:\.\d+)?", re.sub(r"(?<=\d),(?=\d{3})", "", said))}
    whole = float(wanted).is_integer()
    right = {wanted} if whole else {wanted, math.ceil(wanted)}
    return len(found) <= 5 and any(abs(number - one) <= (1e-9 if whole else 0.006) for number in found for one in right)


def wilson(right, asked, z=1.96):
    share, spread = right / asked, z * z / asked
    middle = (share + spread / 2) / (1 + spread)
    half = z * math.sqrt(share * (1 - share) / asked + spread / (4 * asked)) / (1 + spread)
    return max(0.0, middle - half), min(1.0, middle + half)


def tasks_of(name):
    if name in SETS:
        listed, tools = SETS[name]
        made = [
            {"id": f"{lang}{number:02d}", "kind": kind, "prompt": prompt, "expected": [value],
             "type": "string" if isinstance(value, str) else "number"}
            for number, (lang, kind, prompt, value) in enumerate(listed, 1)
        ]  # fmt: skip
        return made, tools, solved
    sys.path.insert(0, name)
    os.environ["TOOL_ERRORS"] = "raise"
    own = importlib.import_module("tools")
    return json.loads(Path(name, "tasks.json").read_text("utf-8")), own.TOOLS, importlib.import_module("check").check


def count_model_calls():
    """Count what goes to the server: one reply of the adapter can take several."""
    made, real = [], ServedModel.reply

    async def reply(self, request, emit):
        said = await real(self, request, emit)
        made.append(said)
        return said

    ServedModel.reply = reply
    return made


async def main(given):
    tasks, functions, check = tasks_of(given.set)
    tools = [tool(effect="pure")(function) for function in functions]
    model, made = Local(plan_first=not given.plain), count_model_calls()
    right, asked, spent = collections.Counter(), collections.Counter(), 0.0
    for task in [task for task in tasks if not given.ids or task["id"] in given.ids]:
        agent = Agent(model, tools, instructions=INSTRUCTIONS, journal="memory")
        began, before = time.process_time(), len(made)
        result = await agent.run(task["prompt"])
        used = time.process_time() - began
        spent += used
        well = check(task, "" if result.output is None else str(result.output))
        right[task["kind"]] += well
        asked[task["kind"]] += 1
        print(task["id"], task["kind"], "ok" if well else "--", f"{used:.0f} CPU s, {len(made) - before} calls,", end=" ")
        print(result.stop.kind, repr(result.output)[:120], flush=True)
        for said in made[before:] if given.verbose else ():
            print("    >", said.message.text.replace("\n", " ")[:240], flush=True)
        for found in result.state.results.values() if given.verbose else ():
            print("    =", found.name, repr(found.error or found.output)[:240], flush=True)
    for name, kinds in {
        "all": list(asked),
        "two steps": [kind for kind in asked if ">" in kind],
        "one step": [kind for kind in asked if ">" not in kind],
    }.items():
        of, good = sum(asked[kind] for kind in kinds), sum(right[kind] for kind in kinds)
        if of:
            low, high = wilson(good, of)
            print(f"{name}: {good} of {of} ({low:.0%} to {high:.0%})")
    count = max(1, sum(asked.values()))
    print(f"{len(made) / count:.1f} model calls and {spent / count:.0f} CPU seconds a task", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("set")
    parser.add_argument("ids", nargs="*")
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    asyncio.run(main(parser.parse_intermixed_args()))
    os._exit(0)
