"""Structured output: JSON by a schema, a regular expression, a choice or a grammar."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated
from weakref import WeakKeyDictionary

from pydantic import Field

from turnout.core import limits
from turnout.core.errors import ConfigError, RequestError
from turnout.core.interfaces.logits_processor import CancellableWork, LogitsProcessor, Row, ServedModel
from turnout.core.types.request import Request, RequestSpec
from turnout.core.types.request import Sequence as TokenSequence
from turnout.core.types.sampling_params import SamplingParams
from turnout.core.types.structured_outputs import StructuredOutputs

if TYPE_CHECKING:
    from torch import Tensor

    from turnout.plugins.logits_processors.structured.bitmasks import DraftPath
    from turnout.plugins.logits_processors.structured.compiler import Grammar
    from turnout.plugins.logits_processors.structured.masks.free_text import KeptMask

__all__ = ["StructuredOutput"]

ALL_ALLOWED = 0
"""The mask of rows without restriction: their request failed, or their draft tokens leave the grammar."""


class StructuredOutput(LogitsProcessor):
    """Forbids every token after which the output could no longer take the form of `structured_outputs`.

    The end of sequence is allowed exactly where the output is complete.
    """

    masks = True

    def __init__(
        self,
        compile_seconds: Annotated[
            float, Field(description="Seconds of processor time that a form may take to compile.")
        ] = limits.FORM_SECONDS.most,
    ) -> None:
        if not 0 < compile_seconds < math.inf:
            raise ConfigError(f"compile_seconds must be a number above 0, not {compile_seconds:g}")
        self._compile_seconds = compile_seconds

    def start(self, model: ServedModel) -> None:
        from turnout.plugins.logits_processors.structured.bitmasks import Bitmasks
        from turnout.plugins.logits_processors.structured.grammars import Grammars
        from turnout.plugins.logits_processors.structured.masks.mask_time import MaskTime
        from turnout.plugins.logits_processors.structured.matchers import Matchers
        from turnout.plugins.logits_processors.structured.preparing import Preparing

        self._grammars = Grammars(model, self._compile_seconds)
        self._preparing = partial(Preparing, self._grammars)
        self._grammar_of: WeakKeyDictionary[Request, Grammar] = WeakKeyDictionary()
        self._matchers = Matchers(self._grammar_of.__getitem__)
        self._bitmasks = Bitmasks(model.vocab_size, model.eos_token_ids)
        self._time = MaskTime()

    def warm_up(self) -> None:
        self._grammars.warm_up()

    def wants(self, params: SamplingParams) -> bool:
        return params.structured_outputs is not None

    def prepare(self, spec: RequestSpec) -> CancellableWork | None:
        form = _form(spec.params)
        return None if self._grammars.ready(form) else self._preparing(form, spec)

    def check(self, request: Request) -> None:
        self._grammar_of[request] = self._grammars.get(_form(request.params))

    def apply(self, logits: Tensor, rows: Sequence[Row]) -> None:
        with self._time.step(len(rows)):
            paths = self._paths(rows)
            every = [path for found in paths.values() for path in found]
            masks = self._bitmasks.of([path for path in every if not path.known], self._time)
        possible = masks.any(dim=1).tolist()
        mask_of: dict[tuple[TokenSequence, tuple[int, ...]], int | KeptMask] = {
            (sequence, draft_tokens): mask
            for sequence, found in paths.items()
            if not self._failed(sequence.request, found, possible)
            for path in found
            for draft_tokens, mask in (path.known or path.masks).items()
        }
        self._forbid(logits, masks, [mask_of.get((r.sequence, r.draft_tokens), ALL_ALLOWED) for r in rows])

    def _forbid(self, logits: Tensor, masks: Tensor, wanted: Sequence[int | KeptMask]) -> None:
        """Forbids tokens in each row by its mask: one of `masks` by its number, or one that is kept."""
        from turnout.kernels.gpu.staging import to_device
        from turnout.plugins.logits_processors.structured.bitmasks import forbid

        computed = [(number, mask) for number, mask in enumerate(wanted) if isinstance(mask, int)]
        if len(computed) == len(wanted):
            forbid(logits, to_device(masks[[mask for _, mask in computed]], logits.device))
            return
        kept: dict[int, tuple[KeptMask, list[int]]] = {}
        for number, mask in enumerate(wanted):
            if not isinstance(mask, int):
                kept.setdefault(id(mask), (mask, []))[1].append(number)
        for mask, numbers in kept.values():
            mask.forbid(logits, numbers)
        for number, found in computed:
            forbid(logits[number : number + 1], to_device(masks[found : found + 1], logits.device))

    def _paths(self, rows: Sequence[Row]) -> dict[TokenSequence, list[DraftPath]]:
        """The positions of `rows` in the grammar of each sequence; marks requests that violate theirs."""
        from turnout.plugins.logits_processors.structured.bitmasks import draft_paths
        from turnout.plugins.logits_processors.structured.matchers import GrammarViolation

        positions: dict[TokenSequence, list[tuple[int, ...]]] = {}
        for row in rows:
            positions.setdefault(row.sequence, []).append(row.draft_tokens)
        found: dict[TokenSequence, list[DraftPath]] = {}
        for sequence, draft_tokens in positions.items():
            begun = self._time.begin()
            try:
                paths = found[sequence] = draft_paths(self._matchers.at_end_of(sequence), draft_tokens)
            except GrammarViolation as error:
                sequence.request.fault = f"structured output failed: {error}"
            else:
                paths[0].seconds = self._time.since(begun)
        return found

    def _failed(self, request: Request, paths: Sequence[DraftPath], possible: Sequence[bool]) -> bool:
        """Whether a request cannot go on; if so, it is marked, and the others go on.

        possible: whether each mask allows a token.
        """
        from turnout.plugins.logits_processors.structured.compilation import reason_of
        from turnout.plugins.logits_processors.structured.masks.mask_time import TOO_LONG

        grammar = self._grammar_of[request]
        for path in paths:
            if path.known:
                continue
            if path.matcher.is_error():
                request.fault = _fault(reason_of(path.matcher.get_error()))
                self._grammars.forget(grammar)
            elif not all(possible[mask] for mask in path.masks.values()):
                request.fault = _fault("no token of the vocabulary can go on from here")
        if self._time.too_long(request, sum(path.seconds for path in paths)):
            request.fault = _fault(TOO_LONG)
            grammar.refusal = TOO_LONG
        return request.fault is not None


def _form(params: SamplingParams) -> StructuredOutputs:
    assert params.structured_outputs is not None
    return params.structured_outputs


def _fault(reason: str) -> RequestError:
    return RequestError(f"structured output failed: {reason}", "structured_outputs")
