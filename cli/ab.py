"""``turnout serve --ab``: makes a live test from the options given."""

from __future__ import annotations

from turnout.config import EngineConfig, ServerConfig
from turnout.core.errors import ConfigError
from turnout.lab.arms import Arm, check_arms, parse_arms
from turnout.server.fleet.ab_test import ABTest

__all__ = ["live_test"]

BASE = "base"
"""The name of the server's own configuration."""
HALF = 0.5


def live_test(engine: EngineConfig, server: ServerConfig) -> ABTest | None:
    """Returns the live test, or None without ``--ab``. Raises ConfigError."""
    if not server.ab:
        if server.split is not None:
            raise ConfigError(
                "--split is the share of the sessions that the arm of --ab gets; "
                "give --ab NAME:field=value, too"
            )
        return None
    if len(server.ab) > 1:
        raise ConfigError(
            f"--ab is given {len(server.ab)} times, but a live test has one arm beside the server's own "
            "configuration; compare more with turnout compare"
        )
    (arm,) = parse_arms(server.ab, engine)
    if arm.name == BASE:
        raise ConfigError(
            f"arm {BASE!r}: this is the name of the server's own configuration; give the arm of --ab another"
        )
    check_arms([arm])
    from turnout.lab.ab.live_trial import LiveTrial  # scipy, which a server without a test does not need

    base, other = (
        _share_of_the_cores(config, 2 * server.replicas) for config in _shares_of_memory(engine, arm)
    )
    return ABTest(
        base=BASE,
        base_config=base,
        name=arm.name,
        config=other,
        changes=arm.changes,
        share=HALF if server.split is None else server.split,
        trial=LiveTrial(BASE, arm.name),
    )


def _share_of_the_cores(config: EngineConfig, engines: int) -> EngineConfig:
    """The configuration of one of so many engines on this machine, unless it says how many there are."""
    if "cpu_engines" in config.model_fields_set:
        return config
    return config.model_copy(update={"cpu_engines": engines})


def _shares_of_memory(engine: EngineConfig, arm: Arm) -> tuple[EngineConfig, EngineConfig]:
    """Divides the server's share of memory between the two: as the arm says, else in halves."""
    whole = engine.memory_share
    theirs = arm.config.memory_share if "memory_share" in arm.changes else whole / 2
    if theirs >= whole:
        raise ConfigError(
            f"arm {arm.name!r}: memory-share={theirs:g} leaves nothing to {BASE!r}; together they have "
            f"{whole:g}"
        )
    return (
        engine.model_copy(update={"memory_share": whole - theirs}),
        arm.config.model_copy(update={"memory_share": theirs}),
    )
