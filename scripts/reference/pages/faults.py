"""docs/reference/plugins/faults.md: what a fault of each plugin costs, from core/fault_table.py."""

from __future__ import annotations

from turnout.core.fault_table import FAULTS, Ends
from turnout.scripts.reference.blocks import Blocks
from turnout.scripts.reference.tables import code, table


def blocks() -> Blocks:
    return {"faults in service": _in_service, "faults at the start": _at_start}


def _in_service() -> str:
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


def _at_start() -> str:
    return table(
        ("kind", "method"),
        [
            (code(fault.kind), ", ".join(map(code, fault.methods)))
            for fault in FAULTS
            if fault.ends is Ends.START
        ],
    )
