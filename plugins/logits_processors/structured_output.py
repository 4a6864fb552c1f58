"""Outputs of a given form: JSON by a schema, a regular expression, a choice, a grammar."""

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

    from turnout.plugins.logits_processors.bitmasks import Chain

__all__ = ["StructuredOutput"]

EVERYTHING = 0
"""The mask of rows that nothing is forbidden in, because their request ends or nobody gets to them."""


class StructuredOutput(LogitsProcessor):
    """Forbids every token with which the output could no longer have the form of `structured_outputs`.

    The end of sequence is allowed exactly where the output is complete.
    """

    masks = True

    def start(self, model: ServedModel) -> None:
        from turnout.plugins.logits_processors.bitmasks import Bitmasks
        from turnout.plugins.logits_processors.grammars import Grammars
        from turnout.plugins.logits_processors.matching import Matchers

        self._grammars = Grammars(model)
        self._beginnings: WeakKeyDictionary[Request, LLMatcher] = WeakKeyDictionary()
        self._matchers = Matchers(self._beginnings.__getitem__)
        self._bitmasks = Bitmasks(model.vocab_size)

    def wants(self, params: SamplingParams) -> bool:
        return params.structured_outputs is not None

    def prepare(self, spec: RequestSpec) -> Callable[[], object] | None:
        asked = spec.params.structured_outputs
        assert asked is not None
        return None if self._grammars.ready(asked) else partial(self._grammars.get, asked)

    def check(self, request: Request) -> None:
        asked = request.params.structured_outputs
        assert asked is not None
        self._beginnings[request] = self._grammars.get(asked)

    def apply(self, logits: Tensor, rows: Sequence[Row]) -> None:
        from turnout.kernels.gpu.staging import to_device
        from turnout.plugins.logits_processors.bitmasks import forbid

        chains = self._chains(rows)
        masks = self._bitmasks.of([chain for found in chains.values() for chain in found])
        mask_of = {
            (sequence, place): mask
            for sequence, found in chains.items()
            if not _failed(sequence.request, found, masks)
            for chain in found
            for place, mask in chain.masks.items()
        }
        wanted = [mask_of.get((row.sequence, row.guesses), EVERYTHING) for row in rows]
        forbid(logits, to_device(masks[wanted], logits.device))

    def _chains(self, rows: Sequence[Row]) -> dict[TokenSequence, list[Chain]]:
        """The places that `rows` are about, of each sequence that has kept to its grammar."""
        from turnout.plugins.logits_processors.bitmasks import chains
        from turnout.plugins.logits_processors.matching import Departed

        places: dict[TokenSequence, list[tuple[int, ...]]] = {}
        for row in rows:
            places.setdefault(row.sequence, []).append(row.guesses)
        found: dict[TokenSequence, list[Chain]] = {}
        for sequence, guesses in places.items():
            try:
                found[sequence] = chains(self._matchers.at_end_of(sequence), guesses)
            except Departed as error:
                sequence.request.fault = f"structured output failed: {error}"
        return found


def _failed(request: Request, chains: Sequence[Chain], masks: Tensor) -> bool:
    """Marks the request if it cannot go on: the others can."""
    for chain in chains:
        if chain.matcher.is_error():
            request.fault = f"structured output failed: {chain.matcher.get_error().strip()}"
        elif not all(masks[mask].any() for mask in chain.masks.values()):
            request.fault = "structured output failed: no token of the vocabulary can go on from here"
    return request.fault is not None
