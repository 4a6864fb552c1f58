"""Where the replicas of a server run: here, by a launcher, or under the workers that `--replica` names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count

from turnout.config import EngineConfig, ServerConfig
from turnout.core.errors import ConfigError
from turnout.core.interfaces.launcher import Launcher
from turnout.core.registry.registry import Registry

__all__ = ["Places"]

OF_THE_SERVER = {
    *("model", "revision", "chat_template", "max_waiting", "max_num_seqs"),
    *("plugins_folder", "disable_plugin", "strict_plugins"),
}
"""Options of engines that mean something to a server whose engines all run elsewhere."""


@dataclass(frozen=True)
class Places:
    """How many replicas there are, and what starts each."""

    here: int
    """Replicas that `launcher` starts; they have the first names."""
    launcher: Launcher
    workers: Launcher | None
    """What connects to workers; None: there are none."""
    addresses: Mapping[str, str]
    """Of workers, by the names of replicas."""

    @classmethod
    def of(cls, registry: Registry, engine: EngineConfig, server: ServerConfig) -> Places:
        """Raises ConfigError for options that do not go together."""
        launcher = _launcher(registry, server)
        if not server.replica:
            launcher.expect(server.replicas * (2 if server.ab else 1))
            return cls(server.replicas, launcher, None, {})
        if server.ab:
            raise ConfigError(
                "--ab and --replica do not go together: the arms' engines start with the server"
            )
        here = server.replicas if "replicas" in server.model_fields_set else 0
        if not here:
            _check_options(engine)
        if len({*server.replica}) < len(server.replica):
            raise ConfigError("--replica names a worker twice; a worker serves one replica")
        launcher.expect(here)
        names = map(str, count(here))
        workers = registry.create("launcher", "static", key_file=server.replica_key_file)
        return cls(here, launcher, workers, dict(zip(names, server.replica, strict=False)))

    @property
    def sharing(self) -> int:
        """How many replicas share this machine."""
        return self.here if self.launcher.shares_machine else 1

    def launcher_of(self, name: str) -> tuple[Launcher, str]:
        """What starts the replica of a name, and the address of its worker. Raises ConfigError."""
        if self.workers is not None and name in self.addresses:
            return self.workers, self.addresses[name]
        if self.addresses and int(name) >= self.here:
            raise ConfigError("with --replica, replicas are those that the server was started with")
        return self.launcher, ""


def _launcher(registry: Registry, server: ServerConfig) -> Launcher:
    if not server.ray_address:
        return registry.create("launcher", server.launcher)
    if server.launcher.partition(":")[0] != "ray":
        raise ConfigError("--ray-address is for --launcher ray")
    return registry.create("launcher", server.launcher, address=server.ray_address)


def _check_options(engine: EngineConfig) -> None:
    """Raises ConfigError for options that the server would not heed."""
    unheeded = sorted(engine.model_fields_set - OF_THE_SERVER)
    if unheeded:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in unheeded)
        raise ConfigError(f"{flags}: with --replica alone no engine runs here; give it to `turnout worker`")
