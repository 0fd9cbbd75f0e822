"""Merging what several agents said: right results, and disagreement that is told."""

import asyncio

import pytest

from kaname import Agent, ConfigError, DelegateToHuman, ScriptedModel, call, merge


def agent(reply, name):
    return Agent(ScriptedModel(reply if callable(reply) else lambda request: reply), name=name, journal="memory")


@pytest.mark.requirement("D15")
async def test_d15_five_agents_two_wrong_one_failing():
    def broken(request):
        raise RuntimeError("no connection")

    said = {"a": "Kyoto", "b": "Osaka", "c": "kyoto.", "d": "Nara", "e": broken}
    agents = [agent(reply, name) for name, reply in said.items()]
    results = await asyncio.gather(*[one.run("Where?") for one in agents], return_exceptions=True)
    merged = await merge(dict(zip(said, results, strict=True)))
    assert (merged.value, merged.agreement, merged.tied) == ("Kyoto", 0.5, False)
    assert merged.dissent == {"b": "Osaka", "d": "Nara"}
    assert "no connection" in merged.failed["e"]


@pytest.mark.parametrize(
    ("strategy", "answers", "value"),
    [
        ("sum", [1, "2", "about 3 pieces"], 6),
        ("summation", [0.5, 0.25], 0.75),
        ("average", ["1,000円", 2000], 1500),
        ("median", [1, 5, 100], 5),
        ("majority_vote", ["はい。", "はい", "いいえ"], "はい。"),
        ("majority", [{"a": 1}, {"a": 1}, {"a": 2}], {"a": 1}),
        (lambda answers: max(answers.values()), [1, 3, 2], 3),
    ],
)
async def test_strategy_gives(strategy, answers, value):
    assert (await merge(answers, strategy)).value == value


async def test_votes_count_by_their_weights_and_ties_are_told():
    said = {"expert": "yes", "a": "no", "b": "no"}
    merged = await merge(said, "weighted", weights={"expert": 3})
    assert (merged.value, merged.agreement, merged.dissent) == ("yes", 0.6, {"a": "no", "b": "no"})
    merged = await merge(["yes", "no"])
    assert (merged.value, merged.tied, merged.agreement) == ("yes", True, 0.5)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1,000円", 1000),
        (".5", 0.5),
        ("−3 度", -3),
        ("1,2,3", None),
        ("item-5", None),
        ("9" * 5000, None),
        ("12.5%", 12.5),
        ("３個", 3),
    ],
)
async def test_number_is_read_or_not_at_all(text, number):
    merged = await merge({"a": text, "b": 7}, "sum")
    assert merged.value == 7 + (number or 0)
    assert ("a" in merged.failed) == (number is None)


async def test_whole_numbers_are_compared_whole():
    assert (await merge([9000000000001, 9000000000002])).agreement == 0.5
    assert (await merge([2, 2.0, "2"])).agreement == 1.0
    assert (await merge({1: "x", "a": "x"})).agreement == 1.0


async def test_answers_without_one_number_are_told_and_not_counted():
    merged = await merge({"a": 4, "b": "either 3 or 5", "c": "I do not know"}, "average")
    assert merged.value == 4
    assert sorted(merged.failed) == ["b", "c"]
    assert (await merge([10, 10, 40], "average")).dissent == {"1": 10, "2": 10, "3": 40}


async def test_judge_chooses_without_knowing_who_said_it_and_its_run_is_recorded():
    seen = []

    def choose(request):
        seen.append(request.messages[-1].text)
        return '{"number": 2, "reason": "it is complete"}'

    judge = agent(choose, "judge")
    merged = await merge({"anna": "tea", "ben": "green tea from Uji"}, "best", judge=judge, task="What do we drink?")
    assert (merged.value, merged.reason, merged.dissent) == ("green tea from Uji", "it is complete", {"anna": "tea"})
    assert "What do we drink?" in seen[0]
    assert "anna" not in seen[0]
    assert (await judge.result(merged.run_id)).completed
    merged = await merge(["tea", "coffee"], "llm_based_synthesis", judge=agent("Tea or coffee: they disagree.", "writer"))
    assert (merged.value, merged.agreement) == ("Tea or coffee: they disagree.", 0.5)
    assert merged.dissent == {"1": "tea", "2": "coffee"}


@pytest.mark.parametrize("said", ["2", "２", " **2.**\n", '"2"', "#2", "2.0", '{"number": "2"}', "```json\n2\n```"])
async def test_judge_may_answer_with_the_bare_number(said):
    assert (await merge(["tea", "coffee"], "best", judge=agent(said, "judge"))).value == "coffee"


async def test_judge_with_a_type_of_output_chooses_by_its_value():
    judge = Agent(ScriptedModel(lambda request: "2"), name="judge", output=int, journal="memory")
    assert (await merge(["tea", "coffee"], "best", judge=judge)).value == "coffee"


@pytest.mark.parametrize(
    "said", ["0", "-1", "3", "1.5", "true", '{"number": true}', "none of the 2", "NaN", "1 or 2", "9" * 5000]
)
async def test_judge_without_one_whole_number_has_chosen_nothing(said):
    with pytest.raises(ConfigError, match="did not choose one of the 2 answers"):
        await merge(["tea", "coffee"], "best", judge=agent(said, "judge"))


@pytest.mark.parametrize(
    ("results", "options", "told"),
    [
        ([], {}, "nothing to merge: no results"),
        ([ValueError("x")], {}, "nothing to merge: 1: ValueError: x"),
        (["a"], {"strategy": "vote"}, "strategy must be majority"),
        (["a"], {"strategy": "best"}, "'best' needs an agent that decides"),
        (["a"], {"strategy": "average"}, "nothing to merge: 1: 0 numbers in 'a'"),
        (["a"], {"weights": {"1": 1}}, "with strategy 'weighted'"),
        (["a"], {"strategy": "weighted", "weights": {"1": float("nan")}}, "weights must be numbers"),
        ("Kyoto", {}, "results must be a list"),
        (["a"], {"strategy": ["sum"]}, "strategy must be a name or a function"),
        (["a"], {"strategy": "weighted", "weights": {"b": 1}}, "weights has unknown names: b; available: 1"),
        (["a", "b"], {"strategy": "best", "judge": agent('{"number": 3}', "j")}, "did not choose one of the 2 answers"),
    ],
)
async def test_what_cannot_be_merged_is_told(results, options, told):
    with pytest.raises(ConfigError, match=told):
        await merge(results, **options)


@pytest.mark.requirement("D15")
async def test_d15_task_is_given_to_a_person_and_their_answer_comes_back(tmp_path):
    def made():
        def script(request):
            last = request.messages[-1]
            if last.role == "user":
                return call(
                    "delegate_task_to_human",
                    task_details="Is invoice 12 right?",
                    reason_for_delegation="I cannot see the goods",
                    human_expert_role="accountant",
                )
            return f"The accountant says: {last.parts[0].output}"

        return Agent(ScriptedModel(script), [DelegateToHuman(["accountant", "driver"])], journal=tmp_path / "j.db")

    waiting = await made().run("Check the invoice.")
    ((key, asked),) = waiting.questions.items()
    assert asked.prompt == "[accountant] Is invoice 12 right? (I cannot see the goods)"
    assert (await made().resume(waiting.run_id, {key: "It is."})).output == "The accountant says: It is."
    assert made().tools["delegate_task_to_human"].parameters["properties"]["human_expert_role"]["enum"] == [
        "accountant",
        "driver",
    ]
