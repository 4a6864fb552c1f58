"""Whatever the workload and the options: neither skipped steps nor several processes change a record."""

from __future__ import annotations

import random
from typing import Any

import pytest
from random_simulations import random_options, random_work
from simulations import simulation_of
from test_windows import here, served  # noqa: F401 - a fixture

from turnout.core.errors import ConfigError
from turnout.core.interfaces.observers import StepRecord
from turnout.lab.jobs.job import Job
from turnout.lab.simulation.runs import windows

SIMULATIONS = 60
"""For each seed, of which a fifth have options that cannot work."""


def drawn_simulations(seed: int) -> list[tuple[list[Job], dict[str, Any]]]:
    drawn = random.Random(seed)
    return [(random_work(drawn), random_options(drawn)) for _ in range(SIMULATIONS)]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_skipped_steps_change_nothing(seed: int) -> None:
    for number, (work, options) in enumerate(drawn_simulations(seed)):
        fast, slow = (simulation_of(work, fast_forward=skips, **options) for skips in (True, False))
        steps: tuple[list[StepRecord], list[StepRecord]] = [], []
        if number % 3 == 0:
            fast.watch, slow.watch = steps[0].append, steps[1].append
        try:
            expected = list(slow.records())
        except ConfigError as error:
            with pytest.raises(ConfigError, match=r".") as same:
                list(fast.records())
            assert str(same.value) == str(error)
            continue
        assert list(fast.records()) == expected, (options, work)
        assert (fast.totals, steps[0]) == (slow.totals, steps[1]), (options, work)


@pytest.mark.slow
@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("seed", range(4))
def test_several_processes_change_nothing(seed: int) -> None:
    divided = 0
    for work, options in drawn_simulations(seed):
        simulation = simulation_of(work, **{**options, "replicas": windows.FEWEST})
        try:
            expected = list(simulation.records()), simulation.totals
        except ConfigError:
            continue
        if windows.windowed(simulation):
            assert served(simulation) == expected, (options, work)
            divided += 1
    assert divided > SIMULATIONS // 2
