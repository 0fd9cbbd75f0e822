"""Design D, workflows (D8): the document's own file runs as it stands; branches, loops, human steps; every step's state."""

from pathlib import Path

import pytest

from kaname import Workflow, tool

FILE = Path(__file__).parents[1] / "corpora" / "workflow.yaml"


@tool(effect="pure")
def data_collector() -> dict:
    """Collect."""
    return {"rows": [3, 4, 5]}


@tool(effect="pure")
def data_preprocessor(data: dict) -> list:
    """Clean."""
    return sorted(data["rows"])


@tool(effect="pure")
def analyzer(values: list) -> int:
    """Analyse."""
    return sum(values)


@tool(effect="pure")
def report_generator(total: int) -> str:
    """Report."""
    return f"合計 {total}"


TOOLS = [data_collector, data_preprocessor, analyzer, report_generator]


@pytest.mark.requirement("D8")
async def test_d8_file_of_the_document():
    flow = Workflow.from_file(FILE, TOOLS, journal="memory")
    result = await flow.run()
    assert result.output == "合計 12"
    assert [task.name for task in flow.graph.tasks] == ["データ収集", "前処理", "分析", "レポート生成"]
    assert {one["status"] for one in (await flow.progress(result.run_id)).told().values()} == {"done"}


@pytest.mark.requirement("D8")
async def test_d8_branches_loops_and_human_steps(tmp_path):
    path = tmp_path / "w.yaml"
    path.write_text(
        """
workflow:
  params: {start: 1}
  steps:
    - name: grow
      tool: analyzer
      args: {values: ["${last or params.start}", "${last or params.start}"]}
      until: result >= 8
    - {name: sure, ask: "Report ${grow}?", options: ["yes", "no"]}
    - {name: report, tool: report_generator, args: {total: "${grow}"}, condition: sure == "yes"}
    - {name: nothing, tool: report_generator, args: {total: 0}, condition: sure != "yes"}
""",
        encoding="utf-8",
    )
    flow = Workflow.from_file(path, TOOLS, journal="memory")
    waiting = await flow.run()
    ((key, asked),) = waiting.questions.items()
    assert asked.prompt == "Report 8?"
    result = await flow.resume(waiting.run_id, {key: "yes"})
    assert result.output == {"report": "合計 8", "nothing": None}
    told = (await flow.progress(result.run_id)).told()
    assert [told[name]["status"] for name in ("report", "nothing")] == ["done", "skipped"]
