"""Reads the rotary embeddings of ``config.json``, in both layouts that checkpoints use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turnout.core.errors import Unsupported
from turnout.core.types.model_spec import RopeSpec
from turnout.models.config_reader import ConfigReader

__all__ = ["reachable_positions", "read_rope"]

# The numbers that each kind of scaling needs.
REQUIRED: Mapping[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "dynamic": ("factor",),
    "yarn": ("factor", "original_max_position_embeddings"),
    "longrope": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
}

OPTIONAL = ("attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim")
"""The numbers that a kind of scaling may have beside them."""


def read_rope(reader: ConfigReader) -> RopeSpec:
    """Read ``rope_theta`` with ``rope_scaling``, or the newer ``rope_parameters`` that holds both.

    The returned parameters always hold ``original_max_position_embeddings``.
    """
    key = "rope_scaling" if reader.config.get("rope_scaling") else "rope_parameters"
    scaling = ConfigReader(reader.mapping(key), f"{reader.where}: {key}")
    kind = scaling.text("rope_type", scaling.text("type", "default"))
    if kind not in REQUIRED:
        raise Unsupported(
            f"{scaling.where}: rope_type = {kind!r} is not supported, only {', '.join(REQUIRED)}"
        )
    theta = scaling.number("rope_theta", reader.number("rope_theta", 10_000.0))
    return RopeSpec(theta=theta, kind=kind, parameters=_parameters(kind, scaling, reader))


def reachable_positions(rope: RopeSpec, max_positions: int) -> int:
    """The longest sequence that the scaling supports.

    ``max_position_embeddings`` keeps its value from before the scaling under ``linear`` and
    ``dynamic``, and may do so under ``yarn``.
    """
    if rope.kind in ("linear", "dynamic"):
        return int(max_positions * rope.parameters["factor"])
    if rope.kind == "yarn":
        extended = rope.parameters["factor"] * rope.parameters["original_max_position_embeddings"]
        return max(max_positions, int(extended))
    return max_positions


def _parameters(kind: str, scaling: ConfigReader, reader: ConfigReader) -> dict[str, Any]:
    parameters = {key: value for key, value in scaling.config.items() if value is not None}
    _check_whole_head(scaling, reader)
    original = _original_positions(kind, scaling, reader)
    parameters["original_max_position_embeddings"] = original
    if kind == "yarn":
        # If the factor is null, it is the ratio of the two lengths.
        parameters.setdefault("factor", reader.integer("max_position_embeddings") / original)
    if kind == "longrope":
        parameters.setdefault("factor", reader.integer("max_position_embeddings") / original)
        for key in ("short_factor", "long_factor"):
            parameters[key] = scaling.numbers(key)
    complete = ConfigReader(parameters, scaling.where)
    for key in REQUIRED[kind]:
        complete.number(key)
    for key in OPTIONAL:
        complete.any_number(key, 0.0)
    complete.flag("truncate", True)
    return parameters


def _original_positions(kind: str, scaling: ConfigReader, reader: ConfigReader) -> int:
    """The length before scaling.

    A value beside the scaling takes precedence over one in it; ``dynamic`` ignores both. As in transformers.
    """
    length = reader.integer("max_position_embeddings")
    if kind == "dynamic":
        return length
    inner = scaling.integer("original_max_position_embeddings", length)
    return reader.integer("original_max_position_embeddings", inner)


def _check_whole_head(scaling: ConfigReader, reader: ConfigReader) -> None:
    for source in (scaling, reader):
        if source.number("partial_rotary_factor", 1.0) != 1.0:
            raise source.reject("partial_rotary_factor", "rotary embeddings must cover the whole head")
    for key, value in scaling.config.items():
        if isinstance(value, Mapping):  # by kind of layer
            raise scaling.reject(key, "one scaling must hold for all layers")
