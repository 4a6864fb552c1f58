"""Sequences by hand, over both halves of a backend, and what their attention is in float64."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from steps import fork, release, sequence, start, swap_out
from torch import Tensor

from turnout.core.interfaces.compute import ComputeContext
from turnout.core.interfaces.kv import KVBackend, PoolSize, Span
from turnout.core.types.layer_attention import LayerAttention
from turnout.core.types.model_spec import ModelSpec
from turnout.core.types.plan import Chunk, Plan
from turnout.core.types.request import Sequence as TokenSequence
from turnout.plugins.evictions.lru import Lru
from turnout.testing.toy.attention import toy_spec

VOCABULARY, POSITIONS = 6, 160
CPU = torch.device("cpu")

Rules = Sequence[LayerAttention]
Stored = Callable[[Tensor], Tensor]


def spec_of(rules: Rules) -> ModelSpec:
    first = rules[0]
    shape = {"heads": first.heads, "kv_heads": first.kv_heads, "head_dim": first.key_dim}
    return replace(toy_spec(), layers=len(rules), attention=tuple(rules), **shape)


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
        sum = by_token[list(tokens)] + by_position[first : first + len(tokens)]
        return sum.to(self._dtype)


class Traffic:
    """A backend's two halves, and steps that compute chunks of sequences and check what comes out."""

    def __init__(
        self,
        backend: KVBackend,
        rules: Rules,
        *,
        dtype: torch.dtype = torch.float64,
        stored: Stored = lambda vectors: vectors,
        tolerance: float = 1e-9,
        kernels: object = None,
        tokens: int = 4096,
    ) -> None:
        spec = spec_of(rules)
        self.rules, self.stored, self.tolerance, self.dtype = rules, stored, tolerance, dtype
        self.kv = backend.cache(PoolSize(tokens, tokens), Lru())
        self.attention = backend.attention(spec, self.kv, ComputeContext(CPU, dtype, kernels))
        self.drawn = Drawn(rules, dtype)
        self.checked = 0

    def step(self, work: Sequence[tuple[TokenSequence, int]]) -> list[list[Tensor]]:
        """Computes so many tokens of each sequence; returns what each layer gave for each of them."""
        spans = [
            Span(each, begin := start(self.kv, each), min(begin + count, len(each.tokens)))
            for each, count in work
        ]
        assert self.kv.reserve(spans)
        chunks = [Chunk(each, begin, each.tokens[begin:upto], 1) for each, begin, upto in spans]
        plan = Plan(chunks, self.kv.drain())
        self.attention.move(plan.moves)
        self.attention.bind(plan)
        found: list[list[Tensor]] = [[] for _ in chunks]
        for layer, rule in enumerate(self.rules):
            out = self._attend(layer, rule, chunks)
            for place, piece in enumerate(out.split([len(chunk.tokens) for chunk in chunks])):
                found[place].append(piece)
        for (each, _, upto), pieces in zip(spans, found, strict=True):
            each.request.timing.scheduled = 0.0
            each.held, each.computed = True, upto
            self.kv.commit(each, upto)
            self._check(each.tokens[:upto], pieces)
        return found

    def _attend(self, layer: int, rule: LayerAttention, chunks: Sequence[Chunk]) -> Tensor:
        def side(pair: tuple[Tensor, Tensor]) -> Tensor:
            return torch.cat([self.drawn.of(pair, chunk.tokens, chunk.start) for chunk in chunks])

        k = None if rule.kv_from is not None else side(self.drawn.keys[layer])
        v = None if k is None or rule.values_in_keys else side(self.drawn.values[layer])
        given = [side(self.drawn.queries[layer]), k, v]
        if rule.sinks:
            given.append(self.drawn.sinks[layer].float())
        return self.attention(layer, *given)

    def _check(self, tokens: Sequence[int], found: Sequence[Tensor]) -> None:
        for layer, piece in enumerate(found):
            expected = self._reference(layer, tokens)[-len(piece) :]
            assert piece.dtype == self.dtype and piece.shape == expected.shape
            error = (piece.double() - expected).abs().max().item()
            assert error <= self.tolerance, f"layer {layer}, {len(tokens)} tokens: off by {error}"
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
        behind = places[:, None] - places
        seen = (behind >= 0) & (behind < (rule.window or POSITIONS))
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
            live.append(sequence(common[: rng.randrange(38)] + own, n=3, room=60))
        traffic.step([(each, rng.choice([1, 2, 5, 17, 40])) for each in live if _unfinished(each)])
        for each in list(live):
            if each.computed < len(each.tokens):
                continue
            fate = rng.random()
            if fate < 0.25 and each.request.forks < 2:
                live.append(fork(traffic.kv, each, rng.randrange(VOCABULARY)))
                each.tokens.append(rng.randrange(VOCABULARY))
            elif fate < 0.4:
                swap_out(traffic.kv, each)
                each.tokens.append(rng.randrange(VOCABULARY))
            elif fate < 0.5 or len(each.tokens) > 110:
                release(traffic.kv, each)
                live.remove(each)
            else:
                each.tokens.append(rng.randrange(VOCABULARY))


def _unfinished(each: TokenSequence) -> bool:
    return not each.held or each.computed < len(each.tokens)
