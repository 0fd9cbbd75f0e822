"""3.14 Performance Optimizer as it is written, and its CacheManager."""

import asyncio
import threading

import pytest

from kaname import Agent, ConfigError, MemoryJournal, ScriptedModel, call, tool
from kaname.designs import CacheManager, PerformanceOptimizer

pytestmark = pytest.mark.requirement("D14")


@pytest.fixture
def manager(tmp_path):
    made = CacheManager(max_size="1GB", default_ttl=3600, path=tmp_path / "values.db")
    yield made
    made.close()


def test_value_is_computed_once_and_used_until_its_time_is_over(manager):
    optimizer, computed, now = PerformanceOptimizer(manager), [], [1000.0]
    manager.store.clock = lambda: now[0]

    def compute():
        computed.append(1)
        return {"rows": [1, 2, None]}

    assert optimizer.get_or_set_cache("report", compute) == {"rows": [1, 2, None]}
    now[0] += 3599
    assert optimizer.get_or_set_cache("report", compute) == {"rows": [1, 2, None]}
    assert len(computed) == 1
    now[0] += 1
    optimizer.get_or_set_cache("report", compute, ttl=10)
    now[0] += 10
    optimizer.get_or_set_cache("report", compute, ttl="1m")
    assert len(computed) == 3
    assert optimizer.get_or_set_cache("other", lambda: None) is None
    assert manager.get("other", "absent") is None


async def test_async_computation_is_awaited_and_shared_by_all_who_wait(manager):
    optimizer, computed, go = PerformanceOptimizer(manager), [], asyncio.Event()

    async def compute():
        computed.append(1)
        await go.wait()
        return 42

    waiting = [asyncio.ensure_future(optimizer.get_or_set_cache("answer", compute)) for _ in range(100)]
    await asyncio.sleep(0)
    go.set()
    assert await asyncio.gather(*waiting) == [42] * 100
    assert await optimizer.get_or_set_cache("answer", compute) == 42
    assert len(computed) == 1


def test_threads_that_want_the_same_value_compute_it_once(manager):
    computed, told, go = [], [], threading.Event()

    def compute():
        computed.append(1)
        go.wait(60)
        return "value"

    threads = [threading.Thread(target=lambda: told.append(manager.get_or_set("k", compute))) for _ in range(8)]
    for one in threads:
        one.start()
    go.set()
    for one in threads:
        one.join()
    assert told == ["value"] * 8
    assert len(computed) == 1


def test_failed_computation_is_not_kept(manager):
    def broken():
        raise OSError("down")

    with pytest.raises(OSError, match="down"):
        manager.get_or_set("k", broken)
    assert manager.get_or_set("k", lambda: 7) == 7


def test_values_can_be_set_deleted_and_cleared(manager):
    manager.set("a", 1)
    manager.set("b", [2])
    assert (manager.get("a"), manager.get("b")) == (1, [2])
    manager.delete("a")
    assert manager.get("a", "gone") == "gone"
    manager.clear()
    assert manager.get("b") is None


def test_value_that_is_not_json_and_a_coroutine_are_refused(manager):
    with pytest.raises(ConfigError, match="cannot be cached"):
        manager.get_or_set("k", object)

    async def later():
        return 1

    with pytest.raises(ConfigError, match="Pass the async function itself"):
        manager.get_or_set("k", lambda: later())


def test_damaged_file_of_values_is_logged_once_and_computed_past(tmp_path, caplog):
    (tmp_path / "values.db").write_bytes(b"not a database" * 100)
    manager = CacheManager(path=tmp_path / "values.db")
    assert [manager.get_or_set("k", lambda: 7) for _ in range(3)] == [7, 7, 7]
    assert len([one for one in caplog.records if "cannot be used" in one.getMessage()]) == 1


def test_tool_is_selected_by_success_then_cost_then_speed(manager):
    optimizer = PerformanceOptimizer(manager)
    select = optimizer.optimize_tool_selection
    assert select("Search the web", {"a": {"success_rate": 0.6}, "b": {"success_rate": 0.95}}) == "b"
    assert "succeeded" in optimizer.reason
    assert select("Search the web", {"a": {"cost": 0.05, "latency": 1}, "b": {"cost": 0.01, "latency": 9}}) == "b"
    assert select("Search the web", [{"name": "a", "latency": 3.0}, {"name": "b", "latency": 0.5}]) == "b"
    assert select("Search the web", {"a": {"cost": 0.01, "latency": 3.0}, "b": {"latency": 0.5}}) == "a"  # a cost is unknown
    assert select("Search the web", {"a": {}, "b": {}}) == "a"
    assert optimizer.reason == ""


def test_tool_that_has_nothing_to_do_with_the_task_is_not_selected(manager):
    tools = {
        "calculator": {"description": "Calculate an expression.", "cost": 0.0, "latency": 0.01, "success_rate": 1.0},
        "web_search": {"description": "Search the web for pages.", "cost": 0.02, "latency": 2.0, "success_rate": 0.9},
        "news_search": {"description": "Search the web for news.", "cost": 0.01, "latency": 2.0, "success_rate": 0.9},
    }
    optimizer = PerformanceOptimizer(manager)
    assert optimizer.optimize_tool_selection("Search the web for tea shops", tools) == "news_search"
    with pytest.raises(ConfigError, match="at least one tool"):
        optimizer.optimize_tool_selection("anything", {})


async def test_past_runs_decide_where_metadata_say_nothing(manager):
    @tool(effect="pure")
    def down(q: str) -> str:
        """Search."""
        raise OSError("down")

    @tool(effect="pure")
    def up(q: str) -> str:
        """Search."""
        return q

    journal = MemoryJournal()
    model = ScriptedModel([[call("down", q=str(n)), call("up", q=str(n))] for n in range(6)] + ["done"])
    await Agent(model, [down, up], journal=journal).run("?")
    optimizer = PerformanceOptimizer(manager)
    assert optimizer.optimize_tool_selection("x", {"down": {}, "up": {}}) == "down"
    await optimizer.learn_from(journal, ["down", "up"])
    assert optimizer.optimize_tool_selection("x", {"down": {}, "up": {}}) == "up"
    assert "100%" in optimizer.reason
