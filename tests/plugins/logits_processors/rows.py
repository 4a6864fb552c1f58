"""Rows of logits for requests with parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from turnout.core.engine.logits_processing import LogitsProcessors
from turnout.core.interfaces.logits_processor import Row, ServedModel
from turnout.core.registry.registry import Registry
from turnout.core.types.request import Request, RequestSpec
from turnout.core.types.sampling_params import SamplingParams
from turnout.plugins.decoding.greedy import Greedy

VOCABULARY = 12
STOPS = frozenset({5, 6})
PROMPT = [1, 2, 3, 3]
OUTPUT = [3, 4, 4]

PROCESSORS = LogitsProcessors(Registry.load().logits_processors())
PROCESSORS.start(ServedModel(Path(), VOCABULARY, frozenset()))


def a_row(
    prompt: list[int] = PROMPT,
    output: list[int] = OUTPUT,
    draft_tokens: tuple[int, ...] = (),
    *,
    processors: LogitsProcessors = PROCESSORS,
    **params: Any,
) -> Row:
    spec = RequestSpec(id="r", prompt=prompt, params=SamplingParams(**{"max_tokens": 90, **params}), seed=0)
    request = Request(spec, Greedy(), 0.0, 100, STOPS)
    request.processors = processors.wanted(request)
    sequence = request.live[0]
    sequence.tokens += output
    return Row(sequence, 0, draft_tokens)


def some_logits(rows: int = 1, seed: int = 0, columns: int = VOCABULARY) -> Tensor:
    return 3 * torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))
