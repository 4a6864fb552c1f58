"""What Linux tells about this machine's CPU."""

from __future__ import annotations

from pathlib import Path

__all__ = ["cpuinfo", "runs_zentorch"]


def cpuinfo(key: str) -> str:
    """Returns a field of the first core, such as ``model name``; empty where the system does not tell."""
    file = Path("/proc/cpuinfo")
    if not file.exists():
        return ""
    lines = (line.partition(":") for line in file.read_text().splitlines())
    return next((value.strip() for name, _, value in lines if name.strip() == key), "")


def runs_zentorch() -> bool:
    """Says whether vLLM takes AMD's kernels here: on a CPU of AMD's with AVX-512."""
    return cpuinfo("vendor_id") == "AuthenticAMD" and "avx512f" in cpuinfo("flags").split()
