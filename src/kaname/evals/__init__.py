"""Evaluations: measure an agent on cases, compare two versions of it, and know whether the difference is real.

evaluation = Evaluation("shop", [Case("How much is tea?", contains="300", calls=["price"])])
report = await evaluation.run(agent, repeat=3)
"""

from ..memory.lessons.book import Lesson, LessonBook, make_lesson
from ..memory.lessons.history import PastRun, read_history
from ..memory.lessons.patterns import FailureGroup, SuccessPattern, find_patterns, group_failures
from ..memory.lessons.propose import learn_lessons
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
from .trial import ask_model, try_lesson

__all__ = [
    "AdaptiveAgent",
    "Case",
    "CaseAttempt",
    "CaseReport",
    "Comparison",
    "EvalReport",
    "Evaluation",
    "FailureGroup",
    "Finding",
    "Improvement",
    "Lesson",
    "LessonBook",
    "PastRun",
    "Reward",
    "SimulatedUser",
    "Standing",
    "SuccessPattern",
    "add_case",
    "as_solver",
    "as_test",
    "ask_model",
    "case_from_run",
    "compare",
    "compare_all",
    "explain_choice",
    "find_patterns",
    "find_report",
    "group_failures",
    "improve",
    "learn_lessons",
    "list_reports",
    "load_evaluation",
    "make_lesson",
    "read_history",
    "read_report",
    "try_lesson",
]
