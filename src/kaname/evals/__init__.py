"""Evaluations: measure an agent on cases, compare two versions of it, and know whether the difference is real.

evaluation = Evaluation("shop", [Case("How much is tea?", contains="300", calls=["price"])])
report = await evaluation.run(agent, repeat=3)
"""

from .adaptive import AdaptiveAgent, Reward, Standing, explain_choice
from .case import Case
from .evaluation import Evaluation
from .files import load_evaluation
from .improvement.search import Improvement, improve
from .inspect_solver import as_solver
from .pytest_form import as_test
from .recorded import add_case, case_from_run
from .records import find_report, list_reports, read_report
from .results.comparison import Comparison, compare, compare_all
from .results.report import CaseAttempt, CaseReport, EvalReport, Finding
from .simulated import SimulatedUser

__all__ = [
    "AdaptiveAgent",
    "Case",
    "CaseAttempt",
    "CaseReport",
    "Comparison",
    "EvalReport",
    "Evaluation",
    "Finding",
    "Improvement",
    "Reward",
    "SimulatedUser",
    "Standing",
    "add_case",
    "as_solver",
    "as_test",
    "case_from_run",
    "compare",
    "compare_all",
    "explain_choice",
    "find_report",
    "improve",
    "list_reports",
    "load_evaluation",
    "read_report",
]
