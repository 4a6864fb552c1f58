"""The memory of replicas is summed before they start: each alone would find that it fits."""

from __future__ import annotations

import asyncio

import pytest

from turnout.config import EngineConfig
from turnout.core.errors import ConfigError
from turnout.core.logs import LogStyle
from turnout.core.types.messages import ModelFacts, Ready
from turnout.server.engine.client import ProcessClient
from turnout.server.fleet import fleet as fleets
from turnout.server.fleet.fleet import Fleet
from turnout.server.fleet.replica import ReplicaOrder
from turnout.server.fleet.replica_memory import check_replicas_memory

GIB = 2**30


def ready(pool: int, weights: int = 0, kernels: str = "native") -> Ready:
    return Ready(
        model="m",
        max_model_len=9,
        vocab_size=9,
        defaults={},
        kv="paged",
        kv_bytes_per_token=1,
        host_memory=pool,
        facts=ModelFacts(weight_bytes=weights),
        cpu_kernels=kernels,
        summary=[],
    )


def test_the_sums_say_what_is_short() -> None:
    check_replicas_memory(ready(2 * GIB, 3 * GIB), 4, free=17 * GIB)
    with pytest.raises(ConfigError) as caught:
        check_replicas_memory(ready(2 * GIB, 3 * GIB), 4, free=16 * GIB)
    assert str(caught.value) == (
        "4 replicas ask for 4 x 2.00 GiB of KV and swap memory + 3 x 3.00 GiB of weights = 17.00 GiB of host "
        "memory, but 16.00 GiB is free with the first one's weights loaded, 1.00 GiB too little; lower "
        "--replicas or --kv-memory"
    )


def test_weights_on_a_gpu_take_no_host_memory() -> None:
    check_replicas_memory(ready(GIB, 80 * GIB, kernels=""), 4, free=4 * GIB)


def test_one_engine_has_checked_itself() -> None:
    check_replicas_memory(ready(GIB, GIB), 1, free=0)


def test_a_fleet_that_has_no_room_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def launch(order: ReplicaOrder) -> ProcessClient:
        return ProcessClient(
            factory="echo_engine:build", log=LogStyle("critical"), replica=order.name, journal=order.journal
        )

    async def main() -> None:
        fleet = Fleet(launch, 2)
        fleet.configure(EngineConfig(model="echo"))
        try:
            await fleet.start()
        finally:
            await fleet.close()

    monkeypatch.setattr(fleets, "free_host_memory", lambda: -1)
    with pytest.raises(ConfigError, match="2 replicas ask for 2 x"):
        asyncio.run(main())
