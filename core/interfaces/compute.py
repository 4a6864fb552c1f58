"""What an engine computes with: given to every part that it is assembled of, and the same for all of them.

Nothing here imports torch; tensors appear in annotations alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from turnout.core.interfaces.layer_share import LayerShare
    from turnout.core.types.plan import Logits, Plan

__all__ = ["ComputeContext", "FusedKernels", "PipelinedRunner", "Runner"]


class FusedKernels(Protocol):
    """Kernels of one device that compute what lies between a model's matrix products in one pass each.

    Inputs and outputs have the same dtype; sums are taken in float32.
    """

    def norm(self, x: Tensor, delta: Tensor | None, weight: Tensor, eps: float) -> Tensor:
        """Returns the root mean square norm of x, after adding `delta` to x in place. x: [rows, size]."""
        ...

    def gate(self, both: Tensor) -> Tensor:
        """Returns silu of the first half of each row, times the second half. both: [rows, 2 * size]."""
        ...

    def rotate(self, x: Tensor, cosine: Tensor, sine: Tensor) -> None:
        """Rotates x in place.

        x: [tokens, heads, head_dim], of any stride between tokens; cosine, sine: [tokens, 1, head_dim].
        """
        ...


@dataclass(frozen=True)
class ComputeContext:
    """The device, the dtype and the kernels that an engine computes with."""

    device: torch.device
    """Where tensors are computed."""
    dtype: torch.dtype
    """Of activations."""
    kernels: FusedKernels | None = None
    """Kernels for the device; None: PyTorch's own operators do. `turnout.kernels.cpu_kernels` says whether
    they are the compiled ones of a CPU, which compute linear layers and attention too."""
    share: LayerShare | None = None
    """Where ranks divide the layer that is being built: what this one has of it; None: all."""


class Runner(Protocol):
    """Executes plans: on a device, or by a cost model."""

    def run(self, plan: Plan) -> Logits:
        """Carries out the moves of `plan`, computes its chunks, and returns the rows of logits it needs."""
        ...


class PipelinedRunner(Runner, Protocol):
    """Executes plans in stages, several at a time, each for other requests."""

    @property
    def stages(self) -> int:
        """How many steps may be begun and not finished."""
        ...

    def begin(self, plan: Plan) -> None:
        """Begins a step. Returns when the first stage is ready for another one."""
        ...

    def finish(self) -> Logits:
        """Waits for the step that was begun first, and returns what `run` would have."""
        ...
