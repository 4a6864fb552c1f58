"""Chooses what an engine computes with: device and dtype, kernels, captured graphs, overlapping steps."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch

from turnout.config import EngineConfig
from turnout.core.interfaces.compute import ComputeContext
from turnout.core.types.model_spec import ModelSpec
from turnout.kernels import choose_kernels, cpu_kernels
from turnout.kernels.choice import KernelChoice
from turnout.kernels.measured import LinearShape, native_slowdown
from turnout.kernels.threads import kernel_threads
from turnout.plugins.defaults import UNQUANTIZED
from turnout.runner.execution.capture import Capture, choose_capture
from turnout.runner.memory.control_groups import cpu_quota
from turnout.runner.memory.device import choose_device, choose_dtype
from turnout.runner.memory.numa import engine_part, give_way, numa_nodes, run_on

__all__ = ["ComputeSetup"]

POOLING_NICENESS = 10
CLEARLY_SLOWER = 1.25
"""Native kernels gain in the rest of a step, too, and no measurement on a busy machine is exact."""


@dataclass(frozen=True)
class ComputeSetup:
    """The compute context, which plugins are given, and what only runner and engine need beside it."""

    context: ComputeContext
    kernels_note: str
    """A line for the start-up summary; empty where there was nothing to choose."""
    capture: Capture | None
    """What captures steps in graphs; None: steps are not captured."""
    overlaps: bool
    """Steps are handed to the device before the tokens of earlier steps are known."""
    numa_nodes: tuple[int, ...] = ()
    """The nodes of a CPU that the engine keeps to; empty: it keeps to none."""

    @classmethod
    def chosen(cls, config: EngineConfig, spec: ModelSpec, *, overlapping: bool = True) -> ComputeSetup:
        """Chooses by `config`, and by the model's shape and dtype. Raises ConfigError for what is missing.

        overlapping: False: steps do not overlap, whatever the device.
        """
        device = choose_device(config.device)
        nodes: tuple[int, ...] = ()
        if device.type == "cpu":
            nodes = _keep_to_share(config.cpu_engines, config.cpu_engine, config.cpu_share)
            if niceness := _niceness(config, spec):
                give_way(niceness)
        dtype = choose_dtype(config.dtype, spec.dtype, device)
        choice = choose_kernels(config.cpu_kernels, device, dtype, config.gpu_kernels)
        if config.cpu_kernels == "auto" and config.quantization == UNQUANTIZED:
            choice = _faster(choice, spec, dtype)
        kernels, note = choice
        capture = choose_capture(device, config.enforce_eager)
        # A CPU computes a step while it is handed over, so there is nothing to do meanwhile.
        overlaps = device.type == "cuda" if config.async_scheduling is None else config.async_scheduling
        overlaps = overlaps and overlapping
        return cls(ComputeContext(device, dtype, kernels), note, capture, overlaps, nodes)

    @property
    def device(self) -> torch.device:
        return self.context.device

    @property
    def cpu_kernels(self) -> str:
        """The kernels of a CPU, as the option has them: ``native`` or ``torch``; else empty."""
        if self.device.type != "cpu":
            return ""
        return "torch" if cpu_kernels(self.context.kernels) is None else "native"

    @property
    def dtype(self) -> torch.dtype:
        return self.context.dtype

    def __str__(self) -> str:
        """``float32 on cpu, 2 threads``, and ``of NUMA node 1`` where it keeps to one."""
        count = kernel_threads()
        threads = f"{count} thread{'s' if count > 1 else ''}"
        if self.numa_nodes:
            threads += f" of NUMA node {' and '.join(map(str, self.numa_nodes))}"
        place = threads if self.device.type == "cpu" else torch.cuda.get_device_name(self.device)
        return f"{str(self.dtype).removeprefix('torch.')} on {self.device}, {place}"


def _faster(choice: KernelChoice, spec: ModelSpec, dtype: torch.dtype) -> KernelChoice:
    """Returns `choice`, or PyTorch's operators where the native kernels of a CPU are clearly slower."""
    native = cpu_kernels(choice.kernels)
    if native is None:
        return choice
    heads, kv_heads = spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim
    shapes = (
        LinearShape(spec.hidden_size, heads + 2 * kv_heads),
        LinearShape(heads, spec.hidden_size),
        LinearShape(spec.hidden_size, 2 * spec.intermediate_size),
        LinearShape(spec.intermediate_size, spec.hidden_size),
    )
    slowdown = native_slowdown(native, shapes, dtype)
    if slowdown <= CLEARLY_SLOWER:
        return choice
    return KernelChoice(
        None,
        f"CPU kernels torch: native ones ({native.variant}) took {slowdown:.1f} times as long for layers of "
        "this shape; --cpu-kernels native takes them nevertheless",
    )


def _niceness(config: EngineConfig, spec: ModelSpec) -> int:
    """Returns how far the engine gives way: one that generates nothing does so by itself, beside others."""
    if config.nice is not None:
        return config.nice
    beside_others = config.cpu_engines > 1 or config.cpu_share is not None
    return POOLING_NICENESS if beside_others and (spec.encoder or not spec.generates) else 0


def _keep_to_share(engines: int, number: int | None, share: float | None) -> tuple[int, ...]:
    """Lets PyTorch, and so the kernels, use no more threads than a container's CPU quota keeps running.

    Of these, only this engine's part, if several engines share the machine. An engine that knows its number
    among them keeps to its NUMA nodes, and so its weights and KV memory come to lie there. An engine with a
    share has so many of the threads, on all nodes. Returns the nodes.
    """
    if "OMP_NUM_THREADS" in os.environ:
        return ()
    cores, quota = torch.get_num_threads(), cpu_quota()
    usable = cores if quota is None else min(cores, max(1, int(quota)))
    if share is not None:
        torch.set_num_threads(max(1, round(usable * share)))
        return ()
    part = None if number is None else engine_part(numa_nodes(), number, engines)
    if part is None:
        torch.set_num_threads(max(1, usable // engines))
        return ()
    run_on(part.cores)
    torch.set_num_threads(max(1, min(usable // engines, int(cores * part.share))))
    return part.nodes
