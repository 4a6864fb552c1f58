"""``turnout doctor``."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from turnout.cli.terminal.table import aligned

if TYPE_CHECKING:
    from turnout.kernels import CpuKernels
    from turnout.kernels.build import BuiltLibrary

__all__ = ["command"]

TOLD = ("avx2", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile", "amx_bf16", "amx_int8")
"""Features of a CPU by which kernels differ."""


@click.command(name="doctor")
def command() -> None:
    """Say what this machine has, which kernels were chosen and why, and test them.

    Kernels that were not shipped are compiled first, in some seconds. All are compared with sums in float64.
    The exit status is 1 if one computes something else.
    """
    click.echo("\n".join(aligned([*_machine(), *_devices()])))
    kernels = _kernels()
    if isinstance(kernels, str):
        click.echo(f"\nCPU kernels: none, PyTorch's operators serve: {kernels}")
        return
    click.echo(f"\nCPU kernels: {kernels.variant}")
    click.echo("\n".join(aligned([*_others(kernels.variant), *_library(kernels.built)], "  ")))
    _test(kernels)


def _machine() -> Iterator[tuple[str, str]]:
    import torch

    from turnout.kernels.collectives import collective_of_machine
    from turnout.kernels.collectives.shm import MOST_RANKS
    from turnout.kernels.variants import cpu_features
    from turnout.runner.memory.budget import format_bytes
    from turnout.runner.memory.control_groups import cpu_quota
    from turnout.runner.memory.host_memory import free_host_memory
    from turnout.runner.memory.numa import numa_nodes

    features = [name for name in TOLD if name in cpu_features()]
    quota = cpu_quota()
    yield "machine", f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    yield "PyTorch", torch.__version__
    yield "CPU", ", ".join(features) or "of none of the kinds that kernels are chosen by"
    yield "cores", f"{_cores()}" if quota is None else f"{_cores()}; a quota leaves the time of {quota:g}"
    yield "threads", f"{torch.get_num_threads()}"
    if len(nodes := numa_nodes()) > 1:
        yield "NUMA nodes", ", ".join(f"{node} with {len(cores)} cores" for node, cores in nodes.items())
    name, most = collective_of_machine(), f"at most {MOST_RANKS} ranks"
    yield (
        "ranks",
        f"processes here add up by {name}" + (f", {most}" if name == "shm" else ", as there are no kernels"),
    )
    yield "free memory", format_bytes(free_host_memory())


def _cores() -> int:
    """Returns how many cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _devices() -> Iterator[tuple[str, str]]:
    import torch

    if not torch.cuda.is_available():
        yield "GPU", "none that PyTorch sees"
    for index in range(torch.cuda.device_count()):
        found = torch.cuda.get_device_properties(index)
        yield f"cuda:{index}", f"{found.name}, {found.total_memory / 2**30:.0f} GiB"


def _kernels() -> CpuKernels | str:
    """Returns the kernels that an engine would choose, or why it would have none."""
    import torch

    from turnout.kernels import choose_kernels, cpu_kernels

    choice = choose_kernels("auto", torch.device("cpu"), torch.float32)
    return cpu_kernels(choice.kernels) or choice.note.rpartition(": ")[2]


def _others(chosen: str) -> Iterator[tuple[str, str]]:
    """Yields why each better variant was not chosen, and the one that was."""
    from turnout.kernels.variants import VARIABLE, VARIANTS, obstacle

    if os.environ.get(VARIABLE):
        yield chosen, f"named by {VARIABLE}"
        return
    for variant in VARIANTS:
        if variant.name == chosen:
            yield variant.name, "chosen: the best that runs here"
            return
        if variant.chosen:
            yield variant.name, obstacle(variant) or "the compiler does not know its flags"


def _library(built: BuiltLibrary) -> Iterator[tuple[str, str]]:
    yield "library", f"{built.path}, {'shipped' if built.shipped else 'compiled on this machine'}"
    for problem in built.passed_over:
        yield "not taken", problem


def _test(kernels: CpuKernels) -> None:
    from turnout.kernels.self_test import self_test
    from turnout.models.gguf.numbers import dequantized

    click.echo("\nself-test")
    checks = list(self_test(kernels, dequantized))
    rows = [
        (check.kernel, "right" if check.passed else f"WRONG: off by {check.error:.1e} of the largest number")
        for check in checks
    ]
    click.echo("\n".join(aligned(rows, "  ")))
    if not all(check.passed for check in checks):
        raise click.ClickException(
            "a kernel computes something else on this machine; serve with --cpu-kernels torch, and report it"
        )
