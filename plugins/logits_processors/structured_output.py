"""Structured output: JSON by a schema, a regular expression, a choice or a grammar."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from turnout.core.interfaces.logits_processor import LogitsProcessor, Row, ServedModel
from turnout.core.types.request import Request, RequestSpec
from turnout.core.types.request import Sequence as TokenSequence
from turnout.core.types.sampling_params import SamplingParams

if TYPE_CHECKING:
    from llguidance import LLMatcher
    from torch import Tensor

    from turnout.plugins.logits_processors.bitmasks import DraftPath

__all__ = ["StructuredOutput"]

ALL_ALLOWED = 0
"""The mask of rows without restriction: their request failed, or their draft tokens leave the grammar."""


class StructuredOutput(LogitsProcessor):
    """Forbids every token after which the output could no longer take the form of `structured_outputs`.

    The end of sequence is allowed exactly where the output is complete.
    """

    masks = True

    def start(self, model: ServedModel) -> None:
        from turnout.plugins.logits_processors.bitmasks import Bitmasks
        from turnout.plugins.logits_processors.grammars import Grammars
        from turnout.plugins.logits_processors.matchers import Matchers

        self._grammars = Grammars(model)
        self._start: WeakKeyDictionary[Request, LLMatcher] = WeakKeyDictionary()
        self._matchers = Matchers(self._start.__getitem__)
        self._bitmasks = Bitmasks(model.vocab_size)

    def wants(self, params: SamplingParams) -> bool:
        return params.structured_outputs is not None

    def prepare(self, spec: RequestSpec) -> Callable[[], object] | None:
        form = spec.params.structured_outputs
        assert form is not None
        return None if self._grammars.ready(form) else partial(self._grammars.get, form)

    def check(self, request: Request) -> None:
        form = request.params.structured_outputs
        assert form is not None
        self._start[request] = self._grammars.get(form)

    def apply(self, logits: Tensor, rows: Sequence[Row]) -> None:
        from turnout.kernels.gpu.staging import to_device
        from turnout.plugins.logits_processors.bitmasks import forbid

        paths = self._paths(rows)
        masks = self._bitmasks.of([path for found in paths.values() for path in found])
        mask_of = {
            (sequence, draft_tokens): mask
            for sequence, found in paths.items()
            if not _failed(sequence.request, found, masks)
            for path in found
            for draft_tokens, mask in path.masks.items()
        }
        wanted = [mask_of.get((row.sequence, row.draft_tokens), ALL_ALLOWED) for row in rows]
        forbid(logits, to_device(masks[wanted], logits.device))

    def _paths(self, rows: Sequence[Row]) -> dict[TokenSequence, list[DraftPath]]:
        """The positions of `rows` in the grammar of each sequence; marks requests that violate theirs."""
        from turnout.plugins.logits_processors.bitmasks import draft_paths
        from turnout.plugins.logits_processors.matchers import GrammarViolation

        positions: dict[TokenSequence, list[tuple[int, ...]]] = {}
        for row in rows:
            positions.setdefault(row.sequence, []).append(row.draft_tokens)
        found: dict[TokenSequence, list[DraftPath]] = {}
        for sequence, draft_tokens in positions.items():
            try:
                found[sequence] = draft_paths(self._matchers.at_end_of(sequence), draft_tokens)
            except GrammarViolation as error:
                sequence.request.fault = f"structured output failed: {error}"
        return found


def _failed(request: Request, paths: Sequence[DraftPath], masks: Tensor) -> bool:
    """Whether a request cannot go on; if so, it is marked, and the others go on."""
    for path in paths:
        if path.matcher.is_error():
            request.fault = f"structured output failed: {path.matcher.get_error().strip()}"
        elif not all(masks[mask].any() for mask in path.masks.values()):
            request.fault = "structured output failed: no token of the vocabulary can go on from here"
    return request.fault is not None
