"""A small company's data with 50 planted strings of one user, and a search for them in every file."""

from __future__ import annotations

from base64 import b64encode
from contextlib import closing
from pathlib import Path

from kaname import (
    Agent,
    Approve,
    Budget,
    Cache,
    Compact,
    DataPlaces,
    Media,
    Memory,
    ScriptedModel,
    Sessions,
    SharedSession,
    SqliteJournal,
    call,
    tool,
)
from kaname.core.encryption.database import open_database
from kaname.core.events import Custom
from kaname.kernel.load import add_fact
from kaname.kernel.stores import Digest, Grant
from kaname.memory.files import MemoryFiles
from kaname.serve.users import Users
from kaname.sinks.log import JsonLines

COUNT = 50
PLANTED = [f"planted{number:02}" + "zqxjkvwy"[number % 8 :] + f"{number * 7919:06}" for number in range(COUNT)]
USER, EVICTED, OTHER = PLANTED[0], PLANTED[-1], "mia"


@tool(effect="pure")
def look(text: str) -> str:
    """Look something up."""
    return f"found {text} and {PLANTED[1]}"


@tool(effect="irreversible")
def send(text: str) -> str:
    """Send a text."""
    return f"sent {text}"


@tool(effect="pure")
def fail(why: str) -> str:
    """Fail."""
    raise ValueError(f"{why} {PLANTED[2]}")


def places(folder: Path) -> DataPlaces:
    return DataPlaces(
        folder / "journal.db", folder / "memory", (folder / "cache.db",), (folder / "docs.db",), (folder / "trace.jsonl",)
    )


