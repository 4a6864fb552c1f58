"""Refuses arms that a simulation could not tell apart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from turnout.config import EngineConfig
from turnout.core.errors import ConfigError
from turnout.lab.arms import Arm, about_arm
from turnout.lab.simulation.assembly import check_simulated

__all__ = ["NOT_SIMULATED", "check_simulated_arms", "without_effect"]

NOT_SIMULATED = frozenset(
    {
        "async_scheduling",
        "chat_template",
        "cpu_engine",
        "cpu_engines",
        "cpu_kernels",
        "cpu_share",
        "decoding",
        "device",
        "dtype",
        "enable_expert_parallel",
        "enforce_eager",
        "format",
        "gpu_kernels",
        "gpu_memory_utilization",
        "hf_overrides",
        "logits_processor",
        "memory_share",
        "model",
        "model_impl",
        "nice",
        "pipeline_layers",
        "pipeline_parallel_size",
        "pooling",
        "quantization",
        "rank_key_file",
        "rank_workers",
        "revision",
        "tensor_parallel_size",
        "trust_remote_code",
    }
)
"""Options that change nothing in a simulation: the cost model says how long steps take, and no text is
generated."""
DIVISIONS = {
    "tensor_parallel_size": "-tp8",
    "pipeline_parallel_size": "-pp2",
    "enable_expert_parallel": "-ep",
}
"""What divides the model over GPUs, behind the name of a cost model."""


def check_simulated_arms(arms: Iterable[Arm]) -> None:
    """Raise ConfigError for an arm that changes what is not simulated: no difference would be found, whatever
    there is."""
    for arm in arms:
        try:
            check_simulated(arm.config)
            _check_changes(arm)
        except ConfigError as error:
            raise about_arm(arm.name, error) from None


def without_effect(common: EngineConfig) -> str:
    """A sentence that names the options beside the arms that change nothing; "" where none was given.

    They are not refused, as a file of options may be that of a server, too.
    """
    given = sorted(NOT_SIMULATED & common.model_fields_set)
    return _no_effect(given) if given else ""


def _check_changes(arm: Arm) -> None:
    for field in arm.changes:
        if field in NOT_SIMULATED:
            raise ConfigError(
                f"{_no_effect([field])}; leave it out, or compare served arms, without --simulate"
            )


def _no_effect(fields: Sequence[str]) -> str:
    verb = "changes" if len(fields) == 1 else "change"
    divided = [DIVISIONS[field] for field in fields if field in DIVISIONS]
    how = f" (to divide the model, write {' and '.join(divided)} behind its name)" if divided else ""
    return (
        f"{', '.join(fields)} {verb} nothing in a simulation, whose steps take what the cost model says{how}"
    )
