"""Runs plans through a model: one forward over a flat, ragged batch."""

from __future__ import annotations

import collections.abc
from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from turnout.core.interfaces.attention import AttentionBackend, captures
from turnout.core.interfaces.models import ModelCapabilities
from turnout.core.types.logprobs import TokenLogprobs
from turnout.core.types.plan import Chunk, Logits, Plan
from turnout.core.types.request import Sequence
from turnout.kernels.gpu.staging import gather_rows, to_device
from turnout.kernels.ragged import Numbers, ranges
from turnout.models.sharding.stages import Stage
from turnout.runner.execution.capture import Capture
from turnout.runner.execution.graphs import StepGraphs
from turnout.runner.execution.piecewise_graphs import MAX_TOKENS, PiecewiseGraphs
from turnout.runner.execution.pooled_rows import PooledRows
from turnout.runner.execution.prompt_logprobs import Head, prompt_scores
from turnout.runner.execution.step_inputs import look_up, token_types

__all__ = ["BegunStep", "ModelRunner", "ScorePrompts"]

ScorePrompts = Callable[
    [collections.abc.Sequence[Chunk], Tensor, Head], Mapping[Sequence, list[TokenLogprobs]]
]
"""Does what `prompt_scores` does."""


class BegunStep(NamedTuple):
    """A step whose hidden states are computed, or are on their way."""

    chunks: list[Chunk]
    hidden: Tensor
    pooled: PooledRows | None
    wanted: Numbers
    rows: dict[Sequence, range]


