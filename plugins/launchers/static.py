"""Engines that run already, each under a `turnout worker`, here or on another machine."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated

from pydantic import Field

from turnout.core.errors import ConfigError
from turnout.core.interfaces.launcher import (
    ChannelKeys,
    EngineAddress,
    EngineOrder,
    LaunchedEngine,
    Launcher,
)

__all__ = ["Static", "read_key_file"]

URL = re.compile(r"tcp://(\[[0-9a-fA-F:.]+\]|[^\s/:]+):\d{1,5}")
KEY = re.compile(r"\S{40}")


def read_key_file(path: str, worker: str = "") -> ChannelKeys:
    """The keys in a file of `turnout worker`, which servers and workers share. Raises ConfigError.

    worker: an address; its public key is another one where the file has it in ``workers``.
    """
    hint = "`turnout worker --key-file FILE` writes one; copy it to the server's machine"
    try:
        given = json.loads(Path(path).read_text())
    except FileNotFoundError:
        raise ConfigError(f"there is no file of keys {path}; {hint}") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"the file of keys {path} cannot be read: {error}; {hint}") from None
    keys = [given.get(name) for name in ("public", "secret")] if isinstance(given, dict) else [None, None]
    if not all(isinstance(key, str) and KEY.fullmatch(key) for key in keys):
        raise ConfigError(f"{path} is no file of keys: it has no pair of 40 characters each; {hint}")
    public, secret = map(str, keys)
    workers = given.get("workers")
    theirs = workers.get(worker, public) if isinstance(workers, dict) else public
    return ChannelKeys(theirs, public, secret)


class Static(Launcher):
    """Connects to the workers that `--replica` names, and starts nothing."""

    shares_machine = False

    def __init__(
        self, key_file: Annotated[str, Field(description="File of the keys that workers have.")] = ""
    ) -> None:
        if not key_file:
            raise ConfigError(
                "no file of keys is given: channels to workers are encrypted; give the file that "
                "`turnout worker --key-file FILE` wrote, by --replica-key-file"
            )
        self._keys = read_key_file(key_file)

    def launch(self, order: EngineOrder) -> StaticEngine:
        if not URL.fullmatch(order.place):
            raise ConfigError(f"{order.place!r} is no address of a worker; expected tcp://HOST:PORT")
        return StaticEngine(EngineAddress(order.place, self._keys, order.changes))


class StaticEngine(LaunchedEngine):
    """A worker's engine. Its channel tells when it ends; nothing here can end it."""

    def __init__(self, address: EngineAddress) -> None:
        super().__init__()
        self._address = address

    def configure(self, config: str) -> None:
        """The worker has a configuration of its own; it is told only which kernels other engines have."""
        kernels = json.loads(config)["cpu_kernels"]
        self.address.set_result(self._address._replace(cpu_kernels="" if kernels == "auto" else kernels))

    def kill(self) -> None:
        """The worker outlives the server."""
