"""Cost models by how commands are told them."""

from __future__ import annotations

from pathlib import Path

from turnout.lab.simulation.cost import CostModel
from turnout.lab.simulation.presets import preset

__all__ = ["find_cost_model"]


def find_cost_model(name: str) -> CostModel:
    """A preset, or a file. Raises ConfigError for what is neither."""
    return CostModel.load(Path(name)) if Path(name).suffix or Path(name).is_file() else preset(name)
