"""Failures, patterns of success and lessons over HTTP, for administrators; approve a lesson, or roll it back."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ...memory.lessons.book import LessonBook
from ...memory.lessons.history import read_history
from ...memory.lessons.patterns import find_patterns, group_failures
from ..encoding import Json
from ..forms import ChangeLesson, caller_of, number, read_body
from ..service import Service


class LearningRoutes:
    """The addresses `/api/learning` and `/api/learning/lessons/{lesson_id}`."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def overview(self, request: Request) -> Response:
        caller_of(request, "admin")
        agent, journal = request.query_params.get("agent", ""), self._service.journal
        runs = await read_history(journal, agent=agent, limit=number(request, "limit", 300, 1, 2000))
        lessons = [one.to_json() for one in await LessonBook(journal).all(agent)]
        told: dict[str, Any] = {"runs": len(runs), "failed": len([one for one in runs if one.cause]), "lessons": lessons}
        told["failures"] = [one.to_json() for one in group_failures(runs)]
        return Json({**told, "patterns": [one.to_json() for one in find_patterns(runs)]})

    async def change(self, request: Request) -> Response:
        caller_of(request, "admin")
        form, book = await read_body(request, ChangeLesson), LessonBook(self._service.journal)
        lesson_id = request.path_params["lesson_id"]
        if form.action == "rollback":
            return Json((await book.drop(lesson_id)).to_json())
        return Json((await book.approve(lesson_id, share=form.share, untested=form.untested)).to_json())
