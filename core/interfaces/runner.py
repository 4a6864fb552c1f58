"""The runner interface: what executes a plan, on a device or by a cost model.

Nothing here imports torch; tensors appear in annotations alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from turnout.core.types.plan import Logits, Plan

__all__ = ["Runner"]


class Runner(Protocol):
    """Executes plans: on a device, or by a cost model."""

    def run(self, plan: Plan) -> Logits:
        """Carries out the moves of `plan`, computes its chunks, and returns the rows of logits it needs."""
        ...
