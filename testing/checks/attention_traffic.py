"""Sequences over both halves of a KV backend, and what their attention is by the textbook in float64."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count

import torch
from torch import Tensor

from turnout.core.interfaces.compute import ComputeContext, FusedKernels
from turnout.core.interfaces.kv import KVBackend, PoolSize, Span
from turnout.core.types.layer_attention import LayerAttention
from turnout.core.types.model_spec import ModelSpec
from turnout.core.types.plan import Chunk, Plan
from turnout.core.types.request import Request, RequestSpec
from turnout.core.types.request import Sequence as TokenSequence
from turnout.core.types.sampling_params import SamplingParams
from turnout.plugins.evictions.lru import Lru
from turnout.testing.toy.attention import toy_spec
from turnout.testing.toy.decodings import ToyParallel

__all__ = ["EXAMPLES", "Rules", "Traffic", "new_sequence", "random_traffic", "spec_of"]

VOCABULARY, POSITIONS = 6, 160
ROOM, FORKS = 60, 2
CPU = torch.device("cpu")

Rules = Sequence[LayerAttention]
Attends = Callable[[int], Iterable[int]]
Stored = Callable[[Tensor], Tensor]

_PLAIN = LayerAttention(heads=4, kv_heads=2, key_dim=8, value_dim=8)
_WIDE = replace(_PLAIN, heads=8, kv_heads=1)
_LOCAL = replace(_PLAIN, scale=0.4, window=5, softcap=3.0)
_LATENT = LayerAttention(heads=4, kv_heads=1, key_dim=12, value_dim=10, values_in_keys=True, scale=0.2)
EXAMPLES: Mapping[str, Rules] = {
    "plain": [_PLAIN, _PLAIN],
    "scale": [replace(_PLAIN, scale=0.7), _PLAIN],
    "window": [replace(_PLAIN, window=6), _PLAIN, replace(_PLAIN, window=33)],
    "a window of one position": [replace(_PLAIN, window=1), replace(_PLAIN, window=2)],
    "softcap": [replace(_PLAIN, softcap=2.0), _PLAIN],
    "sinks": [replace(_PLAIN, sinks=True), _PLAIN],
    "value_dim": [replace(_PLAIN, value_dim=12), replace(_PLAIN, value_dim=4)],
    "layer_shapes": [
        _PLAIN,
        LayerAttention(heads=6, kv_heads=1, key_dim=4, value_dim=4),
        replace(_PLAIN, kv_heads=4),
        _PLAIN,
    ],
    "kv_from": [
        _PLAIN,
        replace(_PLAIN, window=4),
        replace(_PLAIN, kv_from=0),
        replace(_PLAIN, kv_from=1, window=9),
    ],
    "values_in_keys": [_LATENT, _LATENT],
    "as Gemma 2": [_LOCAL, replace(_LOCAL, window=None)],
    "as Gemma 3n": [_LOCAL, _WIDE, replace(_PLAIN, kv_from=0, window=5), replace(_WIDE, kv_from=1)],
    "as gpt-oss": [replace(_WIDE, sinks=True, window=16), replace(_WIDE, sinks=True)],
    "all at once": [
        replace(_PLAIN, softcap=4.0, sinks=True, window=7, scale=0.3, value_dim=6),
        _LATENT,
        LayerAttention(heads=6, kv_heads=3, key_dim=16, value_dim=6, sinks=True),
        LayerAttention(heads=2, kv_heads=2, key_dim=8, value_dim=6, kv_from=0, softcap=2.0, window=20),
    ],
}
"""Layers that ask for one feature each, and mixtures."""

_names = count()


def spec_of(rules: Rules) -> ModelSpec:
    first = rules[0]
    return replace(
        toy_spec(),
        layers=len(rules),
        heads=first.heads,
        kv_heads=first.kv_heads,
        head_dim=first.key_dim,
        attention=tuple(rules),
    )


class Drawn:
    """Queries, keys and values of each layer, by token and position, and the sinks of heads."""

    def __init__(self, rules: Rules, dtype: torch.dtype) -> None:
        generator = torch.Generator().manual_seed(7)

        def draw(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator).to(dtype).double()

        def sides(heads: int, dim: int) -> tuple[Tensor, Tensor]:
            return draw(VOCABULARY, heads, dim), draw(POSITIONS, heads, dim)

        self.queries = [sides(rule.heads, rule.key_dim) for rule in rules]
        self.keys = [sides(rule.kv_heads, rule.key_dim) for rule in rules]
        self.values = [sides(rule.kv_heads, rule.value_dim) for rule in rules]
        self.sinks = [draw(rule.heads) for rule in rules]
        self._dtype = dtype

    def of(self, pair: tuple[Tensor, Tensor], tokens: Sequence[int], first: int = 0) -> Tensor:
        by_token, by_position = pair
        both = by_token[list(tokens)] + by_position[first : first + len(tokens)]
        return both.to(self._dtype)


class Traffic:
    """A backend's two halves, and steps that compute chunks of sequences and check what comes out."""

    def __init__(
        self,
        backend: KVBackend,
        rules: Rules,
        *,
        dtype: torch.dtype = torch.float64,
        stored: Stored = lambda vectors: vectors,
        attends: Attends = lambda position: range(position + 1),
        tolerance: float = 1e-9,
        kernels: FusedKernels | None = None,
        tokens: int = 4096,
    ) -> None:
        """stored: keys or values as read; attends: what the query at a position sees, apart from rules."""
        spec = spec_of(rules)
        self.rules, self.stored, self.tolerance, self.dtype = rules, stored, tolerance, dtype
        backend = backend.for_model(spec)
        self.kv = backend.cache(PoolSize(tokens, tokens), Lru())
        self.attention = backend.attention(spec, self.kv, ComputeContext(CPU, dtype, kernels))
        self.drawn = Drawn(rules, dtype)
        self.checked = 0
        """Tokens of layers that were compared."""
        self._seen = torch.zeros(POSITIONS, POSITIONS, dtype=torch.bool)
        for position in range(POSITIONS):
            self._seen[position, list(attends(position))] = True

    def step(self, work: Sequence[tuple[TokenSequence, int]]) -> list[list[Tensor]]:
        """Computes so many tokens of each sequence; returns what each layer gave for each of them."""
        spans = [
            Span(each, begin := self._start(each), min(begin + count, len(each.tokens)))
            for each, count in work
        ]
        assert self.kv.reserve(spans), "`reserve` refused what the pool has room for; expected True"
        chunks = [Chunk(each, begin, each.tokens[begin:upto], 1) for each, begin, upto in spans]
        plan = Plan(chunks, self.kv.drain())
        self.attention.move(plan.moves)
        self.attention.bind(plan)
        found: list[list[Tensor]] = [[] for _ in chunks]
        for layer, rule in enumerate(self.rules):
            out = self._attend(layer, rule, chunks)
            for place, piece in enumerate(torch.split(out, [len(chunk.tokens) for chunk in chunks])):
                found[place].append(piece)
        for (each, _, upto), pieces in zip(spans, found, strict=True):
            each.request.timing.scheduled = 0.0
            each.held, each.computed = True, upto
            self.kv.commit(each, upto)
            self._check(each.tokens[:upto], pieces)
        return found

    def fork(self, parent: TokenSequence, token: int) -> TokenSequence:
        """A sibling that goes on with `token`."""
        child = parent.fork()
        self.kv.fork(parent, child)
        child.tokens.append(token)
        return child

    def release(self, sequence: TokenSequence, *, swap_out: bool = False) -> None:
        self.kv.release([sequence], swap_out=swap_out)
        sequence.computed, sequence.held = 0, False

    def _start(self, sequence: TokenSequence) -> int:
        return sequence.computed if sequence.held else self.kv.cached(sequence)

    def _attend(self, layer: int, rule: LayerAttention, chunks: Sequence[Chunk]) -> Tensor:
        def side(pair: tuple[Tensor, Tensor]) -> Tensor:
            return torch.cat([self.drawn.of(pair, chunk.tokens, chunk.start) for chunk in chunks])

        k = None if rule.kv_from is not None else side(self.drawn.keys[layer])
        v = None if k is None or rule.values_in_keys else side(self.drawn.values[layer])
        q = side(self.drawn.queries[layer])
        if rule.sinks:
            return self.attention(layer, q, k, v, self.drawn.sinks[layer].float())
        return self.attention(layer, q, k, v)

    def _check(self, tokens: Sequence[int], found: Sequence[Tensor]) -> None:
        for layer, piece in enumerate(found):
            expected = self._reference(layer, tokens)[-len(piece) :]
            assert piece.dtype == self.dtype and piece.shape == expected.shape, (
                f"attention gave {list(piece.shape)} of {piece.dtype}; expected {list(expected.shape)} of "
                f"{self.dtype}"
            )
            error = (piece.double() - expected).abs().max().item()
            assert error <= self.tolerance, (
                f"attention of layer {layer}, {self.rules[layer]}, is off by {error:g} in a context of "
                f"{len(tokens)} tokens; expected at most {self.tolerance:g}"
            )
            self.checked += len(piece)

    def _reference(self, layer: int, tokens: Sequence[int]) -> Tensor:
        """The textbook, head by head."""
        rule = self.rules[layer]
        source = layer if rule.kv_from is None else rule.kv_from
        drawn, owner = self.drawn, self.rules[source]
        q = drawn.of(drawn.queries[layer], tokens).double()
        k = self.stored(drawn.of(drawn.keys[source], tokens)).double()
        if owner.values_in_keys:
            v = k[..., : owner.value_dim]
        else:
            v = self.stored(drawn.of(drawn.values[source], tokens)).double()
        places = torch.arange(len(tokens))
        near = places[:, None] - places < (rule.window or POSITIONS)
        seen = self._seen[: len(tokens), : len(tokens)] & near
        out = []
        for head in range(rule.heads):
            of = head // (rule.heads // rule.kv_heads)
            scores = q[:, head] @ k[:, of].T
            scores *= rule.key_dim**-0.5 if rule.scale is None else rule.scale
            if rule.softcap is not None:
                scores = rule.softcap * torch.tanh(scores / rule.softcap)
            weights = scores.exp() * seen
            total = weights.sum(1, keepdim=True)
            if rule.sinks:
                total += drawn.sinks[layer][head].exp()
            out.append(weights @ v[:, of] / total)
        return torch.stack(out, 1)


