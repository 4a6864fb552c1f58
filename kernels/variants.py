"""The variants of the native kernels, for what CPUs have, and which of them this machine can run.

A variant is all sources compiled with its flags, a library of its own. The sources look at what the compiler
may use: vectors of 16 or 8 floats, instructions for bfloat16 and for bytes, tiles.
"""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

__all__ = ["VARIABLE", "VARIANTS", "Variant", "VariantError", "cpu_features", "obstacle", "usable_variants"]

VARIABLE = "TURNOUT_CPU_VARIANT"
"""The environment variable that names the variant to take."""


class VariantError(Exception):
    """Says in one line why the variant that was asked for cannot be had."""


class Variant(NamedTuple):
    """Flags of the compiler, and the features of a CPU, by their names in Linux, that the result needs."""

    name: str
    flags: tuple[str, ...]
    needs: frozenset[str]
    chosen: bool = True
    """Whether it may be chosen without being named."""

    @property
    def ships(self) -> bool:
        """Whether it can be compiled on one machine for others."""
        return self.chosen and bool(self.needs)

    @property
    def has_tiles(self) -> bool:
        return "amx_tile" in self.needs


_AVX2 = frozenset({"avx2", "fma", "f16c", "bmi1", "bmi2"})
_AVX2_VNNI = _AVX2 | {"avx_vnni"}
_AVX512 = _AVX2 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
_VNNI = _AVX512 | {"avx512_vnni"}
_BF16 = _VNNI | {"avx512_bf16"}
_AMX = _BF16 | {"avx512_vbmi2", "amx_tile", "amx_bf16", "amx_int8"}
_FLAGS_AVX2 = ("-march=haswell", "-mtune=native")
_FLAGS_512 = ("-march=skylake-avx512", "-mtune=native")
_FLAGS_BF16 = (*_FLAGS_512, "-mavx512vnni", "-mavx512bf16")

VARIANTS = (
    Variant(
        "amx", (*_FLAGS_BF16, "-mavx512vbmi2", "-mamx-tile", "-mamx-bf16", "-mamx-int8", "-DTILES"), _AMX
    ),
    Variant("avx512-bf16", _FLAGS_BF16, _BF16),
    Variant("avx512-vnni", (*_FLAGS_512, "-mavx512vnni"), _VNNI),
    Variant("avx512", _FLAGS_512, _AVX512),
    Variant("avx2-vnni", (*_FLAGS_AVX2, "-mavxvnni"), _AVX2_VNNI),
    Variant("avx2", _FLAGS_AVX2, _AVX2),
    Variant(
        "amx-emulated",
        ("-O1", "-march=haswell", "-Wno-psabi", "-DTILES", "-DEMULATED_TILES"),
        _AVX2,
        chosen=False,
    ),
    Variant("native", ("-march=native",), frozenset()),
    Variant("neon", ("-march=armv8-a",), frozenset({"asimd"})),
)
"""The best first. ``amx-emulated`` computes what tiles do by plain C++, for tests; ``native`` is what the
compiler makes of this machine, for those that the others do not know; ``neon`` is for ARM, shipped."""


def usable_variants() -> Sequence[Variant]:
    """Returns the variants to choose from on this machine, the best first; only one, if it was named.

    Raises VariantError where the variant that the environment names does not exist or cannot run here.
    """
    named = os.environ.get(VARIABLE)
    if not named:
        return [variant for variant in VARIANTS if variant.chosen and not obstacle(variant)]
    variant = next((each for each in VARIANTS if each.name == named), None)
    if variant is None:
        names = ", ".join(each.name for each in VARIANTS)
        raise VariantError(f"{VARIABLE}={named}: there is no such variant; there are {names}")
    if why := obstacle(variant):
        raise VariantError(f"{VARIABLE}={named}: {why}; without it the best one is taken")
    return [variant]


def obstacle(variant: Variant) -> str:
    """Returns why this machine, or its operating system, cannot run a variant; empty if it can."""
    if missing := sorted(variant.needs - cpu_features()):
        return f"this CPU has no {', '.join(missing)}"
    if variant.has_tiles and not _tiles_permitted():
        return "the system gives no permission to use tiles"
    return ""


@lru_cache
def cpu_features() -> frozenset[str]:
    """Returns what the CPU has, by Linux's names; empty where the system does not tell."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return frozenset()
    line = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return frozenset(line.partition(":")[2].split())


ARCH_PRCTL, REQUEST_PERMISSION, TILE_DATA = 158, 0x1023, 18


@lru_cache
def _tiles_permitted() -> bool:
    """Asks Linux for the registers of tiles, which it gives a process on request, for all its threads."""
    if platform.machine() != "x86_64":
        return False
    try:
        return bool(ctypes.CDLL(None).syscall(ARCH_PRCTL, REQUEST_PERMISSION, TILE_DATA) == 0)
    except (OSError, AttributeError):
        return False
