"""Applies logits processors in their order to the requests that want them, and contains their faults."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from operator import getitem
from typing import TYPE_CHECKING

from turnout.core.errors import RequestError, as_plugin_errors
from turnout.core.interfaces.logits_processor import CancellableWork, LogitsProcessor, Row, ServedModel
from turnout.core.plugin_faults import PluginFaults, name_plugin, plugin_errors
from turnout.core.types.extra_args import check_known

if TYPE_CHECKING:
    from torch import Tensor

    from turnout.core.types.request import Request, RequestSpec
    from turnout.core.types.sampling_params import SamplingParams

__all__ = ["ActiveProcessor", "LogitsProcessors", "PreparationWork", "adjust"]

logger = logging.getLogger(__name__)

Pick = Callable[["Tensor", list[int]], "Tensor"]
"""Returns the rows of a tensor with these numbers."""
Put = Callable[["Tensor", list[int], "Tensor"], object]
"""Writes the rows of a tensor with these numbers."""


def _put(logits: Tensor, rows: list[int], values: Tensor) -> None:
    logits[rows] = values


class ActiveProcessor:
    """A processor, its index in the order in which processors apply, and its title in messages."""

    def __init__(self, title: str, processor: LogitsProcessor, index: int = 0) -> None:
        self.title = title
        self.processor = processor
        self.index = index
        self.pick: Pick = getitem
        self.put: Put = _put
        self._plugin_faults = PluginFaults("logits_processor", logger)
        name_plugin(processor, title)

    def warm_up(self) -> None:
        """As `LogitsProcessor.warm_up`, with faults logged."""
        try:
            self.processor.warm_up()
        except plugin_errors() as error:
            self._plugin_faults.report(self.processor, "warm_up", error)

    def preparation(self, spec: RequestSpec) -> PreparationWork | None:
        """Returns the processor's preparation for a request, None for none.

        Raises RequestError if the processor rejects the request or fails.
        """
        if not self._wanted(spec.params):
            return None
        with self.refusing("prepare"):
            work = self.processor.prepare(spec)
        return None if work is None else PreparationWork(self, work)

    def wants(self, request: Request) -> bool:
        """Whether the processor applies to a request. Raises RequestError if it rejects it or fails."""
        if not self._wanted(request.params):
            return False
        with self.refusing("check"):
            self.processor.check(request)
        return True

    def apply(self, logits: Tensor, rows: Sequence[Row]) -> str | None:
        """Applies the processor in place. Returns why it failed, if it did; `logits` are invalid then."""
        try:
            self.processor.apply(logits, rows)
        except plugin_errors() as error:
            return self._plugin_faults.report(self.processor, "apply", error)
        return None

    def _wanted(self, params: SamplingParams) -> bool:
        """Asks `wants`. Raises RequestError if it fails at a request that may want the processor.

        A request that gives none of the extra arguments that the processor declares goes on without it.
        """
        try:
            return bool(self.processor.wants(params))
        except plugin_errors() as error:
            message = self._plugin_faults.report(self.processor, "wants", error)
            declared = self.processor.extra_args
            if declared and params.extra_args.keys().isdisjoint(declared):
                return False
            raise RequestError(message) from error

    @contextmanager
    def refusing(self, method: str) -> Iterator[None]:
        """Turns what the processor raises in the block into a RequestError that names it."""
        try:
            yield
        except RequestError:
            raise
        except plugin_errors() as error:
            raise RequestError(self._plugin_faults.report(self.processor, method, error)) from error


class PreparationWork:
    """A processor's work for a request. Raises RequestError if that rejects the request or fails."""

    def __init__(self, active: ActiveProcessor, work: Callable[[], object]) -> None:
        self._active = active
        self._work = work

    def __call__(self) -> None:
        with self._active.refusing("prepare"):
            self._work()

    def cancel(self) -> None:
        """Ends the work, if the processor can."""
        if isinstance(self._work, CancellableWork):
            self._work.cancel()


class LogitsProcessors:
    """All logits processors, in the order in which they apply: masks last."""

    def __init__(self, processors: Iterable[tuple[str, LogitsProcessor]] = ()) -> None:
        """`processors`: each with its title in messages, in order except for the masks."""
        ordered = sorted(processors, key=lambda named: named[1].masks)
        self._active = [ActiveProcessor(*named, index) for index, named in enumerate(ordered)]
        self._extra_args = {name for _, processor in ordered for name in processor.extra_args}

    @property
    def all(self) -> list[LogitsProcessor]:
        """In the order in which they apply."""
        return [active.processor for active in self._active]

    def start(self, model: ServedModel, pick: Pick = getitem, put: Put = _put) -> None:
        """Starts all processors. Raises PluginError, naming the processor, if one fails.

        pick, put: read and write rows that are not adjacent, if possible without waiting for the device.
        """
        for active in self._active:
            active.pick, active.put = pick, put
            with as_plugin_errors(f"{active.title}: start"):
                active.processor.start(model)

    def warm_up(self) -> None:
        """Has each processor do ahead what first requests would wait for; a fault costs only that."""
        for active in self._active:
            active.warm_up()

    def preparation(self, spec: RequestSpec) -> list[PreparationWork]:
        """Returns what the `prepare` of each processor returned for a request."""
        work = (active.preparation(spec) for active in self._active)
        return [item for item in work if item is not None]

    def wanted(self, request: Request, others: Iterable[str] = ()) -> tuple[ActiveProcessor, ...]:
        """Returns the processors that apply to a request. Raises RequestError if one rejects it.

        others: extra arguments that other plugins take.
        """
        if request.params.extra_args:
            check_known(request.params.extra_args, self._extra_args.union(others))
        return tuple(active for active in self._active if active.wants(request))


def adjust(logits: Tensor, rows: Sequence[Row]) -> Tensor:
    """Returns `logits` as the processors change them; the same tensor if no request wants a processor.

    logits: fp32 [rows, vocab_size], or log-probabilities; they stay as they are. rows: what each row follows:
    `Row(sequence, index)` or, behind drafts, `Row(sequence, index, draft_tokens)`. Every strategy chooses
    tokens by the result alone, drafts by it, and ranks log-probabilities by it: it applies penalties, masks
    and grammars. If a processor fails, the requests that want it are
    marked (`Request.fault`), the engine ends them, and their rows are returned unchanged.
    """
    if not any([row.sequence.request.processors for row in rows]):  # nearly always; a list is quicker
        return logits
    rows_of: dict[ActiveProcessor, list[int]] = {}
    for number, row in enumerate(rows):
        wanted: tuple[ActiveProcessor, ...] = row.sequence.request.processors  # type: ignore[assignment]
        for active in wanted:
            rows_of.setdefault(active, []).append(number)
    changed = logits.clone()
    for active in sorted(rows_of, key=lambda active: active.index):
        wanting = rows_of[active]
        fault = _apply(active, changed, wanting, [rows[number] for number in wanting])
        if fault is not None:
            changed[wanting] = logits[wanting]
            for number in wanting:
                rows[number].request.fault = fault
    return changed


def _apply(active: ActiveProcessor, logits: Tensor, wanting: list[int], rows: Sequence[Row]) -> str | None:
    first, last = wanting[0], wanting[-1]
    if last - first == len(wanting) - 1:  # adjacent rows: a view will do
        return active.apply(logits[first : last + 1], rows)
    part = active.pick(logits, wanting)
    fault = active.apply(part, rows)
    active.put(logits, wanting, part)
    return fault
