"""The paged KV backend."""

from __future__ import annotations

import importlib.util
import logging
import os
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from turnout.core.errors import ConfigError
from turnout.core.interfaces.attention import AttentionBackend
from turnout.core.interfaces.compute import ComputeContext
from turnout.core.interfaces.eviction import EvictionPolicy
from turnout.core.interfaces.kv import KVBackend, KVCache, PoolSize
from turnout.core.types.layer_attention import ATTENTION_FEATURES
from turnout.core.types.model_spec import ModelSpec
from turnout.plugins.kv_backends.paged.host.cache import PagedCache
from turnout.plugins.kv_backends.paged.host.kv_groups import (
    ONE_GROUP,
    KVGroups,
    described,
    groups_of,
    most_blocks,
)
from turnout.plugins.kv_backends.storage.dtypes import StoredDtype, approximation, bytes_per_token

__all__ = ["Paged"]

logger = logging.getLogger(__name__)


class Paged(KVBackend):
    """Keeps sequences in blocks of `block_size` tokens, shared by equal prefixes and copied on write.

    Kwon et al., "Efficient Memory Management for Large Language Model Serving with PagedAttention", 2023.
    """

    attention_features = ATTENTION_FEATURES

    def __init__(
        self,
        block_size: Annotated[int, Field(description="Tokens in a block.")] = 16,
        prefix_caching: Annotated[
            bool, Field(description="Keep the blocks of ended requests for prompts that begin alike.")
        ] = True,
        dtype: StoredDtype = "auto",
        attention: Annotated[
            Literal["auto", "torch", "triton"],
            Field(
                description="`triton`: GPU kernels that read blocks in place; `torch` gathers the blocks; "
                "`auto`: `triton` on a GPU that has it; on a CPU as `--cpu-kernels` says."
            ),
        ] = "auto",
        cascade: Annotated[
            int,
            Field(
                description="With `triton`: read a prefix that running sequences share once for all of "
                "them, if that saves reading at least this many positions in a step; 0: never."
            ),
        ] = 0,
        groups: Annotated[
            bool,
            Field(
                description="Keep layers with a window apart from others, and of each sequence only what "
                "their windows still see; false: keep every layer's positions in full."
            ),
        ] = True,
    ) -> None:
        if cascade < 0:
            raise ConfigError(f"cascade must be 0 or a number of positions, not {cascade}")
        if block_size < 1:
            raise ConfigError(f"block_size must be at least 1 token, not {block_size}")
        self.block_size = self.unit = self.grows_at = block_size
        self.prefix_caching = self.evicts = prefix_caching
        self.dtype = dtype
        self.approximation = approximation(dtype)
        self._attention = attention
        self._cascade = cascade
        self._grouping = groups
        self._groups: KVGroups | None = None
        """Those of the model that it serves, if its layers are in several or have windows."""

    def for_model(self, spec: ModelSpec) -> KVBackend:
        backend = copy(self)
        backend._groups = groups_of(spec) if self._grouping else None
        return backend

    def bytes_per_token(self, spec: ModelSpec, itemsize: int) -> int:
        if self._groups is None:
            return bytes_per_token(self.dtype, spec.layer_attention(), itemsize)
        layers = len(self._groups.groups) * self._groups.height
        return bytes_per_token(self.dtype, spec.layer_attention()[:1] * layers, itemsize)

    def positions(self, length: int, step: int | None = None) -> int:
        if self._groups is None:
            return super().positions(length, step)
        windows, size = self._groups.windows, self.block_size
        blocks = sum(most_blocks(length, window, size, step) for window in windows)
        return -(-blocks * size // len(windows))

    def cache(self, size: PoolSize, eviction: EvictionPolicy) -> KVCache:
        windows = ONE_GROUP if self._groups is None else self._groups.windows
        return PagedCache(
            size, self.block_size, eviction, prefix_caching=self.prefix_caching, windows=windows
        )

    def attention(self, spec: ModelSpec, cache: KVCache, context: ComputeContext) -> AttentionBackend:
        assert isinstance(cache, PagedCache)
        groups = self._groups
        if groups is not None and spec.layers < len(groups.table_of):
            groups = groups.of_layers(spec.first_layer, spec.layers)
        by_kernels, why_not = self._by_kernels(context.device.type, spec)
        if by_kernels:
            from turnout.plugins.kv_backends.paged.device.kernel_attention import PagedKernels

            if self._cascade and "window" in spec.attention_features():
                raise ConfigError(
                    f"paged:cascade reads whole prefixes, and layers of {spec.architecture} have windows; "
                    "leave it out"
                )
            kernels = PagedKernels(spec, cache, context, self.dtype, self._cascade, groups)
            kernels.summary = [*kernels.summary, *described(spec, groups, wanted=self._grouping)]
            return kernels
        if self._cascade:
            raise ConfigError(
                "paged:cascade is an option of Triton's kernels, which this engine does not use; leave it out"
            )
        from turnout.plugins.kv_backends.paged.device.gathered_attention import PagedAttention

        if self._attention == "torch":
            context = replace(context, kernels=None)
        attention = PagedAttention(spec, cache, context, self.dtype, groups)
        kept = described(spec, groups, wanted=self._grouping)
        attention.summary = [*attention.summary, *why_not, *kept]
        return attention

    def _by_kernels(self, device: str, spec: ModelSpec) -> tuple[bool, Sequence[str]]:
        """Whether Triton's kernels attend, and for the start-up summary why not where they might."""
        installed = importlib.util.find_spec("triton") is not None
        if self._attention == "auto":
            if device != "cuda":
                return False, ()
            if not installed:
                logger.warning("Triton is not installed: attention gathers its context, which takes longer")
                return False, ()
            missing = _not_followed(spec)
            return not missing, [f"attention in plain PyTorch: {missing}"] if missing else ()
        if self._attention == "triton":
            if not installed:
                raise ConfigError("paged:attention=triton needs the package triton; install it, or use torch")
            if device == "cpu" and not os.environ.get("TRITON_INTERPRET"):
                raise ConfigError("paged:attention=triton needs a GPU; use torch on a CPU")
            if missing := _not_followed(spec):
                raise ConfigError(f"paged:attention=triton cannot serve this model: {missing}; use torch")
        return self._attention == "triton", ()


def _not_followed(spec: ModelSpec) -> str:
    """What layers ask for that Triton's kernels do not follow; empty: they follow all."""
    from turnout.plugins.kv_backends.paged.device.kernel_attention import FOLLOWED

    if spec.head_dim % 2:  # they turn and write pairs of numbers
        return f"Triton's kernels do not follow heads of an odd width, such as {spec.head_dim}"
    missing = sorted(spec.attention_features() - FOLLOWED)
    return f"Triton's kernels do not follow {', '.join(missing)}" if missing else ""
