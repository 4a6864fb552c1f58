"""The report of a GPU check as a table."""

from __future__ import annotations

from datetime import date
from typing import Any

from turnout.lab.results.markdown import markdown_table

__all__ = ["table"]

KERNELS = ("kernel", "shape", "time", "least to most", "of the roofline")
MODELS = (
    "model",
    "engine",
    "batch",
    "prompt/output",
    "tokens/s",
    "least to most",
    "TTFT",
    "TPOT",
    "host, a step",
    "longest gap",
    "of the bandwidth",
)


def table(report: dict[str, Any]) -> str:
    """Markdown, with the device's name and the date."""
    (best,) = report["roofline"]
    parts = [
        f"{report['device']}, driver {report['driver']}, torch {report['torch']}, Triton {report['triton']}, "
        f"transformers {report['transformers']}, {date.today()}, `{report['command']}`: copies "
        f"{best['copy_bytes_per_second'] / 1e9:,.0f} GB/s, multiplies {best['bf16_flops'] / 1e12:,.0f} "
        "TFLOP/s in bfloat16.",
        markdown_table(KERNELS, map(_kernel, report["kernel_times"]), "llrrr"),
    ]
    if report.get("models"):
        parts.append(markdown_table(MODELS, map(_model, report["models"]), "llrlrrrrrrr"))
    return "\n\n".join(parts)


def _kernel(row: dict[str, Any]) -> tuple[str, ...]:
    least, most = (f"{1e6 * row[name]:,.0f}" for name in ("least", "most"))
    time = f"{1e6 * row['seconds']:,.0f} µs"
    return row["kernel"], row["shape"], time, f"{least} to {most}", f"{row['of_roofline']:.0%}"


def _model(row: dict[str, Any]) -> tuple[str, ...]:
    start = (row["model"], row["engine"], str(row["batch"]), f"{row['prompt']}/{row['output']}")
    if "tokens_per_second" not in row:
        return *start, row.get("left out") or "failed", "", "", "", "", "", ""
    share, host, gap = (row.get(name) for name in ("of_roofline", "host_ms", "gap_us"))
    return (
        *start,
        f"{row['tokens_per_second']:,.0f}",
        f"{row['least']:,.0f} to {row['most']:,.0f}",
        f"{row['ttft_ms']:,.0f} ms",
        f"{row['tpot_ms']:.2f} ms",
        "" if host is None else f"{host:.2f} ms",
        "" if gap is None else f"{gap:,.0f} µs",
        "" if share is None else f"{share:.0%}",
    )
