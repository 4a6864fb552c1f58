"""Plugins that compute with tensors, each with one mistake."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from turnout.core.interfaces.compute import ComputeContext
from turnout.core.interfaces.logits_processor import LogitsProcessor, Row
from turnout.core.interfaces.proposer import DraftRequest, Proposal
from turnout.core.interfaces.quantization import ExportedLayer, Quantizer
from turnout.core.types.decision import Continuation
from turnout.core.types.plan import Logits
from turnout.core.types.request import Request
from turnout.core.types.request import Sequence as TokenSequence
from turnout.core.types.sampling_params import SamplingParams
from turnout.models.families.qwen2 import Qwen2
from turnout.plugins.decoding.candidates import continue_each
from turnout.plugins.decoding.greedy import Greedy
from turnout.plugins.decoding.sampling import Sampling
from turnout.plugins.decoding.speculation.strategy import Speculative
from turnout.plugins.logits_processors.min_tokens import MinTokens
from turnout.plugins.logits_processors.penalties import Penalties
from turnout.plugins.proposers.ngram import NGram
from turnout.plugins.quantization.schemes.int8 import Int8
from turnout.sampling.draws import draw
from turnout.sampling.exponential_race import exponential_race
from turnout.testing.toy.model import VOCABULARY

# ------------------------------------------------------------------ decoding


class BiasedSampler(Sampling):
    """Draws from a distribution that is a little flatter than the model's."""

    def decide(self, requests: Sequence[Request], logits: Logits) -> Iterable[Continuation]:
        return continue_each(requests, logits, lambda values, rows: draw(values * 0.8, rows))


class NoiseOfTheBatch(Sampling):
    """Noise by the place in the batch, not by the request's seed."""

    def decide(self, requests: Sequence[Request], logits: Logits) -> Iterable[Continuation]:
        return continue_each(
            requests,
            logits,
            lambda values, rows: exponential_race(values.softmax(-1), torch.arange(len(rows))),
        )


class SecondBest(Greedy):
    """Off by one: the second most likely token."""

    def decide(self, requests: Sequence[Request], logits: Logits) -> Iterable[Continuation]:
        return continue_each(requests, logits, lambda values, rows: values.topk(2).indices[:, 1])


class DeafToProcessors(Greedy):
    """Chooses by the raw logits."""

    def decide(self, requests: Sequence[Request], logits: Logits) -> Iterator[Continuation]:
        for request in requests:
            for sequence in request.live:
                token = int(logits.of([sequence])[0].argmax())
                children = request.width if request.forks == 0 else 1
                yield from [Continuation(sequence, [token])] * children


class SpoilsTheLogits(Greedy):
    """Works in place."""

    def decide(self, requests: Sequence[Request], logits: Logits) -> Iterable[Continuation]:
        decided = list(super().decide(requests, logits))
        logits.values.sub_(1)
        return decided


class OneChoiceShort(Sampling):
    """A choice less than was asked for."""

    def decide(self, requests: Sequence[Request], logits: Logits) -> Iterator[Continuation]:
        seen: dict[Request, int] = {}
        for continuation in super().decide(requests, logits):
            request = continuation.parent.request
            seen[request] = seen.get(request, 0) + 1
            if not (request.forks == 0 and request.width > 1 and seen[request] == request.width):
                yield continuation


class AcceptsOneGuessMore(Speculative):
    """An off-by-one acceptance: the first wrong draft token is taken, too."""

    def decide(self, requests: Sequence[Request], logits: Logits) -> Iterator[Continuation]:
        drafts = {s: list(s.draft) for request in requests for s in request.live}
        for continuation in super().decide(requests, logits):
            draft, tokens = drafts[continuation.parent], list(continuation.tokens)
            if len(tokens) <= len(draft):
                tokens[-1] = draft[len(tokens) - 1]
            yield continuation._replace(tokens=tokens)


class NeverForgets(Speculative):
    """Keeps what it knew of sequences that ended."""

    def __init__(self) -> None:
        super().__init__(ngram=True)
        self._kept: list[TokenSequence] = []

    def forget(self, sequences: Sequence[TokenSequence]) -> None:
        self._kept += sequences


