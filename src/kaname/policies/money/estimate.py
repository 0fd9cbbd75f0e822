"""Estimate of one call: what it can cost at most, and how long its reply can be for what is left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...core.messages import ModelRequest
from ...core.record import replace
from ...kernel.bases import ModelBase, model_info, optional

_LEAST = 128  # tokens; a shorter reply is of no use


class Estimate:
    """`tokens_in`: an upper bound of the input, or None. `longest`: the longest reply, if the settings have no bound.
    `share`: the part of what is left that a reply may take, if it need not take all."""

    def __init__(self, request: ModelRequest, model: Any, tokens_in: int | None, longest: int, share: float = 1.0) -> None:
        self.request, self.model, self._input, self._share = request, model, tokens_in, share
        own = optional(model, ModelBase, "longest_reply")(request.settings)
        self._is_bounded, self.longest = own is not None, own or longest
        settings = {**model_info(model).settings, **request.settings}
        several = settings.get("n")
        self._times: int = model_info(model).rounds * (several if isinstance(several, int) and several > 1 else 1)
        self._base, self._piece = self._price(0), 0.0
        self.most = self._price(self.longest)
        if self.most is not None and self._base is not None:
            self._piece = (self.most - self._base) / self.longest
        self._binds = False  # there is a limit that the length of the reply counts for
        self.left: float | None = None  # of the tightest limit on money, before this call

    def _price(self, output: int) -> float | None:
        if self._input is None:
            return None
        found: float | None = optional(self.model, ModelBase, "most_expensive")(self.request, self._input, output)
        return None if found is None else found * self._times

    def cost(self, output: int) -> float | None:
        """Return the highest cost of a reply with so many tokens; None if it is unknown."""
        return None if self._base is None else self._base + self._piece * output

    def tokens(self, output: int) -> int:
        return ((self._input or 0) + output) * self._times

    def output_for(self, dollars: Sequence[float], tokens: Sequence[float], longest: int = 0) -> int:
        """Return the number of tokens that a reply can have for the remaining money and tokens; 0 if they do not suffice."""
        most = min(self.longest, longest) if longest else self.longest
        least = min(most, _LEAST)
        self._binds = self._binds or bool(tokens) or bool(dollars and self.most)
        if dollars:
            left = min(dollars)
            self.left = left if self.left is None else min(left, self.left)
            if left < 0 or (left == 0 and self.most != 0):
                return 0
        for share in (self._share, 1.0):
            output = self._affordable(float(most), [one * share for one in dollars], [one * share for one in tokens])
            if output >= least:
                return int(output)
        return 0

    def _affordable(self, output: float, dollars: Sequence[float], tokens: Sequence[float]) -> float:
        if dollars and self._base is not None and self.most:
            left = min(dollars)
            output = min(output, (left - self._base) / self._piece if self._piece else output if left >= self._base else 0)
        return min(output, min(tokens) / self._times - (self._input or 0)) if tokens else output

    @property
    def least(self) -> int:
        """Return the shortest reply that is of use."""
        return min(self.longest, _LEAST)

    @property
    def size_is_unknown(self) -> bool:
        return self._input is None

    def limit_request(self, output: int) -> ModelRequest:
        """Return the request with settings that allow no longer reply."""
        if not self._binds or (self._is_bounded and output >= self.longest):
            return self.request
        return replace(self.request, settings=optional(self.model, ModelBase, "shorten_replies")(self.request.settings, output))
