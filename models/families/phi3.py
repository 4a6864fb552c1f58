"""Phi-3 and Phi-4."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from turnout.core.errors import Unsupported
from turnout.core.types.model_spec import ModelSpec
from turnout.core.types.placement import Placement, Renamed
from turnout.models.config_reader import ConfigReader
from turnout.models.families.base import Biases, DecoderFamily, read_spec
from turnout.models.families.windows import SLIDING, with_windows

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Phi3"]

ROPES = ("rope_scaling", "rope_parameters")
DEFAULTS = {"rms_norm_eps": 1e-5, "original_max_position_embeddings": 4096}
"""Of a config that says nothing of it, beside its scaling."""


class Phi3(DecoderFamily):
    """Llama's decoder, whose checkpoints join layers, and may rotate only the first part of each head.

    Such heads are put in another order, of queries and keys alike: halves of what turns, each followed by a
    half of what does not. The shared rotation then turns the latter by no angle.
    """

    architectures: ClassVar[tuple[str, ...]] = ("Phi3ForCausalLM",)
    _spec: ModelSpec

    def spec(self, config: Mapping[str, Any]) -> ModelSpec:
        share, config = _rotated_share({**DEFAULTS, **config})
        reader = ConfigReader(config)
        spec = read_spec(self.architectures[0], config, Biases(qkv=False, output=False, mlp=False))
        if share != 1:
            rope = replace(spec.rope, parameters={**spec.rope.parameters, "partial_rotary_factor": share})
            turned = rope.turned_width(spec.head_dim)
            if rope.kind == "dynamic" or turned % 2 or not 0 < turned <= spec.head_dim:
                raise Unsupported(
                    f"config.json: partial_rotary_factor = {share} is not supported: of heads of "
                    f"{spec.head_dim} numbers it turns {turned}, with rotary embeddings of the kind "
                    f"{rope.kind!r}; expected an even number of them, and any kind but 'dynamic'"
                )
            spec = replace(spec, rope=rope)
        window = reader.integer("sliding_window") if reader.has("sliding_window") else None
        self._spec = with_windows(spec, [SLIDING] * spec.layers, window)
        return self._spec

    def rename(self, key: str) -> Renamed:
        spec = self._spec
        if ".gate_up_proj." in key:
            sizes = {"gate_proj": spec.intermediate_size, "up_proj": spec.intermediate_size}
            return self._split(key, "gate_up_proj", sizes)
        if ".qkv_proj." in key:
            keys = spec.kv_heads * spec.head_dim
            sizes = {"q_proj": spec.heads * spec.head_dim, "k_proj": keys, "v_proj": keys}
            return self._split(key, "qkv_proj", sizes)
        return super().rename(key)

    def _split(self, key: str, joined: str, sizes: Mapping[str, int]) -> list[Placement]:
        placed, first = [], 0
        for part, size in sizes.items():
            take = (slice(first, first + size),)
            change = self._order() if part in ("q_proj", "k_proj") else None
            placed.append(Placement(key.replace(joined, part), take, change=change))
            first += size
        return placed

    def _order(self) -> Callable[[Tensor], Tensor] | None:
        width, turned = self._spec.head_dim, self._spec.rope.turned_width(self._spec.head_dim)
        return None if turned == width else partial(_reordered, width, turned)


def _rotated_share(config: Mapping[str, Any]) -> tuple[float, Mapping[str, Any]]:
    """Returns which part of a head turns, and the config without that and without older names of longrope."""
    plain = dict(config)
    shares = [plain.pop("partial_rotary_factor", None)]
    for key in ROPES:
        if isinstance(plain.get(key), Mapping):
            scaling = dict(plain[key])
            shares.append(scaling.pop("partial_rotary_factor", None))
            for name in ("type", "rope_type"):
                if scaling.get(name) in ("su", "yarn"):
                    scaling[name] = "longrope"
            plain[key] = scaling
    given = next((share for share in reversed(shares) if share is not None), 1.0)
    return ConfigReader({"partial_rotary_factor": given}).number("partial_rotary_factor"), plain


def _reordered(head_dim: int, turned: int, weight: Tensor) -> Tensor:
    """Returns the rows of `weight` in the order of halves. The index is a list: families import no torch."""
    half, rest = turned // 2, (head_dim - turned) // 2
    first, second = range(half), range(half, turned)
    third, fourth = range(turned, turned + rest), range(turned + rest, head_dim)
    order = [*first, *third, *second, *fourth]
    heads = weight.reshape(-1, head_dim, weight.shape[1])
    return heads[:, order].flatten(0, 1)
