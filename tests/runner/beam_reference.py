"""What transformers' beam search makes of prompts, where rounding cannot change it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from transformers import LogitsProcessor

from turnout.core.types.sampling_params import SamplingParams

NOISE = 2e-5
"""More than rounding in fp32 makes of a token's log-probability."""
NOISY_COPIES = 2
LENGTHS = (5, 18, 33)
"""Of prompts."""


@dataclass(frozen=True)
class Search:
    """What to ask both sides for."""

    width: int
    length_penalty: float = 1.0
    early_stopping: bool | Literal["never"] = False
    stops: tuple[int, ...] = (7, 30, 77, 146)
    max_tokens: int = 24
    adjustments: dict[str, Any] = field(default_factory=dict)
    """By transformers' names."""

    def __str__(self) -> str:
        early = str(self.early_stopping).lower()
        return f"{self.width} beams, penalty {self.length_penalty:g}, early {early}, {len(self.stops)} stops"

    def params(self, n: int | None = None, **more: Any) -> SamplingParams:
        return SamplingParams(
            n=n or self.width,
            use_beam_search=True,
            beam_width=self.width,
            length_penalty=self.length_penalty,
            early_stopping=self.early_stopping,
            stop_token_ids=self.stops,
            ignore_eos=True,
            max_tokens=self.max_tokens,
            **more,
        )


class Beams(NamedTuple):
    """All beams of a prompt, best first."""

    prompt: list[int]
    tokens: list[list[int]]
    scores: list[float]


class _Noise(LogitsProcessor):
    """Nothing for the first copy of the prompts, something else for each of the others, at every step."""

    def __init__(self, quiet: int) -> None:
        self._quiet = quiet
        self._generator = torch.Generator().manual_seed(7)

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        noise = NOISE * (2 * torch.rand(scores.shape, generator=self._generator) - 1)
        noise[: self._quiet] = 0
        return scores + noise


class Reference:
    """transformers on one model. What it found is kept: tests ask for the same again."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self._found: dict[str, list[Beams]] = {}

    def beams(self, search: Search, count: int) -> list[Beams]:
        """Of prompts of several lengths."""
        if repr(search) not in self._found:
            self._found[repr(search)] = [
                beams
                for length in LENGTHS
                for beams in searched(self.model, random_prompts(5, length), search)
            ]
        found = self._found[repr(search)]
        assert len(found) >= count, "too many ties"
        return found[::-1][:count]

    def logprobs(self, prompt: list[int], output: list[int]) -> list[float]:
        """Of each token of `output`, by the model itself."""
        with torch.inference_mode():
            logits = self.model(torch.tensor([prompt + output])).logits[0, len(prompt) - 1 : -1]
        return logits.log_softmax(-1).gather(1, torch.tensor(output)[:, None])[:, 0].tolist()


def searched(model: Any, prompts: Sequence[list[int]], search: Search) -> list[Beams]:
    """Of prompts of one length; those are left out on whose way two beams tie but for rounding."""
    count, width, copies = len(prompts), search.width, 1 + NOISY_COPIES
    ids = torch.tensor(list(prompts) * copies)
    with torch.inference_mode():
        out = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            num_beams=width,
            num_return_sequences=width,
            length_penalty=search.length_penalty,
            early_stopping=search.early_stopping,
            max_new_tokens=search.max_tokens,
            eos_token_id=list(search.stops) or None,
            pad_token_id=0,
            do_sample=False,
            logits_processor=[_Noise(count * width)],
            return_dict_in_generate=True,
            output_scores=True,
            **search.adjustments,
        )
    outputs = [_cut(row, search) for row in out.sequences[:, ids.shape[1] :].tolist()]
    beams = [outputs[first : first + width] for first in range(0, len(outputs), width)]
    scores = out.sequences_scores.view(-1, width).tolist()
    return [
        Beams(prompt, beams[number], scores[number])
        for number, prompt in enumerate(prompts)
        if all(beams[number + copy * count] == beams[number] for copy in range(copies))
    ]


def _cut(tokens: list[int], search: Search) -> list[int]:
    """Up to the first stop: what follows is padding."""
    end = next((place for place, token in enumerate(tokens, 1) if token in search.stops), search.max_tokens)
    return tokens[:end]


def random_prompts(count: int, length: int, seed: int = 1) -> list[list[int]]:
    return torch.randint(160, (count, length), generator=torch.Generator().manual_seed(seed)).tolist()
