"""docs/reference/plugins/faults.md: what a fault of each plugin costs, from core/fault_table.py."""

from __future__ import annotations

from turnout.core.fault_table import FAULTS, Ends
from turnout.scripts.reference.tables import code, table


def in_service() -> str:
    return table(
        ("kind", "method", "ends", "what goes on"),
        [
            (
                code(fault.kind),
                ", ".join(map(code, fault.methods)),
                fault.ends.value,
                fault.instead,
            )
            for fault in FAULTS
            if fault.in_service
        ],
    )


def at_start() -> str:
    return table(
        ("kind", "method"),
        [
            (code(fault.kind), ", ".join(map(code, fault.methods)))
            for fault in FAULTS
            if fault.ends is Ends.START
        ],
    )
