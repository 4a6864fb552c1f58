"""The specification of an experiment: what is compared, on what workload, and how often."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from turnout.config import EngineConfig
from turnout.core.errors import ConfigError
from turnout.lab.arms import Arm
from turnout.lab.compare.runs.quality import QualityText
from turnout.lab.results.goodput import Goodput

__all__ = ["ExperimentSpec"]


@dataclass(frozen=True)
class ExperimentSpec:
    arms: tuple[Arm, ...]
    """The others are compared with the first."""
    workload: str
    """As `load_workload` reads it."""
    repeats: int = 5
    seed: int = 0
    """Of the first repeat's workload; each repeat has its own, which all arms share."""
    warm_up: int = 8
    """Requests served before each run, and not measured."""
    temperature: float | None = None
    """None: 0, but what ``--decoding`` says where an arm or all of them name one."""
    goodput: Goodput | None = None
    see: float = 0.02
    """The smallest change that matters, as a share."""
    simulated: str = ""
    """The cost model's name; "" for engines that compute."""
    text: QualityText | None = None
    """The text by which arms are judged that may predict something else than the first; None: none are."""
    traces: Path | None = None
    """The folder for a trace of each run."""

    def __post_init__(self) -> None:
        if len(self.arms) < 2:
            raise ConfigError("a comparison needs two arms or more; give --arm NAME:field=value for each")
        for name, value, least in (("repeat", self.repeats, 1), ("warm-up", self.warm_up, 0)):
            if value < least:
                raise ConfigError(f"{name} must be at least {least}, not {value}")
        if self.text is not None and self.simulated:
            raise ConfigError("a simulation says nothing of answers; leave --quality-text out")
        if not 0 < self.see < 1:
            raise ConfigError(f"see must be between 0% and 100%, not {100 * self.see:g}%")

    @property
    def request_temperature(self) -> float | None:
        """The temperature that requests carry; None: none."""
        if self.temperature is not None or any(_names_decoding(arm.config) for arm in self.arms):
            return self.temperature
        return 0.0

    @property
    def greedy(self) -> bool:
        return self.request_temperature == 0


def _names_decoding(config: EngineConfig) -> bool:
    return "decoding" in config.model_fields_set
