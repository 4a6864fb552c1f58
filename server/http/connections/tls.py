"""TLS: the server's certificate and key, read at start-up, so that a mistake in them is told at once.

They are read again when their files change: what issues certificates replaces them every few weeks, and a
restart would end the streams of all clients.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from datetime import UTC, datetime
from pathlib import Path

from turnout.config import ServerConfig
from turnout.core.clock import Clock
from turnout.core.errors import ConfigError
from turnout.server.http.connections.validity import Validity

__all__ = ["Certificates", "certificates"]

logger = logging.getLogger(__name__)

CHECK_SECONDS = 10.0
"""How often to look whether the files have changed."""

FileState = tuple[int, int, int] | None


def certificates(config: ServerConfig) -> Certificates | None:
    """The certificates by which connections are encrypted; None if no file is given. Raises ConfigError."""
    if config.ssl_certfile is None:
        for name in ("ssl_keyfile", "ssl_keyfile_password", "ssl_ca_certs"):
            if getattr(config, name) is not None:
                flag = name.replace("_", "-")
                raise ConfigError(f"--{flag} needs --ssl-certfile, the server's certificate")
        return None
    return Certificates(config)


class Certificates:
    """The certificate, key and authorities of a server, as their files last had them. Raises ConfigError.

    Connections that are open keep those with which they began.
    """

    def __init__(self, config: ServerConfig, wall: Clock = time.time) -> None:
        self._config, self._wall = config, wall
        paths = (config.ssl_certfile, config.ssl_keyfile, config.ssl_ca_certs)
        self._paths = [path for path in paths if path is not None]
        self._read: list[FileState] | None = self._states()
        self._told = ""
        self.context = _context(config)
        """It encrypts new connections."""
        self._validity = _validity(config)
        self._fault = self.fault
        """What was told of it last."""

    @property
    def fault(self) -> str:
        """Why clients refuse the certificate, or soon will; empty: they need not."""
        if self._validity is None:
            return ""
        fault = self._validity.fault(datetime.fromtimestamp(self._wall(), UTC))
        return fault and f"the certificate in {self._config.ssl_certfile} {fault}"

    async def keep_current(self) -> None:
        """Look for changed files until cancelled."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            try:
                await asyncio.to_thread(self.renew)
            except Exception:  # no thread can be started, or a file has gone while it was read
                logger.exception("the certificate could not be read again")

    def renew(self) -> None:
        """Read the files again if one has changed; while they do not fit together, keep what was read before.

        A certificate is often replaced a moment before its key.
        """
        states = self._states()
        if states != self._read:
            self._read_again(states)
        if (fault := self.fault) != self._fault:
            self._fault = fault
            if fault:
                logger.warning("%s", fault)

    def _read_again(self, states: list[FileState]) -> None:
        try:
            self.context = _context(self._config)
        except ConfigError as error:
            self._read = None
            if (told := str(error)) != self._told:
                self._told = told
                logger.warning("the certificate in use until now is kept: %s", error)
            return
        self._read, self._told = states, ""
        self._validity, self._fault = _validity(self._config), ""
        logger.info("new connections have the certificate that %s holds now", self._config.ssl_certfile)

    def _states(self) -> list[FileState]:
        return [_state(Path(path)) for path in self._paths]


def _state(path: Path) -> FileState:
    """What changes when a file is written or replaced; None while there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _context(config: ServerConfig) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["http/1.1"])
    _load_certificate(context, config)
    if config.ssl_ca_certs is not None:
        _load_authorities(context, config.ssl_ca_certs)
    return context


def _validity(config: ServerConfig) -> Validity | None:
    """None where OpenSSL reads a certificate that this does not, as of another form of PEM."""
    assert config.ssl_certfile is not None
    try:
        return Validity.of(Path(config.ssl_certfile).read_text(encoding="latin-1"))
    except (OSError, ValueError, IndexError):
        return None


def _load_certificate(context: ssl.SSLContext, config: ServerConfig) -> None:
    assert config.ssl_certfile is not None
    key = config.ssl_keyfile or config.ssl_certfile
    _check_readable("--ssl-certfile", config.ssl_certfile)
    _check_readable("--ssl-keyfile", key)
    password = _Password(config.ssl_keyfile_password)
    try:
        context.load_cert_chain(config.ssl_certfile, key, password)
    except (ssl.SSLError, ValueError) as error:  # ValueError: a password of more than 1,024 bytes
        raise ConfigError(_why(config, error, password)) from None


class _Password:
    """The key's password, and whether the key has one. Without this, OpenSSL would ask in the terminal."""

    def __init__(self, given: str | None) -> None:
        self.given, self.asked = given, False

    def __call__(self) -> str:
        self.asked = True
        return self.given or ""


def _why(config: ServerConfig, error: ssl.SSLError | ValueError, password: _Password) -> str:
    """What is wrong, told by what OpenSSL says."""
    file = config.ssl_keyfile or config.ssl_certfile
    if password.asked and password.given is None:
        return f"the key {file} is encrypted; give --ssl-keyfile-password"
    if password.asked:
        return f"--ssl-keyfile-password does not open the key {file}"
    reason = error.reason if isinstance(error, ssl.SSLError) else None
    if reason == "KEY_VALUES_MISMATCH":
        return f"the key in {file} is not that of the first certificate in {config.ssl_certfile}"
    key = f"a key in {config.ssl_keyfile}" if config.ssl_keyfile else "its key (or give --ssl-keyfile)"
    return (
        f"TLS needs a certificate in {config.ssl_certfile} and {key}, both as PEM; OpenSSL says: "
        f"{reason or error}"
    )


def _load_authorities(context: ssl.SSLContext, path: str) -> None:
    """From then on, clients need a certificate of one of these authorities."""
    _check_readable("--ssl-ca-certs", path)
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise ConfigError(
            f"--ssl-ca-certs: {path} holds no certificates as PEM; OpenSSL says: {error.reason or error}"
        ) from None
    context.verify_mode = ssl.CERT_REQUIRED


def _check_readable(flag: str, path: str) -> None:
    try:
        with Path(path).open("rb"):
            pass
    except OSError as error:
        raise ConfigError(f"{flag}: {path} cannot be read: {error.strerror}") from None
