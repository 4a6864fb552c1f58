"""The real engine on a virtual clock: what a policy does to a workload, without the machine."""

from turnout.lab.simulation.cost import CostModel
from turnout.lab.simulation.presets import preset
from turnout.lab.simulation.simulate import Simulation, run_simulated

__all__ = ["CostModel", "Simulation", "preset", "run_simulated"]
