"""The verb `map` of an agent. What it does is imported with the first call."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable
from typing import TYPE_CHECKING, Any, Generic, cast

from ..input import Input
from ..result import OutputT

if TYPE_CHECKING:
    from .batches import BatchPrices
    from .map import Map, MapInput, Runner


class Mappable(Generic[OutputT]):
    """The verb `map` of an agent."""

    def map(
        self,
        inputs: Iterable[Input | MapInput] | AsyncIterable[Input | MapInput],
        *,
        job: str = "",
        at_once: int = 8,
        batch: bool | BatchPrices = False,
        deps: Any = None,
    ) -> Map[OutputT]:
        """Run the agent once for each input, several at a time.

        Args:
            inputs: A list, an iterator or an async iterator of inputs. It is read as the runs progress, so it can be very long.
                Pass `MapInput(…)` for an input with a key, a session or a user of its own.
            job: The name of the job. The ids of its runs follow from it, the key and the input: with the same name, inputs that
                have a result are not run again, and runs that were interrupted are resumed. By default it is a new one.
            at_once: How many runs are under way at the same time (default: 8).
            batch: True to call the model through the provider's batch API, for half the price. A run waits until its batch is
                done, which takes up to a day for each of its steps.
            deps: What tools find in `ToolContext.deps`.

        Returns:
            `Map`: iterate it for `(key, result)` as they come, or await it for all results in the order of the inputs.

        An input that fails does not stop the others: `result.stop` says what happened.
        """
        from .map import Map

        return Map(cast("Runner[OutputT]", self), inputs, job, at_once, batch, deps)
