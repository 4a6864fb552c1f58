"""The report of a GPU check as a table, and its place in the documentation."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

__all__ = ["fill", "table"]

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


def table(report: dict[str, Any]) -> str:
    """Markdown, with the device's name and the date."""
    (best,) = report["roofline"]
    lines = [
        f"{report['device']}, torch {report['torch']}, Triton {report['triton']}, {date.today()}: copies "
        f"{best['copy_bytes_per_second'] / 1e9:,.0f} GB/s, multiplies {best['bf16_flops'] / 1e12:,.0f} "
        "TFLOP/s in bfloat16.",
        "",
        "| kernel | shape | time | of the roofline |",
        "|---|---|--:|--:|",
        *(_kernel(row) for row in report["kernel_times"]),
    ]
    if report.get("models"):
        lines += [
            "",
            "| model | engine | batch | prompt/output | tokens/s | TTFT | TPOT | of the bandwidth |",
            "|---|---|--:|---|--:|--:|--:|--:|",
            *(_model(row) for row in report["models"]),
        ]
    return "\n".join(lines)


def fill(document: Path, report: dict[str, Any]) -> None:
    """Put the table where the document has room for it."""
    text = document.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    document.write_text(f"{before}{BEGIN}\n{table(report)}\n{END}{after}", encoding="utf-8")


def _kernel(row: dict[str, Any]) -> str:
    return f"| {row['kernel']} | {row['shape']} | {1e6 * row['seconds']:,.0f} µs | {row['of_roofline']:.0%} |"


def _model(row: dict[str, Any]) -> str:
    start = f"| {row['model']} | {row['engine']} | {row['batch']} | {row['prompt']}/{row['output']} |"
    if "tokens_per_second" not in row:
        return f"{start} {row.get('left out') or 'failed'} | | | |"
    share = row.get("of_roofline")
    return (
        f"{start} {row['tokens_per_second']:,.0f} | {row['ttft_ms']:,.0f} ms | {row['tpot_ms']:.2f} ms | "
        f"{'' if share is None else f'{share:.0%}'} |"
    )