async def plant(folder: Path) -> None:
    """Store the strings everywhere where kaname stores words of users, and some words of another user."""
    it = iter(PLANTED[3:-1])
    folder.mkdir(parents=True, exist_ok=True)
    journal = SqliteJournal(folder / "journal.db")
    sinks = [JsonLines(folder / "trace.jsonl", content=True)]
    shared = {"journal": journal, "sinks": sinks}
    budget = Budget(user="1000000 tokens/day", session="1000000 tokens/day", run="1000000 tokens")
    memory = Memory(folder / "memory", learn="rules")

    def answers(*replies):
        return ScriptedModel([*replies])

    cache = Cache(path=folder / "cache.db")
    # questions, answers, arguments, results, errors, pictures, memories, sessions, budgets, the cache and the trace
    script = [call("look", text=next(it)), call("fail", why=next(it)), f"the answer is {next(it)}"]
    desk = Agent(
        answers(*script),
        [look, fail],
        policies=[budget, cache],
        context=[memory],
        name="desk",
        **shared,
    )
    small = b"\x89PNG\r\n\x1a\n" + bytes(8) + (8).to_bytes(4) * 2  # 8 x 8 pixels
    content = small + next(it).encode() + bytes(2000)  # large enough to be stored next to the journal
    picture = Media("image/png", b64encode(content).decode(), name=next(it))
    question = f"My name is {next(it)}. I live in {next(it)}."
    await desk.run([question, picture], session_id=next(it), user_id=USER)
    await desk.close()
    cache.store.put("evicted", f"evicted {EVICTED} " * 3)
    cache.store.close()
    with closing(open_database(folder / "cache.db")) as connection:
        connection.execute("PRAGMA secure_delete = OFF")  # the default of many builds of SQLite: deleted text stays in the file
        connection.execute("DELETE FROM entries WHERE key = 'evicted'")
    # a run that waits, and one whose question is the title of a session that was renamed
    waiting = Agent(answers(call("send", text=next(it))), [send], policies=[Approve("send")], name="waits", **shared)
    held = await waiting.run(f"please send {next(it)}", user_id=USER)
    # messages that wait, with a picture, and one to another user's run; an approval for later runs, and one for another user
    sketch = Media("image/png", b64encode(small + next(it).encode() + bytes(2000)).decode())
    await waiting.say(held.run_id, [f"and {next(it)}", sketch], by=USER)
    hers = await Agent(answers(call("send", text="hers")), [send], policies=[Approve("send")], name="waits", **shared).run(
        "Mia waits", user_id=OTHER
    )
    await waiting.say(hers.run_id, f"says {next(it)}", by=USER)
    await waiting.say(hers.run_id, "Mia says more", by=OTHER)
    await journal.stores.grants.put(Grant("g1", "waits", USER, "send", {"text": {"equals": next(it)}}, by=USER))
    await journal.stores.grants.put(Grant("g2", "waits", OTHER, "send", {}, by=USER))
    title = Agent(answers(next(it), next(it)), name="talk", **shared)
    talk = next(it)
    first = await title.run(f"first {next(it)}", session_id=talk, user_id=USER)
    await title.run(f"second {next(it)}", session_id=talk, user_id=USER)
    sessions = Sessions(journal)
    await sessions.rename(await sessions.get(talk), f"title {next(it)}")
    await add_fact(journal, first.run_id, Custom("lesson", {"learnt": next(it), next(it): 1}), later=False)
    # a session that another user continues, with a summary of what was said
    together = SharedSession("meeting")
    long = Agent(answers(f"well {next(it)}"), name="both", **shared)
    await long.run(f"shared {next(it)} " + "and so on " * 400, session_id=together, user_id=USER)
    summing = Agent(answers(f"summary: somebody said {next(it)}", "fine, Mia"), context=[Compact(200)], name="both", **shared)
    await summing.run("what Mia says", session_id=together, user_id=OTHER)
    # an answer of the user to a question in another user's run
    asks = Agent(answers(call("send", text="hello"), "done, Mia"), [send], policies=[Approve("send")], name="asks", **shared)
    result = await asks.run("Mia wants to send", user_id=OTHER)
    await asks.resume(result.run_id, dict.fromkeys(result.questions, f"no, because {next(it)}"), by=USER)
    # memories: of the user, of an agent, of the project; values of programs
    files = MemoryFiles(folder / "memory")
    for number in range(5):
        files.of(USER).add(f"likes {next(it)} {number}", about=f"thing {number}")
    files.of(USER).note(USER, {next(it): f'"{next(it)}"'})
    files.of(agent="desk").add(f"learnt {next(it)} from somebody", run=first.run_id)
    files.of(agent="desk").add("Mia likes tea", run="another")
    files.of(project=True).note(f"session/{talk}", {"task": f'"{next(it)}"'})
    files.of(OTHER).add("Mia lives in York")
    files.close()
    memory.close()
    Users(folder / "users.json").add(USER, ["read"])
    # what figures count of the runs
    digests = [Digest(card.run_id, card.seq, f"called {PLANTED[5]}", USER) for card in await journal.runs(user=USER)]
    await journal.stores.digests.put(digests)
    # copies, and everything that is left over
    await journal.backup(folder / "copy.db")
    rest = Agent(ScriptedModel(lambda request: "noted"), name="rest", **shared)
    for one in it:
        await rest.run(f"also {one}", user_id=USER)
    await journal.close()
    sinks[0].close()


def found_in_files(folder: Path) -> dict[str, list[str]]:
    """Return which planted strings are in which files, also as base64 and in names of files."""
    forms = {one: [one.encode(), one.encode("utf-16-le"), *_base64_forms(one)] for one in PLANTED}
    found: dict[str, list[str]] = {}
    for path in sorted(folder.rglob("*")):
        data = path.name.encode() + (path.read_bytes() if path.is_file() else b"")
        for one, wanted in forms.items():
            if any(form in data for form in wanted):
                found.setdefault(one, []).append(str(path.relative_to(folder)))
    return found


def _base64_forms(text: str) -> list[bytes]:
    """Return what a text becomes in base64, wherever it begins in a group of three bytes, without the uncertain ends."""
    return [b64encode(b"x" * shift + text.encode())[4:-4] for shift in range(3)]
