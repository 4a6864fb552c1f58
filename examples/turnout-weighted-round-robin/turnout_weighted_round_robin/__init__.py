"""Weighted round robin, as a scheduling policy over clients and as a router over replicas."""

from __future__ import annotations

from turnout import hookimpl
from turnout_weighted_round_robin.router import WeightedRouter
from turnout_weighted_round_robin.scheduler import WeightedRoundRobin

turnout_hook_api = 1


@hookimpl
def register_schedulers(register):
    register("weighted-round-robin", WeightedRoundRobin)


@hookimpl
def register_routers(register):
    register("weighted-round-robin", WeightedRouter)
