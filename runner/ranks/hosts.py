"""Which machine has which rank: this one the first of them, and `--rank-workers` as many each."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from turnout.config import EngineConfig
from turnout.core.errors import ConfigError
from turnout.plugins.launchers.addresses import is_address

__all__ = ["RankHosts", "own_address"]


@dataclass(frozen=True)
class RankHosts:
    """The machines of an engine's ranks; neighbouring ranks are on the same one."""

    workers: tuple[str, ...]
    """Addresses of the others, ``tcp://HOST:PORT``, in order."""
    each: int
    """How many ranks a machine has."""

    @classmethod
    def of(cls, config: EngineConfig) -> Self:
        """Raises ConfigError, with the numbers, where ranks cannot be placed."""
        workers = config.rank_addresses
        if not workers:
            return cls((), config.ranks)
        if wrong := [each for each in workers if not is_address(each)]:
            raise ConfigError(f"rank_workers={wrong[0]} is no address of a worker; expected tcp://HOST:PORT")
        if twice := next((each for each in workers if workers.count(each) > 1), None):
            raise ConfigError(
                f"rank_workers names {twice} twice; name each once, since it counts as one machine"
            )
        listed, machines = ", ".join(workers), 1 + len(workers)
        if config.ranks == 1:
            raise ConfigError(
                f"rank_workers={listed}: an engine of one rank has none to place there; give "
                "--tensor-parallel-size or --pipeline-parallel-size"
            )
        if config.ranks % machines:
            raise ConfigError(
                f"rank_workers={listed}: {config.ranks} ranks cannot be placed evenly on this machine and "
                f"{len(workers)} others; name as many workers that {machines} becomes a divisor of "
                f"{config.ranks}"
            )
        if not config.rank_key_file:
            raise ConfigError(
                f"rank_workers={listed}: channels between machines are encrypted; give the file that "
                "`turnout worker --ranks --key-file FILE` wrote, by --rank-key-file"
            )
        return cls(workers, config.ranks // machines)

    def worker_of(self, rank: int) -> str | None:
        """Returns where a rank is started; None: on this machine."""
        machine = rank // self.each
        return self.workers[machine - 1] if machine else None

    def share_machine(self, ranks: Iterable[int]) -> bool:
        """Says whether all of these are on one machine."""
        return len({rank // self.each for rank in ranks}) == 1


def own_address(peer: str) -> str:
    """Returns the address by which this machine reaches another. Raises ConfigError where it cannot."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(peer, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:  # nothing is sent
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError as error:
        raise ConfigError(f"no network of this machine reaches {peer}: {error}") from None
