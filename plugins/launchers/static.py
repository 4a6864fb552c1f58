"""Engines that run already, each under a `turnout worker`, here or on another machine."""

from __future__ import annotations

import json
import logging
import re
import threading
from pathlib import Path
from typing import Annotated

from pydantic import Field

from turnout.core.clock import monotonic
from turnout.core.errors import ConfigError
from turnout.core.interfaces.launcher import (
    ChannelKeys,
    EngineAddress,
    EngineOrder,
    LaunchedEngine,
    Launcher,
)
from turnout.plugins.launchers.addresses import is_address, resolved

__all__ = ["Static", "read_key_file"]

logger = logging.getLogger(__name__)

KEY = re.compile(r"\S{40}")
RESOLVE_SECONDS = 30.0
"""How long a name may have no address: that of a pod has none until it is placed."""
RETRY_SECONDS = 0.5


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
        if not is_address(order.place):
            raise ConfigError(f"{order.place!r} is no address of a worker; expected tcp://HOST:PORT")
        return StaticEngine(EngineAddress(order.place, self._keys, order.changes))


class StaticEngine(LaunchedEngine):
    """A worker's engine. Its channel tells when it ends; nothing here can end it."""

    def __init__(self, address: EngineAddress) -> None:
        super().__init__()
        self._address = address
        self._killed = threading.Event()

    def configure(self, config: str) -> None:
        """The worker has a configuration of its own; it is told only which kernels other engines have."""
        kernels = json.loads(config)["cpu_kernels"]
        address = self._address._replace(cpu_kernels="" if kernels == "auto" else kernels)
        # Looking for a name may take seconds, in which the server serves.
        threading.Thread(target=self._resolve, args=(address,), name="resolve", daemon=True).start()

    def kill(self) -> None:
        """The worker outlives the server."""
        self._killed.set()

    def _resolve(self, address: EngineAddress) -> None:
        until, told = monotonic() + RESOLVE_SECONDS, False
        while not self._killed.is_set():
            try:
                found = resolved(address.url)
            except OSError as error:
                why = f"the name in {address.url} has no address: {error.strerror}"
                if monotonic() >= until:
                    self.address.set_exception(ConfigError(f"{why}; check --replica"))
                    return
                if not told:
                    told = True
                    logger.warning("%s; looking again for %g s", why, RESOLVE_SECONDS)
                self._killed.wait(RETRY_SECONDS)
            else:
                self.address.set_result(address._replace(url=found))
                return
