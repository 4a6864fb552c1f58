"""Where the replicas of a server run: here, by a launcher, or under the workers that `--replica` names."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from turnout.config import EngineConfig, ServerConfig
from turnout.core.errors import ConfigError, as_plugin_errors
from turnout.core.interfaces.launcher import Launcher
from turnout.core.plugin_faults import PluginFaults, plugin_errors, title_of
from turnout.core.registry.registry import Registry

__all__ = ["Places"]

logger = logging.getLogger(__name__)

OF_THE_SERVER = {
    *("model", "revision", "chat_template", "max_waiting", "max_num_seqs"),
    *("plugins_folder", "disable_plugin", "strict_plugins"),
}
"""Options of engines that mean something to a server whose engines all run elsewhere."""


@dataclass(frozen=True)
class Places:
    """How many replicas there are, and what starts each."""

    here: int
    """Replicas that `launcher` starts."""
    launcher: Launcher
    workers: Launcher | None
    """What connects to workers; None: the server has no keys for them."""
    addresses: Sequence[str]
    """Of the workers that it starts with."""

    @classmethod
    def of(cls, registry: Registry, engine: EngineConfig, server: ServerConfig) -> Places:
        """Raises ConfigError for options that do not go together, PluginError where the launcher fails."""
        launcher = _launcher(registry, server)
        if not server.replica:
            _expect(launcher, server.replicas * (2 if server.ab else 1))
            workers = _workers(registry, server) if server.replica_key_file and not server.ab else None
            return cls(server.replicas, launcher, workers, ())
        if server.ab:
            raise ConfigError(
                "--ab and --replica do not go together: the arms' engines start with the server"
            )
        here = server.replicas if "replicas" in server.model_fields_set else 0
        if not here:
            _check_options(engine)
        if len({*server.replica}) < len(server.replica):
            raise ConfigError("--replica names a worker twice; a worker serves one replica")
        _expect(launcher, here)
        return cls(here, launcher, _workers(registry, server), server.replica)

    @property
    def sharing(self) -> int:
        """How many replicas share this machine."""
        return self.here if self.launcher.shares_machine else 1

    def launcher_at(self, place: str) -> Launcher:
        """What starts a replica at a worker's address, or without one here. Raises ConfigError."""
        if not place:
            if not self.here:
                raise ConfigError("all engines run at workers; name the address of another")
            return self.launcher
        if self.workers is None:
            raise ConfigError("the server has no keys for workers: start it with --replica-key-file")
        return self.workers

    def close(self) -> None:
        """Tell the launcher that all its engines have ended; a fault of it is logged."""
        try:
            self.launcher.close()
        except plugin_errors() as error:
            PluginFaults("launcher", logger).report(self.launcher, "close", error)


def _expect(launcher: Launcher, engines: int) -> None:
    with as_plugin_errors(f"{title_of(launcher, 'launcher')}: expect"):
        launcher.expect(engines)


def _launcher(registry: Registry, server: ServerConfig) -> Launcher:
    if not server.ray_address:
        return registry.create("launcher", server.launcher)
    if server.launcher.partition(":")[0] != "ray":
        raise ConfigError("--ray-address is for --launcher ray")
    return registry.create("launcher", server.launcher, address=server.ray_address)


def _workers(registry: Registry, server: ServerConfig) -> Launcher:
    return registry.create("launcher", "static", key_file=server.replica_key_file)


def _check_options(engine: EngineConfig) -> None:
    """Raises ConfigError for options that the server would not heed."""
    unheeded = sorted(engine.model_fields_set - OF_THE_SERVER)
    if unheeded:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in unheeded)
        raise ConfigError(f"{flags}: with --replica alone no engine runs here; give it to `turnout worker`")