DECODINGS: Mapping[str, tuple[Callable[[], Any], tuple[str, ...]]] = {
    "biased sampler": (BiasedSampler, ()),
    "noise of the batch": (NoiseOfTheBatch, ()),
    "second best": (SecondBest, ("greedy",)),
    "deaf to processors": (DeafToProcessors, ()),
    "spoils the logits": (SpoilsTheLogits, ()),
    "one choice short": (OneChoiceShort, ()),
    "accepts one draft token more": (
        lambda: AcceptsOneGuessMore(ngram=True, adaptive=False),
        ("greedy", "sampling"),
    ),
    "never forgets": (NeverForgets, ()),
}
"""With the strategies whose tokens each claims to give."""

# ------------------------------------------------------------------ proposers


class OneGuessTooMany(NGram):
    """Guesses one more than was wanted."""

    def propose(self, requests: Sequence[DraftRequest]) -> Iterable[Proposal]:
        for proposal in super().propose(requests):
            wanted = next(request.tokens for request in requests if request.sequence is proposal.sequence)
            yield proposal._replace(tokens=(proposal.tokens + [1] * wanted)[: wanted + 1])


class WritesDown(NGram):
    """Puts its drafts into the sequence."""

    def propose(self, requests: Sequence[DraftRequest]) -> Iterable[Proposal]:
        for proposal in list(super().propose(requests)):
            proposal.sequence.tokens[-1] = proposal.tokens[0]
            yield proposal


class Remembers(NGram):
    """Keeps what it read of sequences that ended."""

    def forget(self, sequences: Iterable[TokenSequence]) -> None:
        pass


class BelowZero(NGram):
    """Gives numbers that add up to 1, and are no probabilities."""

    def propose(self, requests: Sequence[DraftRequest]) -> Iterable[Proposal]:
        for sequence, tokens, _ in super().propose(requests):
            probabilities = torch.zeros(len(tokens), VOCABULARY)
            probabilities[:, 0], probabilities[:, 1] = 2.0, -1.0
            yield Proposal(sequence, tokens, probabilities)


PROPOSERS = [OneGuessTooMany, WritesDown, Remembers, BelowZero]

# ------------------------------------------------------------------ logits processors, quantizers, families


class LooksAtNeighbours(Penalties):
    """Takes the mean of the batch off."""

    def apply(self, logits: Tensor, rows: Sequence[Row]) -> None:
        super().apply(logits, rows)
        logits -= logits.mean()


class BlindToGuesses(MinTokens):
    """Counts accepted tokens alone."""

    def apply(self, logits: Tensor, rows: Sequence[Row]) -> None:
        super().apply(logits, [Row(row.sequence, row.index) for row in rows])


class RaisesWhatItMasks(MinTokens):
    """Holds tokens back by making all others likelier."""

    def apply(self, logits: Tensor, rows: Sequence[Row]) -> None:
        logits += 1


class CountsCalls(Penalties):
    """Depends on how often it was asked."""

    def apply(self, logits: Tensor, rows: Sequence[Row]) -> None:
        self.calls = getattr(self, "calls", 0) + 1
        super().apply(logits, rows)
        logits[:, 0] += self.calls


class Forgives(Penalties):
    """Makes numbers of minus infinity."""

    def apply(self, logits: Tensor, rows: Sequence[Row]) -> None:
        super().apply(logits, rows)
        logits -= logits.min(-1, keepdim=True).values


class _Counts(LogitsProcessor):
    """Notes which tokens have come, and reads only those that are new."""

    def __init__(self) -> None:
        self.noted = WeakKeyDictionary[object, tuple[int, set[int]]]()

    def wants(self, params: SamplingParams) -> bool:
        return params.presence_penalty != 0

    def owner(self, row: Row) -> object:
        raise NotImplementedError

    def apply(self, logits: Tensor, rows: Sequence[Row]) -> None:
        for each, row in zip(logits, rows, strict=True):
            length, tokens = self.noted.get(self.owner(row), (0, set()))
            tokens = tokens | set(row.last(max(0, row.output_length - length)))
            self.noted[self.owner(row)] = row.output_length, tokens
            each[sorted(tokens)] -= row.params.presence_penalty


class NotesByRequest(_Counts):
    """Takes the tokens of all choices together."""

    def owner(self, row: Row) -> object:
        return row.request