class ModelRunner:
    """A model and its KV memory on one device. Implements Runner."""

    def __init__(
        self,
        model: nn.Module,
        attention: AttentionBackend,
        device: torch.device,
        capture: Capture | None = None,
        score_prompts: ScorePrompts = prompt_scores,
    ) -> None:
        """capture: captures steps: whole where the attention backend knows their shape, and in pieces where
        they are small; None: steps are not captured, and those of a stage never are. score_prompts: scores
        the prompts of a step."""
        self.model = model
        self.attention = attention
        self.device = device
        self._score_prompts = score_prompts
        capabilities = getattr(model, "capabilities", ModelCapabilities())
        self._picks_rows, self._token_types = capabilities.picks_rows, capabilities.token_types
        self._stage = model if isinstance(model, Stage) else None
        if self._stage is not None:  # it receives and sends inside a step
            capture = None
        self._capturable = attention if capture and captures(attention) else None
        self._graphs = StepGraphs(model, device, capture) if capture else None
        self._pieces = PiecewiseGraphs(model, device, capture) if capture else None

    def run(self, plan: Plan) -> Logits:
        """Returns logits [rows, vocab_size], in the model's dtype, for the rows that the chunks want."""
        return self.finish(self.begin(plan))

    @torch.inference_mode()
    def begin(self, plan: Plan) -> BegunStep | None:
        """Carries out moves, and the model's part of the step; returns None if nothing is to be computed."""
        self.attention.move(plan.moves)
        chunks = plan.chunks
        if not chunks:  # a step that only preempted a request
            return None
        pooled = PooledRows.of(chunks)
        wanted, rows = _wanted_rows(chunks)
        hidden = self._hidden(plan, wanted if pooled is None else pooled.joined(wanted))
        return BegunStep(chunks, hidden, pooled, wanted, rows)

    @torch.inference_mode()
    def finish(self, step: BegunStep | None) -> Logits:
        """Returns what `run` returns."""
        if step is None:
            return Logits(torch.empty(0, 0, device=self.device), {})
        chunks, hidden, pooled, wanted, rows = step
        if pooled is not None:
            if self._stage is not None:
                hidden = self._stage.shared(hidden)
            return self._with_pooled(chunks, hidden, pooled, wanted, rows)
        prompts = self._score_prompts(chunks, hidden, self.model.logits)  # type: ignore[arg-type]
        if len(wanted) < len(hidden):
            hidden = hidden[to_device(wanted, self.device)]
        values = self.model.logits(hidden)  # type: ignore[operator]  # nn.Module's methods are untyped
        return Logits(values, rows, prompts, gather_rows)

    def _with_pooled(
        self,
        chunks: list[Chunk],
        hidden: Tensor,
        pooled: PooledRows,
        wanted: Numbers,
        rows: dict[Sequence, range],
    ) -> Logits:
        """Returns the logits of the chunks that generate, and the hidden states of those that are pooled."""
        if len(hidden) == pooled.tokens:
            scored = any(chunk.scored for chunk in chunks)  # never of an encoder, which has no logits
            prompts = self._score_prompts(chunks, hidden, self.model.logits) if scored else {}  # type: ignore[arg-type]
            at, places = wanted, pooled.places()
        else:  # the model picked rows
            prompts = {}
            joined = pooled.joined(wanted)
            at, places = np.searchsorted(joined, wanted), pooled.places(joined)
        read = {sequence: hidden[place.start : place.stop] for sequence, place in places.items()}
        if not len(wanted):
            return Logits(torch.empty(0, 0, device=self.device), rows, prompts, gather_rows, read)
        values = self.model.logits(hidden[to_device(at, self.device)])  # type: ignore[operator]
        return Logits(values, rows, prompts, gather_rows, read)

    def _hidden(self, plan: Plan, wanted: Numbers) -> Tensor:
        """Returns hidden states [tokens, hidden_size] of all tokens, or of the wanted rows alone."""
        chunks, attention = plan.chunks, self.attention
        tokens = list(chain.from_iterable([chunk.tokens for chunk in chunks]))
        starts, lengths = [chunk.start for chunk in chunks], [len(chunk.tokens) for chunk in chunks]
        inputs = np.array([tokens, ranges(np.array(starts), np.array(lengths))])
        if self._graphs is not None and self._capturable is not None:
            shape = self._capturable.shape(plan)
            if shape is not None:
                return self._graphs.run(shape, self._capturable.bind_to(plan, shape), inputs, plan.chosen)
        attention.bind(plan)
        if self._pieces is not None and plan.tokens <= MAX_TOKENS:
            return self._pieces.run(attention, inputs, plan.chosen)
        more = (to_device(picked, self.device),) if (picked := self._picked(plan, wanted)) is not None else ()
        types = {"token_types": to_device(token_types(chunks), self.device)} if self._token_types else {}
        ids, positions = to_device(inputs, self.device)
        hidden: Tensor = self.model(look_up(ids, plan.chosen), positions, attention, *more, **types)
        return hidden

    def _picked(self, plan: Plan, wanted: Numbers) -> Numbers | None:
        """Returns the rows to ask a model for that can leave out others, at least one; None: all rows."""
        if not self._picks_rows or len(wanted) == plan.tokens:
            return None
        if any(chunk.scored for chunk in plan.chunks):
            return None
        return wanted if len(wanted) else np.zeros(1, np.int64)


def _wanted_rows(chunks: list[Chunk]) -> tuple[Numbers, dict[Sequence, range]]:
    """Returns which rows of the flat batch get logits, and which rows of these belong to each sequence."""
    lengths, counts = [len(chunk.tokens) for chunk in chunks], [chunk.rows for chunk in chunks]
    if counts == lengths == [1] * len(chunks):  # each decodes: nearly always
        sequences = [chunk.sequence for chunk in chunks]
        return np.arange(len(chunks)), dict(zip(sequences, _single_rows(len(chunks)), strict=True))
    rows, row = dict[Sequence, range](), 0
    for chunk in chunks:
        if chunk.rows:
            rows[chunk.sequence] = range(row, row + chunk.rows)
            row += chunk.rows
    counted = np.array(counts)
    return ranges(np.cumsum(lengths) - counted, counted), rows


@lru_cache(maxsize=256)
def _single_rows(count: int) -> list[range]:
    """One row for each sequence."""
    return [range(row, row + 1) for row in range(count)]
