"""A tiny decoder in float64, and what it says when nothing is cached: the reference of the stress test."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from turnout.core.interfaces.compute import ComputeContext
from turnout.core.types.model_spec import ModelSpec
from turnout.models.checkpoints.loading import load_model
from turnout.models.decoder.layers import RMSNorm
from turnout.models.families import Qwen2
from turnout.models.random.random_weights import write_random_checkpoint
from turnout.models.random.shapes import Shape, config_of
from turnout.plugins.kv_backends.storage.dtypes import KVDtype
from turnout.plugins.kv_backends.storage.pool import make_storage
from turnout.plugins.kv_backends.storage.tensors import PoolShape

__all__ = ["MAX_MODEL_LEN", "VOCABULARY", "BruteForce", "Context", "Rows", "tiny_model", "tiny_spec"]

VOCABULARY = 32
MAX_MODEL_LEN = 128
_CONFIG = config_of(
    Shape(32, 2, 4, 2, 48, VOCABULARY, max_positions=MAX_MODEL_LEN, theta=10_000.0, tied=False),
    "qwen2",
    dtype="float64",
)

BATCH = 64

Context = tuple[int, ...]
"""Tokens, from the first."""

Rows = npt.NDArray[np.float64]
"""Of positions, one row each: logits, [positions, VOCABULARY]; keys and values, [positions, 64], of each of 2
layers keys and then values, of 2 heads, 8 numbers each."""


WINDOW = 6
"""Positions that a query sees in the first layer of a windowed case."""


@cache
def tiny_spec(*, windowed: bool = False) -> ModelSpec:
    """windowed: its first layer has a window, and its second none."""
    spec = Qwen2().spec(_CONFIG)
    full = spec.layer_attention()[1]
    return replace(spec, attention=(replace(full, window=WINDOW), full)) if windowed else spec


@cache
def tiny_model() -> nn.Module:
    """All of it in float64, so that the shape of a batch changes a logit by 1e-14, no more.

    The norms, too, which Turnout's own do in float32; these are also done in one call.
    """
    with tempfile.TemporaryDirectory() as folder:
        write_random_checkpoint(Path(folder), _CONFIG, seed=7, dtype="float64")
        model = load_model(
            Path(folder),
            Qwen2(),
            tiny_spec(),
            ComputeContext(torch.device("cpu"), torch.float64),
            progress=False,
        )
    for name, module in list(model.named_modules()):
        if isinstance(module, RMSNorm):
            model.set_submodule(name, _float64_norm(module))
    return model


def _float64_norm(norm: RMSNorm) -> nn.Module:
    wide = _Float64Norm(norm.weight.shape, eps=norm.eps, bias=False, dtype=torch.float64)
    wide.weight = norm.weight
    return wide


class _Float64Norm(nn.LayerNorm):
    def add(self, x: Tensor, delta: Tensor | None) -> tuple[Tensor, Tensor]:
        total = x if delta is None else x + delta
        return total, self(total)


class BruteForce:
    """What comes of whole contexts, each computed from its first token. Remembers logits it was asked for.

    `stored`: keys and values are rounded as a pool of that dtype does, but kept nowhere. `windowed`: as in
    `tiny_spec`.
    """

    def __init__(self, stored: KVDtype = "auto", *, windowed: bool = False) -> None:
        self.stored = stored
        self.windowed = windowed
        self._model = tiny_model()
        self._last: dict[Context, Rows] = {}

    def last(self, contexts: Iterable[Context]) -> list[Rows]:
        """For each context the logits of its next token, [VOCABULARY]."""
        contexts = list(contexts)
        new = {context for context in contexts if context not in self._last}
        for context, (logits, _) in self._computed(_followers(new).values()).items():
            ends = {context[: place + 1]: row for place, row in enumerate(logits)}
            self._last.update((start, ends[start].copy()) for start in ends.keys() & new)
        return [self._last[context] for context in contexts]

    def memory(self, contexts: Iterable[Context]) -> Iterator[Rows]:
        """For each context the keys and values of its positions, [len(context), 64]."""
        contexts = list(contexts)
        followers = _followers(contexts)
        computed = self._computed(followers.values())
        return (computed[followers[context]][1][: len(context)] for context in contexts)

    def _computed(self, contexts: Iterable[Context]) -> dict[Context, tuple[Rows, Rows]]:
        """Logits and memory of all positions of each."""
        contexts = list(dict.fromkeys(contexts))
        batches = (contexts[first : first + BATCH] for first in range(0, len(contexts), BATCH))
        return {context: rows for batch in batches for context, rows in self._batch(batch)}

    def _batch(self, contexts: Sequence[Context]) -> Iterator[tuple[Context, tuple[Rows, Rows]]]:
        length = max(len(context) for context in contexts)
        tokens = torch.zeros(len(contexts), length, dtype=torch.int64)
        for row, context in zip(tokens, contexts, strict=True):
            row[: len(context)] = torch.tensor(context)
        positions = torch.arange(length).repeat(len(contexts))
        rules = tiny_spec(windowed=self.windowed).layer_attention()
        attention = _Whole(len(contexts), self.stored, [rule.window for rule in rules])
        with torch.inference_mode():
            hidden = self._model(tokens.reshape(-1), positions, attention)
            logits = self._model.logits(hidden).view(len(contexts), length, -1).numpy()
            memory = torch.cat(attention.memory, dim=-1).view(len(contexts), length, -1).numpy()
        for context, rows, kv in zip(contexts, logits, memory, strict=True):
            yield context, (rows[: len(context)], kv[: len(context)])


def _followers(contexts: Iterable[Context]) -> dict[Context, Context]:
    """For each the longest of them that goes on from it: in order, a prefix is right before what does."""
    followers: dict[Context, Context] = {}
    follower: Context = ()
    for context in sorted(contexts, reverse=True):
        if follower[: len(context)] != context:
            follower = context
        followers[context] = follower
    return followers


class _Whole:
    """Causal attention over a padded batch: what pads on the right is never looked at."""

    def __init__(self, batch: int, stored: KVDtype, windows: Sequence[int | None]) -> None:
        self.memory: list[Tensor] = []
        """Of each layer, [tokens, kv_heads * head_dim * 2]."""
        self._batch = batch
        self._stored = stored
        self._windows = windows

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        keys, values = _rounded(k, v, self._stored)
        self.memory.append(torch.cat([keys.flatten(1), values.flatten(1)], dim=1))
        places = torch.arange(len(q) // self._batch)
        behind = places[:, None] - places
        seen = (behind >= 0) & (behind < (self._windows[layer] or len(places)))
        sides = (self._split(x) for x in (q, keys, values))
        out = F.scaled_dot_product_attention(*sides, attn_mask=seen, enable_gqa=True)
        return out.transpose(1, 2).reshape(q.shape)

    def _split(self, x: Tensor) -> Tensor:
        return x.view(self._batch, -1, *x.shape[1:]).transpose(1, 2)


def _rounded(k: Tensor, v: Tensor, stored: KVDtype) -> tuple[Tensor, Tensor]:
    """[tokens, kv_heads, head_dim] each, as they are read back."""
    if stored == "auto":
        return k, v
    storage = make_storage(stored, PoolShape(1, *k.shape, v.shape[-1]), k.device, k.dtype)
    storage.write(0, torch.arange(len(k)), k, v)
    keys, values = storage.read(0, slice(0, len(k)))
    return keys.contiguous(), values.contiguous()
