"""Rounds of one reply: what a small model is asked now, and again after a reply that cannot be accepted."""

from __future__ import annotations

from difflib import SequenceMatcher

from ...core.messages import Message, ModelRequest, Part, Provided, Text, ToolCall, assistant, user
from ...core.openai_shape import result_text
from ...core.record import replace
from ...core.sentences import split_sentences
from .answer_stream import Clears, HeldAnswer
from .choice_prompt import build_messages
from .choice_schema import digits_only, reckons
from .doubt import Doubt, copied_argument
from .numbers import sum_with_words
from .offer import Offer, TurnSoFar, earlier_result, offer_for, useless
from .plan_first.way import PlanFirst, Way

_ASKED_AGAIN = 2
_ASKED_AGAIN_PLANNED = 4
_FORCED = (1, 2)  # calls made so far: with none it may know by itself, and after more of them it has looked enough
_OWN_WORDS = "Give the answer in your own words."
_LIKE = 0.7  # of two sentences that say the same


class _Nothing:
    def clear(self, text: str) -> int:
        return 0


class Rounds:
    """The rounds of one reply.

    `messages` and `offer`: the current request. `answered`: the last answer, with the part of it that was shown.
    """

    def __init__(self, request: ModelRequest, turn: TurnSoFar, plan: PlanFirst | None) -> None:
        self._request, self._turn, self._plan = request, turn, plan
        way = None if plan is None else plan.way()
        self._planned = way is not None
        self._left = _ASKED_AGAIN if way is None else _ASKED_AGAIN_PLANNED
        self._remarks: list[str] = []
        self.marks: tuple[Provided, ...] = () if plan is None else (plan.mark(),)
        self.answered: tuple[Text, HeldAnswer] | None = None
        if way is None:
            self.messages: tuple[Message, ...] = build_messages(request, turn)
            self.offer: Offer = offer_for(turn, request)
        else:
            self._follow(way)
        looks = bool(turn.pure) and (self._planned or bool(self.offer.tools))
        self.doubt = Doubt(request, turn) if looks else None

    @property
    def clears(self) -> Clears | None:
        """Return the object that decides how much of an answer is shown. An answer that may repeat a remark is held back."""
        return _Nothing() if self._remarks else self.doubt

    @property
    def asked_back(self) -> bool:
        return bool(self._remarks)

    def asks_again(self, text: str, part: Part, problem: str, held: HeldAnswer) -> bool:
        """Prepare the next round, and return True, if this reply is not accepted. `problem`: what is wrong with its form."""
        if not self._left:
            return False
        self._left -= 1
        if isinstance(part, Text) and part.text.strip() and not self.is_ours(part):
            self.answered = (part, held)
        problem = problem or copied_argument(part, self.offer.tools) or (_OWN_WORDS if self.is_ours(part) else "")
        if problem:
            self._after_problem(text, part, problem)
            return True
        if self.doubt is not None and (remark := self.doubt.about(part)):
            self._doubt_it(text, part, remark, self.doubt)
            self.doubt = None  # once
            self._only_calls(part)
            return True
        if isinstance(part, ToolCall) and (field := self._words_in_sum(part)):
            self._say(text, f"{field!r} holds a name: write the number that it stands for, from what is known.")
            sums = tuple([digits_only(tool, field) for tool in self.offer.tools if tool.name == part.name])
            self.offer = replace(self.offer, tools=sums, answer=False)
            return True
        return False

    def is_ours(self, part: Part) -> bool:
        """Return True if an answer only repeats a remark of kaname. It is not for the user."""
        if not isinstance(part, Text) or not self._remarks:
            return False
        found = "\n".join([result_text(result) for _, result in self._turn.calls if result is not None])
        ours = [one for remark in self._remarks for one in split_sentences(remark.partition("\nQuestion:")[0], also=":")]
        ours = [one for one in ours if one not in found]
        said = split_sentences(part.text, also=":")
        return any(SequenceMatcher(None, one, other).ratio() >= _LIKE for one in said for other in ours)

    def _follow(self, way: Way) -> None:
        self.messages, self.offer, self.marks = way.messages, way.offer, (way.mark,)

    def _say(self, text: str, remark: str) -> None:
        self.messages = (*self.messages, assistant(text), user(remark))
        self._remarks.append(remark)

    def _doubt_it(self, text: str, part: Part, remark: str, doubt: Doubt) -> None:
        """Tell the model what is wrong. With a plan, the doubted reply is not shown, because it would be copied."""
        if self._plan is None or not self._planned:
            self._say(text, remark)
            return
        self._remarks.append(remark)
        if isinstance(part, ToolCall):
            last = self.messages[-1]
            left_out = Text(f"\n{doubt.from_nowhere(part)} is not known: leave it out.")
            self.messages = (*self.messages[:-1], replace(last, parts=(*last.parts, left_out)))
        else:
            self.messages = self._plan.more(doubt.ask_for_missing())

    def _only_calls(self, doubted: Part) -> None:
        """Offer only look-ups after a doubt: if it could answer, a small model would repeat itself or answer the remark."""
        pure = tuple([tool for tool in self._request.tools if tool.effect == "pure"])
        if isinstance(doubted, ToolCall):
            if self.offer.answer:
                own = tuple([tool for tool in self.offer.tools if tool.name == doubted.name or tool.effect == "pure"])
                self.offer = replace(self.offer, tools=own, answer=False)
        elif self._planned or len(self._turn.calls) in _FORCED:
            sums = tuple([digits_only(tool) if self._found_something and reckons(tool) else tool for tool in pure])
            self.offer = replace(self.offer, tools=sums, answer=False)

    def _after_problem(self, text: str, part: Part, problem: str) -> None:
        call = part if isinstance(part, ToolCall) else None
        repeated = None if call is None else earlier_result(call, self._turn)
        if call is not None and repeated is not None and self._plan is not None and (way := self._plan.again(call)):
            self._follow(way)
            return
        self._say(text, problem)
        if self._left == 0 and self.offer.tools and self._turn.calls:
            self.offer = replace(self.offer, tools=(), answer=True)
        elif call is not None and repeated is not None and useless(repeated, self._turn.pure):
            self._offer_without(call.name)

    def _offer_without(self, name: str) -> None:
        """Do not offer a tool again, unless it is the only one."""
        others = tuple([tool for tool in self.offer.tools if tool.name != name])
        self.offer = replace(self.offer, tools=others or self.offer.tools)

    def _words_in_sum(self, call: ToolCall) -> str:
        """Return the argument that calculates with names although a look-up has found something. It must be digits."""
        return sum_with_words(call.args) if self._found_something and call.name in self._turn.pure else ""

    @property
    def _found_something(self) -> bool:
        return any(result and not useless(result, self._turn.pure) for _, result in self._turn.calls)
