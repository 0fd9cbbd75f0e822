"""Facts over HTTP, as the page reads them: all, from any one on, live; and a run as a test."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time

import pytest

from tests.serve.serving import ROOT, client, events


def facts(http, run, **asked):
    return http.get(f"/api/runs/{run}/facts", params=asked).json()["facts"]


def streamed(http, run, **asked):
    with http.stream("GET", f"/api/runs/{run}/facts", params=asked, headers={"accept": "text/event-stream"}) as answer:
        return list(events(answer.iter_lines()))


def test_facts_are_told_as_recorded_and_streamed_from_any_one_on(http):
    run = http.post("/api/runs", json={"input": "please add", "agent": "desk"}).json()["run_id"]
    whole = facts(http, run)
    assert [fact["seq"] for fact in whole] == list(range(1, len(whole) + 1))
    assert [fact["type"] for fact in whole][:3] == ["Opened", "Received", "ModelReplied"]
    for after in range(len(whole)):
        told = streamed(http, run, after=after)
        assert [one["data"] for one in told if one["event"] == "fact"] == whole[after:]
        assert [one["id"] for one in told if one["event"] == "fact"] == [str(fact["seq"]) for fact in whole[after:]]
        assert told[-1]["event"] == "over"


def test_facts_of_a_run_that_goes_on_come_with_what_is_being_said(http):
    begun = http.post("/api/runs", json={"input": "long", "agent": "desk", "mode": "detach"}).json()["run_id"]
    told = streamed(http, begun)
    kinds = [one["event"] for one in told]
    assert kinds.count("delta") > 10
    assert kinds.index("delta") < kinds.index("over")
    whole = facts(http, begun)
    assert [one["data"] for one in told if one["event"] == "fact"] == whole
    said = "".join(one["data"]["data"]["content"] for one in told if one["event"] == "delta")
    assert whole[2]["body"]["reply"]["message"]["parts"][0]["text"] == said, "also what was said before it was followed"


def test_facts_of_a_fork_come_after_those_of_the_run_that_it_goes_on_from(http):
    run = http.post("/api/runs", json={"input": "please add", "agent": "desk"}).json()["run_id"]
    fork = http.post(f"/api/runs/{run}/fork", json={"at": 3, "input": "history"}).json()["run_id"]
    whole = facts(http, fork, whole=1)
    assert [(fact["run"], fact["seq"]) for fact in whole[:4]] == [(run, 1), (run, 2), (run, 3), (fork, 1)]
    assert {fact["run"] for fact in facts(http, fork)} == {fork}
    assert [fact["seq"] for fact in facts(http, fork, whole=1, upto=1)] == [1, 2, 3, 1]
    state = http.get(f"/api/runs/{run}/state", params={"at": 3}).json()
    assert [call["name"] for call in state["pending"]] == ["add"]


def test_a_fork_keeps_the_results_that_its_calls_got_whatever_they_were(http):
    run = http.post("/api/runs", json={"input": "broken", "agent": "desk"}).json()["run_id"]
    (ended,) = [fact for fact in facts(http, run) if fact["type"] == "ToolFinished"]
    call = ended["body"]["result"]["call_id"]
    asked = {"at": 3, "keep": [call], "mode": "wait"}
    fork = http.post(f"/api/runs/{run}/fork", json=asked).json()["run_id"]
    (kept,) = [fact for fact in facts(http, fork) if fact["type"] == "ToolFinished"]
    assert kept["body"] == ended["body"], "also an error"
    assert not [fact for fact in facts(http, fork) if fact["type"] == "ToolStarted"], "it is not run again"
    assert http.post(f"/api/runs/{run}/fork", json={**asked, "keep": ["nothing"]}).status_code == 409
    twice = http.post(f"/api/runs/{run}/fork", json={**asked, "results": {call: 4}})
    assert (twice.status_code, call in twice.text) == (400, True), "two results for one call are not both meant"


def test_facts_that_no_browser_could_read_are_told_otherwise(http):
    run = http.post("/api/runs", json={"input": "surrogate", "agent": "desk"}).json()["run_id"]
    answer = http.get(f"/api/runs/{run}/facts")
    assert "NaN" in answer.text
    assert json.loads(answer.content, parse_constant=lambda name: pytest.fail(f"{name} is not valid JSON"))


def test_changes_of_runs_are_streamed_as_they_happen(http, served):
    seen, listening = [], threading.Event()

    def listen():
        with client(served) as other, other.stream("GET", "/api/runs", headers={"accept": "text/event-stream"}) as answer:
            for one in events(answer.iter_lines()):
                listening.set()
                if one["event"] == "run" and one["data"]["title"] == "tell me of it":
                    seen.append(one["data"]["status"])
                    if one["data"]["status"] == "completed":
                        return

    thread = threading.Thread(target=listen)
    thread.start()
    assert listening.wait(60)
    http.post("/api/runs", json={"input": "tell me of it", "agent": "desk"})
    thread.join(60)
    assert seen[-1:] == ["completed"]


def test_changes_tell_of_deleted_runs_and_are_not_deaf_after_one_of_the_future(http, served):
    from kaname.core.events import Opened, Received
    from kaname.core.messages import user
    from tests.page.writing import write_runs

    doomed = http.post("/api/runs", json={"input": "to be deleted", "agent": "desk"}).json()["run_id"]
    write_runs(served.folder, {"future": [Opened(), Received(user("from tomorrow"))]}, begun=time.time() + 86_400)
    seen, listening = [], threading.Event()

    def listen():
        with client(served) as other, other.stream("GET", "/api/runs", headers={"accept": "text/event-stream"}) as answer:
            for one in events(answer.iter_lines()):
                listening.set()
                seen.append((one["event"], one["data"].get("title") or one["data"].get("run_id")))
                if seen[-1] == ("run", "after that"):
                    return

    thread = threading.Thread(target=listen)
    thread.start()
    assert listening.wait(60)
    time.sleep(1.5)  # it has looked, and seen the one of tomorrow
    http.delete(f"/api/runs/{doomed}")
    http.post("/api/runs", json={"input": "after that", "agent": "desk"})
    thread.join(60)
    assert ("gone", doomed) in seen
    assert ("run", "after that") in seen


def test_facts_after_the_end_that_nobody_is_shown_end_the_stream(http, served):
    from kaname.core.events import Custom, Opened, Received, Stopped
    from kaname.core.messages import user
    from kaname.core.steps import Stop
    from tests.page.writing import write_runs

    facts = [Opened(), Received(user("hi")), Stopped(Stop("completed"), "x"), Custom("hidden", 1, shown=False)]
    write_runs(served.folder, {"tail": facts})
    told = streamed(http, "tail")
    assert [one["event"] for one in told] == ["fact"] * 4 + ["over"]
    with http.stream("GET", "/api/runs/tail/events") as answer:
        assert [one["event"] for one in events(answer.iter_lines())][-1] == "status"


def test_a_head_request_of_a_stream_is_answered(http):
    assert http.head("/api/runs", headers={"accept": "text/event-stream"}).status_code == 200


def test_me_figures_and_rating(http):
    assert http.get("/api/me").json()["roles"] == ["read", "talk", "approve", "admin"]
    run = http.post("/api/runs", json={"input": "broken", "agent": "desk"}).json()["run_id"]
    assert http.post(f"/api/runs/{run}/rating", json={"rating": "bad", "note": "it did not work"}).status_code == 200
    assert http.post(f"/api/runs/{run}/rating", json={"rating": "so so"}).status_code == 400
    told = http.get("/api/figures", params={"days": 1}).json()
    assert told["all"]["runs"] >= 1
    assert next(one for one in told["tools"] if one["name"] == "broken")["failed"] >= 1
    assert sum(day["runs"] for day in told["days"]) == told["all"]["runs"]


ODD = ('say """three""" quotes', "a \\ backslash\\", "日本語の題名", "new\nline \u2028 and\x00 null", "'''", '"')


@pytest.mark.parametrize("words", ODD)
def test_a_run_of_odd_words_is_made_into_a_test_that_passes(http, served, tmp_path, words):
    run = http.post("/api/runs", json={"input": words, "agent": "desk"}).json()
    answer = http.get(f"/api/runs/{run['run_id']}/test")
    name = answer.headers["content-disposition"].split('"')[1]
    assert name.startswith("test_")
    assert name.removesuffix(".py").isidentifier()
    compile(answer.text, name, "exec")
    scope: dict = {}
    exec(answer.text, scope)
    (test,) = [value for key, value in scope.items() if key.startswith("test_")]
    assert "agent_of(" in answer.text, "it says where its agent is"
    assert str(served.folder) not in answer.text
    assert str(ROOT) not in answer.text
    if words == ODD[2]:  # one of them as a user would: in a process of its own
        (tmp_path / name).write_text(answer.text, encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", str(tmp_path / name)]
        environment = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "KANAME_TEST_FOLDER": str(tmp_path), "PATH": "/usr/bin:/bin"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert "1 passed" in done.stdout, done.stdout + done.stderr
    assert callable(test)


def test_costs_that_nobody_knows_are_not_told_as_zero():
    from kaname.core.runs import Tally
    from kaname.run.figures import sum_tallies
    from kaname.serve.page.figures import StoredCall, Uses

    unknown = Tally("completed", 1, 2, 30, 0.0, 2)
    assert (sum_tallies([unknown])["cost"], sum_tallies([unknown])["unpriced"]) == (None, 2)
    assert sum_tallies([unknown, Tally("completed", 2, 1, 15, 0.5, 0)])["cost"] == 0.5
    assert sum_tallies([])["cost"] == 0
    uses = Uses()
    uses.take([StoredCall("gpt", 1.0, tokens=10, cost=None)])
    assert uses.as_json()[0]["cost"] is None
