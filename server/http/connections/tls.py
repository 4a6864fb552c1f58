"""TLS: the server's certificate and key, read at start-up, so that a mistake in them is told at once."""

from __future__ import annotations

import ssl
from pathlib import Path

from turnout.config import ServerConfig
from turnout.core.errors import ConfigError

__all__ = ["tls_context"]


def tls_context(config: ServerConfig) -> ssl.SSLContext | None:
    """The context by which connections are encrypted; None without a certificate. Raises ConfigError."""
    if config.ssl_certfile is None:
        for name in ("ssl_keyfile", "ssl_keyfile_password", "ssl_ca_certs"):
            if getattr(config, name) is not None:
                flag = name.replace("_", "-")
                raise ConfigError(f"--{flag} needs --ssl-certfile, the server's certificate")
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["http/1.1"])
    _load_certificate(context, config)
    if config.ssl_ca_certs is not None:
        _load_authorities(context, config.ssl_ca_certs)
    return context


def _load_certificate(context: ssl.SSLContext, config: ServerConfig) -> None:
    assert config.ssl_certfile is not None
    key = config.ssl_keyfile or config.ssl_certfile
    _check_readable("--ssl-certfile", config.ssl_certfile)
    _check_readable("--ssl-keyfile", key)
    password = _Password(config.ssl_keyfile_password)
    try:
        context.load_cert_chain(config.ssl_certfile, key, password)
    except ssl.SSLError as error:
        raise ConfigError(_why(config, error, password)) from None


class _Password:
    """The key's password, and whether the key has one. Without this, OpenSSL would ask in the terminal."""

    def __init__(self, given: str | None) -> None:
        self.given, self.asked = given, False

    def __call__(self) -> str:
        self.asked = True
        return self.given or ""


def _why(config: ServerConfig, error: ssl.SSLError, password: _Password) -> str:
    """What is wrong, told by what OpenSSL says."""
    if password.asked and password.given is None:
        return (
            f"the key {config.ssl_keyfile or config.ssl_certfile} is encrypted; give --ssl-keyfile-password"
        )
    if password.asked:
        return f"--ssl-keyfile-password does not open the key {config.ssl_keyfile or config.ssl_certfile}"
    if error.reason == "KEY_VALUES_MISMATCH":
        return f"the key {config.ssl_keyfile} is not that of the certificate {config.ssl_certfile}"
    key = f"a key in {config.ssl_keyfile}" if config.ssl_keyfile else "its key (or give --ssl-keyfile)"
    return (
        f"TLS needs a certificate in {config.ssl_certfile} and {key}, both as PEM; OpenSSL says: "
        f"{error.reason or error}"
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
