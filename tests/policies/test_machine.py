"""New work waits while the machine is busy: by priority, and without a task that is left behind."""

import asyncio

import pytest

from kaname import Agent, ConfigError, Machine, ScriptedModel, call, deadline, tool
from kaname.policies.pace import machine as module
from kaname.policies.pace.machine import Watch
from tests.parts import add, chunks


class Load:
    def __init__(self, **load):
        self.now, self.read = load, 0

    def __call__(self):
        self.read += 1
        return dict(self.now)


@pytest.mark.parametrize(
    ("given", "told"), [({}, "at least one"), ({"cpu": 0}, "cpu must be"), ({"memory": 120}, "memory must be")]
)
def test_machine_without_a_sensible_limit_is_refused(given, told):
    with pytest.raises(ConfigError, match=told):
        Machine(**given, read=dict)


def test_missing_package_is_told_with_what_to_install(monkeypatch):
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"not installed: .*kaname.*\[machine\]|not installed: .*machine"):
        Machine(cpu=90)


def test_machine_is_read_with_psutil():
    pytest.importorskip("psutil")
    load = module.read_load()
    assert 0 <= load["cpu"] <= 100
    assert 0 < load["memory"] < 100
    assert Machine(memory=100).can_execute() == (True, "")


async def test_idle_machine_holds_nothing_up():
    load = Load(cpu=10, memory=20)
    agent = Agent(ScriptedModel([call("add", a=1, b=2), "3"]), [add], policies=[Machine(cpu=90, read=load)], journal="memory")
    seen = await chunks(agent.run("go"))
    assert not [chunk for chunk in seen if chunk.data.get("status") == "throttled"]
    assert load.read == 1, "at most one reading a second"


async def test_busy_machine_makes_new_work_wait_and_tells_why():
    load = Load(cpu=99)
    policy = Machine(cpu=90, read=load)
    agent, seen = Agent(ScriptedModel(["done"]), policies=[policy], journal="memory"), []
    run = agent.run("go")
    async for chunk in run:
        seen.append(chunk.data)
        if chunk.data.get("status") == "throttled" and chunk.data["reason"]:
            assert policy.can_execute() == (False, "waiting: CPU is at 99 % (limit 90 %)")
            load.now = {"cpu": 50}
    assert [(one["reason"], str(one["content"])) for one in seen if one.get("status") == "throttled"] == [
        ("cpu", "waiting: CPU is at 99 % (limit 90 %)"),
        ("", ""),
    ]
    assert (await run).output == "done"


async def test_tools_wait_too_and_the_deadline_holds():
    load, used = Load(memory=10), []
    policy = Machine(memory=85, read=load)

    @tool(effect="pure")
    async def fill() -> str:
        """Fill the memory."""
        used.append(1)
        load.now = {"memory": 95}
        await asyncio.sleep(1.1)  # the load is read once a second
        return "full"

    script = ScriptedModel([call("fill"), call("fill"), "done"])
    agent = Agent(script, [fill], policies=[policy], stops=deadline("3s"), journal="memory")
    assert ((await agent.run("go")).stop.kind, used) == ("deadline", [1])


async def test_priority_goes_first_and_nothing_is_left_behind():
    load, order = Load(cpu=99), []
    watch = Watch(load, every=0.005)

    async def work(name, priority):
        await watch.wait({"cpu": 90}, priority)
        order.append(name)

    tasks = [asyncio.ensure_future(work(*one)) for one in [("low", 0), ("high", 5), ("cancelled", 9), ("low too", 0)]]
    await asyncio.sleep(0)
    tasks[2].cancel()
    await asyncio.gather(tasks[2], return_exceptions=True)
    load.now = {"cpu": 1}
    await asyncio.gather(*tasks, return_exceptions=True)
    assert order == ["high", "low", "low too"]
    while len(asyncio.all_tasks()) > 1:
        await asyncio.sleep(0)
    assert not watch.has_waiters


def test_machine_of_a_file_is_told_with_its_place(tmp_path, monkeypatch):
    from kaname import load_config

    monkeypatch.setattr(module, "find_spec", lambda name: None)
    path = tmp_path / "kaname.yaml"
    path.write_text("agents:\n  a:\n    limits:\n      machine: {cpu: 90}\n")
    with pytest.raises(ConfigError, match=r"kaname.yaml:4: agents.a.limits.machine: .*not installed"):
        load_config(path).check()
