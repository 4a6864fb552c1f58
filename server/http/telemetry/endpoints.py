"""Where traces and metrics go by OpenTelemetry's protocol, from flags and from ``OTEL_*`` variables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Literal
from urllib.parse import urlsplit

from turnout.core.errors import ConfigError

__all__ = ["Signal", "endpoint_of"]

Signal = Literal["traces", "metrics"]

DISABLED = "OTEL_SDK_DISABLED"
EVERY = "OTEL_EXPORTER_OTLP_ENDPOINT"
PROTOCOL = "http/protobuf"


def endpoint_of(
    signal: Signal, given: str | None, environment: Mapping[str, str] | None = None
) -> str | None:
    """The URL that a signal is sent to; None: nowhere. Raises ConfigError.

    given: by the flag. Without it, the signal is sent where the variables of OpenTelemetry say, if they do.
    """
    found = os.environ if environment is None else environment
    if found.get(DISABLED, "").lower() == "true":
        return None
    own = f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT"
    if given is not None:
        return _checked(f"--otlp-{signal}-endpoint", _whole(given, signal), signal, found)
    if found.get(f"OTEL_{signal.upper()}_EXPORTER", "otlp") != "otlp":
        return None
    if url := found.get(own):
        return _checked(own, url, signal, found)
    if base := found.get(EVERY):
        return _checked(EVERY, f"{base.rstrip('/')}/v1/{signal}", signal, found)
    return None


def _whole(url: str, signal: Signal) -> str:
    """With the path of the signal, if the URL has none."""
    with suppress(ValueError):
        return f"{url.rstrip('/')}/v1/{signal}" if urlsplit(url).path in ("", "/") else url
    return url


def _checked(name: str, url: str, signal: Signal, environment: Mapping[str, str]) -> str:
    own = f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL"
    protocol = environment.get(own) or environment.get("OTEL_EXPORTER_OTLP_PROTOCOL") or PROTOCOL
    if protocol != PROTOCOL:
        raise ConfigError(f"{signal} are sent by {PROTOCOL}, not by {protocol}; unset {own}")
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good:
        raise ConfigError(
            f"{name}={url!r} is not a URL of a collector that takes {PROTOCOL}; expected is one such as "
            f"http://127.0.0.1:4318/v1/{signal}"
        )
    return url
