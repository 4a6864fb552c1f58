"""Which machine has which rank, and what cannot be placed."""

from __future__ import annotations

import pytest

from turnout.config import EngineConfig
from turnout.core.errors import ConfigError
from turnout.runner.ranks.hosts import RankHosts, own_address

TWO = "tcp://10.0.0.2:7000,tcp://[fe80::3]:7000"


def config(
    workers: str | None = TWO, parts: int = 2, stages: int = 3, keys: str | None = "keys"
) -> EngineConfig:
    return EngineConfig(
        model="toy",
        rank_workers=workers,
        rank_key_file=keys,
        tensor_parallel_size=parts,
        pipeline_parallel_size=stages,
    )


def test_neighbouring_ranks_share_a_machine() -> None:
    hosts = RankHosts.of(config())
    here, second, third = None, "tcp://10.0.0.2:7000", "tcp://[fe80::3]:7000"
    assert [hosts.worker_of(rank) for rank in range(6)] == [here, here, second, second, third, third]
    assert hosts.share_machine(range(2, 4)), "the ranks of a stage"
    assert not hosts.share_machine(range(0, 6, 2)), "the stages"


def test_without_workers_all_are_here() -> None:
    hosts = RankHosts.of(config(None))
    assert {hosts.worker_of(rank) for rank in range(6)} == {None}
    assert hosts.share_machine(range(6))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (config(parts=1, stages=1), "an engine of one rank has none to place there"),
        (config(parts=4, stages=1), "4 ranks cannot be placed evenly on this machine and 2 others"),
        (config(keys=None), "give the file that `turnout worker --ranks --key-file FILE` wrote"),
    ],
)
def test_what_cannot_be_placed_is_refused_with_the_numbers(given: EngineConfig, message: str) -> None:
    with pytest.raises(ConfigError, match=f"rank_workers=tcp://10.0.0.2:7000, .*{message}"):
        RankHosts.of(given)


def test_what_is_no_address_of_a_worker_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"rank_workers=tcp://a:99999 is no address of a worker"):
        RankHosts.of(config("tcp://a:7000,tcp://a:99999"))


def test_a_worker_that_is_named_twice_is_refused() -> None:
    """Ranks of both names were given the same GPUs, or the same cores."""
    with pytest.raises(ConfigError, match=r"rank_workers names tcp://a:7000 twice; name each once"):
        RankHosts.of(config("tcp://a:7000,tcp://a:7000"))


def test_an_address_by_which_others_are_reached() -> None:
    assert own_address("127.0.0.2") == "127.0.0.1"
    with pytest.raises(ConfigError, match="no network of this machine reaches nowhere"):
        own_address("nowhere.invalid")
