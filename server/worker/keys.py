"""Keys of channels between machines: made here, read in `turnout.plugins.launchers.static`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import zmq
from zmq.auth.thread import ThreadAuthenticator

from turnout.core.api_keys import warn_if_open
from turnout.core.errors import ConfigError
from turnout.core.interfaces.launcher import ChannelKeys
from turnout.plugins.launchers.static import read_key_file
from turnout.server.engine.remote.link import made_pair

__all__ = ["ZAP_DOMAIN", "admitting", "kept_keys"]

ZAP_DOMAIN = "turnout"
"""What ZeroMQ calls the sockets that the keys are for."""


def kept_keys(path: str) -> tuple[ChannelKeys, bool]:
    """The keys of a file, and whether it was made now, readable by this user alone. Raises ConfigError."""
    if Path(path).exists():
        warn_if_open(path)
        return read_key_file(path), False
    public, secret = made_pair()
    try:
        made = _written(path, json.dumps({"public": public, "secret": secret}) + "\n")
    except OSError as error:
        raise ConfigError(f"the file of keys {path} cannot be written: {error.strerror}") from None
    return read_key_file(path), made


def _written(path: str, text: str) -> bool:
    """Write a file, whole and for this user alone; False if another process was faster."""
    new = f"{path}.{os.getpid()}"
    try:
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
        os.link(new, path)
    except FileExistsError:
        return False
    finally:
        Path(new).unlink(missing_ok=True)
    return True


class _Admits:
    def __init__(self, key: str) -> None:
        self._key = key.encode()

    def callback(self, domain: str, key: bytes) -> bool:
        return key == self._key


def admitting(context: zmq.Context[zmq.Socket[bytes]], key: str) -> ThreadAuthenticator:
    """Lets those alone connect to the context's sockets that have the secret key of `key`; to be stopped."""
    authenticator = ThreadAuthenticator(context)
    authenticator.start()
    authenticator.configure_curve_callback(ZAP_DOMAIN, _Admits(key))
    return authenticator
