"""Cost models as options of commands name them."""

from __future__ import annotations

from pathlib import Path

from turnout.lab.simulation.cost import CostModel
from turnout.lab.simulation.presets import preset

__all__ = ["find_cost_model"]


def find_cost_model(name: str) -> CostModel:
    """Returns a preset, or a cost model from a file. Raises ConfigError if `name` is neither."""
    return CostModel.load(Path(name)) if Path(name).suffix or Path(name).is_file() else preset(name)