def random_traffic(traffic: Traffic, rng: random.Random, steps: int = 14) -> None:
    """Common prefixes, chunks, forks, swapping, decoding; several sequences in each step."""
    common = [rng.randrange(VOCABULARY) for _ in range(37)]
    live: list[TokenSequence] = []
    for _ in range(steps):
        if len(live) < 4:
            own = [rng.randrange(VOCABULARY) for _ in range(rng.randrange(1, 30))]
            live.append(new_sequence(common[: rng.randrange(38)] + own))
        traffic.step([(each, rng.choice([1, 2, 5, 17, 40])) for each in live if _unfinished(each)])
        for each in list(live):
            if each.computed < len(each.tokens):
                continue
            fate = rng.random()
            if fate < 0.25 and each.request.forks < FORKS:
                live.append(traffic.fork(each, rng.randrange(VOCABULARY)))
                each.tokens.append(rng.randrange(VOCABULARY))
            elif fate < 0.4:
                traffic.release(each, swap_out=True)
                each.tokens.append(rng.randrange(VOCABULARY))
            elif fate < 0.5 or len(each.tokens) > 110:
                traffic.release(each)
                live.remove(each)
            else:
                each.tokens.append(rng.randrange(VOCABULARY))


def _unfinished(each: TokenSequence) -> bool:
    return not each.held or each.computed < len(each.tokens)


def new_sequence(tokens: list[int]) -> TokenSequence:
    """The first sequence of a new request."""
    spec = RequestSpec(id=f"a{next(_names)}", prompt=tokens, params=SamplingParams(n=1 + FORKS), seed=0)
    return Request(spec, ToyParallel(), 0.0, len(tokens) + ROOM, frozenset()).live[0]
