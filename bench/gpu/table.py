"""The report of a GPU check as a table."""

from __future__ import annotations

from datetime import date
from typing import Any

from turnout.lab.results.markdown import markdown_table

__all__ = ["table"]

KERNELS = ("kernel", "shape", "time", "of the roofline")
MODELS = (
    "model",
    "engine",
    "batch",
    "prompt/output",
    "tokens/s",
    "TTFT",
    "TPOT",
    "host, a step",
    "of the bandwidth",
)


def table(report: dict[str, Any]) -> str:
    """Markdown, with the device's name and the date."""
    (best,) = report["roofline"]
    parts = [
        f"{report['device']}, torch {report['torch']}, Triton {report['triton']}, {date.today()}: copies "
        f"{best['copy_bytes_per_second'] / 1e9:,.0f} GB/s, multiplies {best['bf16_flops'] / 1e12:,.0f} "
        "TFLOP/s in bfloat16.",
        markdown_table(KERNELS, map(_kernel, report["kernel_times"]), "llrr"),
    ]
    if report.get("models"):
        parts.append(markdown_table(MODELS, map(_model, report["models"]), "llrlrrrrr"))
    return "\n\n".join(parts)


def _kernel(row: dict[str, Any]) -> tuple[str, ...]:
    return row["kernel"], row["shape"], f"{1e6 * row['seconds']:,.0f} µs", f"{row['of_roofline']:.0%}"


def _model(row: dict[str, Any]) -> tuple[str, ...]:
    start = (row["model"], row["engine"], str(row["batch"]), f"{row['prompt']}/{row['output']}")
    if "tokens_per_second" not in row:
        return *start, row.get("left out") or "failed", "", "", "", ""
    share, host = row.get("of_roofline"), row.get("host_ms")
    return (
        *start,
        f"{row['tokens_per_second']:,.0f}",
        f"{row['ttft_ms']:,.0f} ms",
        f"{row['tpot_ms']:.2f} ms",
        "" if host is None else f"{host:.2f} ms",
        "" if share is None else f"{share:.0%}",
    )