class NotesDrafts(_Counts):
    """Does not forget drafted tokens that are rejected."""

    def owner(self, row: Row) -> object:
        return row.sequence


PROCESSORS = [
    *(LooksAtNeighbours, BlindToGuesses, RaisesWhatItMasks, CountsCalls, Forgives),
    *(NotesByRequest, NotesDrafts),
]


class _Rounded(Quantizer):
    """Weights in 8 bits with a scale for each output, computed in the layer's dtype: right."""

    def wants(self, name: str, linear: nn.Linear) -> bool:
        return "lm_head" not in name

    def convert(self, linear: nn.Linear, context: ComputeContext) -> nn.Module:
        return _Int8(linear, self.scale(linear.weight.float()))

    def scale(self, weight: Tensor) -> Tensor:
        return weight.abs().amax(1, keepdim=True).clamp_min(1e-38) / 127


class _Int8(nn.Module):
    def __init__(self, linear: nn.Linear, scale: Tensor) -> None:
        super().__init__()
        self.codes = (linear.weight.float() / scale).round().clamp(-127, 127).to(torch.int8)
        self.scale, self.bias, self.dtype = scale, linear.bias, linear.weight.dtype

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, (self.codes * self.scale).to(self.dtype), self.bias)


class OneScale(_Rounded):
    """A scale that is ten times too coarse."""

    def scale(self, weight: Tensor) -> Tensor:
        return super().scale(weight) * 10


class LosesTheBias(_Rounded):
    def convert(self, linear: nn.Linear, context: ComputeContext) -> nn.Module:
        converted = _Int8(linear, self.scale(linear.weight.float()))
        converted.bias = None
        return converted


class KeepsTheLayer(_Rounded):
    def convert(self, linear: nn.Linear, context: ComputeContext) -> nn.Module:
        converted = super().convert(linear, context)
        converted.original = [linear]  # type: ignore[assignment]
        return converted


class DividesByZero(_Rounded):
    def scale(self, weight: Tensor) -> Tensor:
        return weight.abs().amax(1, keepdim=True) / 127

    def convert(self, linear: nn.Linear, context: ComputeContext) -> nn.Module:
        converted = _Int8(linear, self.scale(linear.weight.float()))
        converted.codes = converted.codes.float() + 0 / converted.scale  # NaN where the scale is 0
        return converted


class RoundsWhatItExports(Int8):
    """Scales in a checkpoint are coarser than those that it computes with."""

    def export(self, weight: Tensor) -> ExportedLayer:
        exported = super().export(weight)
        coarse = exported.tensors["weight_scale"].half().float()
        return replace(exported, tensors={**exported.tensors, "weight_scale": coarse})


RIGHT_QUANTIZER = _Rounded
QUANTIZERS = [OneScale, LosesTheBias, KeepsTheLayer, DividesByZero]
EXPORTING_QUANTIZERS = [RoundsWhatItExports]


class BatchPositions(Qwen2):
    """Counts positions from the start of the batch."""

    def build(self, spec: Any) -> nn.Module:
        model = super().build(spec)
        forward = model.forward
        model.forward = lambda tokens, positions, attend: forward(tokens, torch.arange(len(tokens)), attend)
        return model


class AcceptsAnything(Qwen2):
    """Builds what it does not support."""

    def spec(self, config: Mapping[str, Any]) -> Any:
        return super().spec({**config, "hidden_act": "silu"})


class CountsLayersFromOne(Qwen2):
    """Attends in a layer for which there is no memory."""

    def build(self, spec: Any) -> nn.Module:
        model = super().build(spec)
        forward = model.forward
        model.forward = lambda tokens, positions, attend: forward(
            tokens, positions, lambda layer, *more: attend(layer + 1, *more)
        )
        return model


class SaysOtherHeads(Qwen2):
    """Has memory built for a KV head of each head, which the module has not."""

    def spec(self, config: Mapping[str, Any]) -> Any:
        spec = super().spec(config)
        return replace(spec, kv_heads=spec.heads)

    def build(self, spec: Any) -> nn.Module:
        return super().build(replace(spec, kv_heads=2))


FAMILIES = [BatchPositions, AcceptsAnything, CountsLayersFromOne, SaysOtherHeads]
