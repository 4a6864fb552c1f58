"""Sizes the KV pool, and words the sums behind its size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from turnout.config import EngineConfig
from turnout.core.errors import NoRoom
from turnout.core.interfaces.kv import KVCache
from turnout.core.types.model_spec import ModelSpec
from turnout.runner.memory.device import free_memory

__all__ = ["Budget", "GpuRoom", "format_bytes", "gpu_room", "weight_bytes"]

CPU_DEFAULT = 4 * 2**30
"""Bytes of the KV pool on a CPU, unless configured; memory that no token needs stays untouched."""
CPU_SHARE = 0.5
"""At most this share of the free memory, on a CPU."""


class GpuRoom(NamedTuple):
    """What a rank's GPU leaves for keys and values and for steps."""

    free: int
    """Bytes that the engine may still take."""
    position: int
    """Bytes that a token position takes there."""


@dataclass(frozen=True)
class Budget:
    """The memory that the KV pool may take, and the bytes that a token position in it costs."""

    config: EngineConfig
    spec: ModelSpec
    device: torch.device
    bytes_per_token: int
    unit: int
    """Token positions that the backend gives out at a time."""
    request_tokens: int
    """The positions that one request of the full length takes."""
    max_model_len: int
    max_batched_tokens: int
    rows: int
    """Rows of logits that a sequence may have in a step, at most."""

    def whole(self, tokens: int) -> int:
        """Returns the positions that a sequence of so many tokens takes: whole units."""
        return -(-tokens // self.unit) * self.unit

    @property
    def request_bytes(self) -> int:
        return self.request_tokens * self.bytes_per_token

    def tokens(self, taken: int = 0, activations: int | None = None, rooms: Sequence[GpuRoom] = ()) -> int:
        """Returns how many positions the pool gets; called when the weights are in memory.

        taken: bytes of KV memory that other models have; activations: bytes that the model takes for a step,
        as measured on a GPU; None: they are estimated; rooms: of the GPUs of several ranks, each of which
        keeps its part of every position; empty: one device keeps all.
        """
        if not self.bytes_per_token:  # an encoder keeps nothing
            return self.max_batched_tokens
        if rooms:
            return self._tokens_of_ranks(rooms)
        return self._pool_bytes(taken, activations) // self.bytes_per_token

    def tokens_beside(self, name: str, bytes_per_token: int, memory: int | None) -> int:
        """Returns how many positions the pool of another model, of that name, gets.

        bytes_per_token: of a position in it; memory: bytes the pool was given; None: it gets as many
        positions as the served model's own pool.
        """
        if memory is None and self.config.kv_memory is not None:
            memory = self.config.kv_memory // self.bytes_per_token * bytes_per_token
        if memory is not None:
            return self._given(memory, f"the KV pool of {name}") // bytes_per_token
        return self._pool_bytes(0) // (self.bytes_per_token + bytes_per_token)

    def check(self, cache: KVCache) -> None:
        """Raises ConfigError, with the sums, unless one request of the full length fits."""
        if cache.holds(self.max_model_len, 1):
            return
        have = cache.capacity * self.bytes_per_token
        raise NoRoom(
            f"the KV pool of {format_bytes(have)} holds {cache.capacity:,} tokens, but "
            f"{self.describe_request()}; raise --kv-memory or lower --max-model-len"
        )

    def check_beside(self, name: str, cache: KVCache, token: int) -> None:
        """Raises ConfigError unless the pool of another model, of that name, holds a token.

        token: the bytes that a sequence of one token takes.
        """
        if not cache.holds(1, 1):
            raise NoRoom(
                f"the KV pool of {name} holds no token, since the first of a sequence takes "
                f"{format_bytes(token)}; give it more memory"
            )

    def describe_request(self) -> str:
        blocks = ""
        if self.unit > 1 and not self._forgets:
            blocks = f" = {self.request_tokens // self.unit:,} blocks of {self.unit}"
        return (
            f"one request of max_model_len={self.max_model_len:,}{blocks} needs "
            f"{format_bytes(self.request_bytes)} ({self.bytes_per_token:,} bytes a token)"
        )

    def describe(self, cache: KVCache, weights: int) -> str:
        if not self.bytes_per_token:
            return f"weights {format_bytes(weights)}, no KV pool: an encoder computes a prompt as a whole"
        pool = cache.capacity * self.bytes_per_token
        share = self.request_tokens / self.whole(self.max_model_len)
        windows = f", each in {share:.0%} of that, since layers have windows" if self._forgets else ""
        return (
            f"weights {format_bytes(weights)}, KV pool {format_bytes(pool)} = {cache.capacity:,} tokens "
            f"= {cache.capacity // self.request_tokens} requests of {self.max_model_len:,} tokens{windows}"
        )

    @property
    def _forgets(self) -> bool:
        """Whether windows leave a request of the full length less than all of its positions."""
        return self.request_tokens < self.whole(self.max_model_len)

    @property
    def sized_by_device(self) -> bool:
        """Whether the pool takes what one GPU's memory leaves for it, behind a step that is measured."""
        sized = self.device.type == "cuda" and self.config.kv_memory is None and self.config.ranks == 1
        return sized and self.bytes_per_token > 0

    def describe_gpu(self, activations: int) -> str:
        """Says the sums behind the pool's size on a GPU. activations: bytes, as measured."""
        free, total = torch.cuda.mem_get_info(self.device)
        share = self.config.gpu_memory_utilization * self.config.memory_share
        return (
            f"GPU memory {format_bytes(total)}, of which {share:g} may be used: {format_bytes(total - free)} "
            f"are, with weights and KV pool; a step takes {format_bytes(activations)} in the model, as "
            f"measured, and {format_bytes(self._logits())} for logits"
        )

    def _pool_bytes(self, taken: int, activations: int | None = None) -> int:
        if self.config.kv_memory is not None:
            return self._given(self.config.kv_memory, "kv_memory")
        most = self.config.max_num_seqs * self.request_bytes
        # A GPU's free memory excludes what is taken; a CPU's pools take their memory as they are written to.
        return max(0, min(most, self._cpu() - taken if self.device.type == "cpu" else self._gpu(activations)))

    def _tokens_of_ranks(self, rooms: Sequence[GpuRoom]) -> int:
        step = self._logits() + self._activations()
        room = max(0, min((each.free - step) // each.position for each in rooms))
        wanted = self.config.kv_memory
        if wanted is None:
            return min(self.config.max_num_seqs * self.request_tokens, room)
        if wanted // self.bytes_per_token > room:
            raise NoRoom(
                f"kv_memory asks for {format_bytes(wanted)} = {wanted // self.bytes_per_token:,} tokens, but "
                f"the GPU of the ranks that has least free has room for its part of {room:,}, beside weights "
                f"and a step; ask for at most {format_bytes(room * self.bytes_per_token)}"
            )
        return wanted // self.bytes_per_token

    def _given(self, wanted: int, what: str) -> int:
        free = free_memory(self.device)
        if wanted > free:
            raise NoRoom(
                f"{what} asks for {format_bytes(wanted)}, but {self.device} has {format_bytes(free)} free "
                "with the weights loaded; ask for less"
            )
        return wanted

    def _cpu(self) -> int:
        return min(CPU_DEFAULT, int(CPU_SHARE * self.config.memory_share * free_memory(self.device)))

    def _gpu(self, activations: int | None) -> int:
        step = self._logits() + (self._activations() if activations is None else activations)
        return gpu_room(self.device, self.config) - step

    def _logits(self) -> int:
        """Returns the bytes of a step's logits: float32, three times over."""
        rows = min(self.config.max_num_seqs * self.rows, self.max_batched_tokens)
        return 3 * 4 * rows * self.spec.vocab_size

    def _activations(self) -> int:
        return 4 * 4 * self.max_batched_tokens * (self.spec.hidden_size + 2 * self.spec.intermediate_size)


def gpu_room(device: torch.device, config: EngineConfig) -> int:
    """Returns the bytes of a GPU that an engine may still take; negative where it has too many already."""
    torch.cuda.empty_cache()  # memory that PyTorch keeps for later counts as taken
    free, total = torch.cuda.mem_get_info(device)
    share = config.memory_share
    # Alone, all used memory counts as ours. Beside other engines only our own does; theirs is not free.
    used = total - free if share == 1 else torch.cuda.memory_reserved(device)
    return min(int(config.gpu_memory_utilization * share * total) - used, free)


def weight_bytes(model: nn.Module) -> int:
    """Returns the bytes of parameters and buffers, counting shared ones once."""
    tensors = (*model.parameters(), *model.buffers())
    return sum({_storage(tensor): tensor.nbytes for tensor in tensors}.values())


def _storage(tensor: Tensor) -> int:
    """Identifies its storage. A tensor that oneDNN packed does not tell its address, but shares with none."""
    return tensor.data_ptr() if tensor.layout == torch.strided else id(tensor)


def format_bytes(count: int) -> str:
    """Formats bytes as ``1.5 GiB``, with two or three significant digits."""
    value, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.0f} {unit}" if value >= 100 or unit == "B" else f"{value:.1f} {unit}"
