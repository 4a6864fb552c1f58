"""Loads what sends traces, if they are asked for; the libraries are an extra."""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING

from turnout.config import ServerConfig
from turnout.core.errors import ConfigError
from turnout.server.http.telemetry.endpoints import endpoint_of

if TYPE_CHECKING:
    from turnout.server.http.telemetry.traces import Traces

__all__ = ["opened_traces"]

logger = logging.getLogger(__name__)

MODULE = "turnout.server.http.telemetry.traces"


def opened_traces(config: ServerConfig) -> Traces | None:
    """What sends traces; None: they are not sent. Raises ConfigError.

    Where the environment alone asks for them, and the extra is not installed, the server goes on without.
    """
    given = config.otlp_traces_endpoint
    endpoint = endpoint_of("traces", given)
    if endpoint is None:
        return None
    try:
        module = import_module(MODULE)
    except ImportError as error:
        message = f"OpenTelemetry cannot be imported ({error}); pip install 'turnout[otel]'"
        if given is not None:
            raise ConfigError(f"--otlp-traces-endpoint: {message}") from None
        logger.warning("the environment asks for traces, which are not sent: %s", message)
        return None
    traces: Traces = module.Traces(endpoint)
    return traces
