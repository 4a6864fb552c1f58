"""What the GPU of each rank leaves for keys and values, from which rank 0 sizes the pool of all."""

from __future__ import annotations

from turnout.config import EngineConfig
from turnout.core.errors import as_plugin_errors
from turnout.core.interfaces.compute import ComputeContext
from turnout.core.interfaces.kv import KVBackend
from turnout.core.plugin_faults import title_of
from turnout.core.types.model_spec import ModelSpec
from turnout.runner.memory.budget import GpuRoom, gpu_room

__all__ = ["room_of_rank"]


def room_of_rank(
    config: EngineConfig, backend: KVBackend, spec: ModelSpec, context: ComputeContext
) -> GpuRoom | None:
    """Returns what this rank's GPU leaves, called when its weights are there; None: it computes on a CPU,
    where ranks share the machine's memory.

    spec: of the layers and heads whose keys and values this rank has.
    """
    if context.device.type != "cuda":
        return None
    with as_plugin_errors(f"{title_of(backend, 'kv')}: bytes_per_token"):
        position = backend.bytes_per_token(spec, context.dtype.itemsize)
    return GpuRoom(gpu_room(context.device, config), position)
