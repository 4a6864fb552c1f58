"""Loads what sends traces and metrics, if they are asked for; the libraries are an extra."""

from __future__ import annotations

import logging
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from turnout.config import ServerConfig
from turnout.core.errors import ConfigError
from turnout.server.http.telemetry.endpoints import Signal, endpoint_of

if TYPE_CHECKING:
    from turnout.server.http.telemetry.metrics import Metrics
    from turnout.server.http.telemetry.traces import Traces

__all__ = ["opened_metrics", "opened_traces"]

logger = logging.getLogger(__name__)

MODULES = "turnout.server.http.telemetry"


def opened_traces(config: ServerConfig) -> Traces | None:
    """What sends traces; None: they are not sent. Raises ConfigError.

    Where the environment alone asks for them, and the extra is not installed, the server goes on without.
    """
    endpoint = endpoint_of("traces", config.otlp_traces_endpoint)
    if (
        endpoint is None
        or (module := _loaded("traces", asked=config.otlp_traces_endpoint is not None)) is None
    ):
        return None
    traces: Traces = module.Traces(endpoint)
    return traces


def opened_metrics(config: ServerConfig) -> Metrics | None:
    """What sends metrics; otherwise as `opened_traces`."""
    endpoint = endpoint_of("metrics", config.otlp_metrics_endpoint)
    if (
        endpoint is None
        or (module := _loaded("metrics", asked=config.otlp_metrics_endpoint is not None)) is None
    ):
        return None
    metrics: Metrics = module.Metrics(endpoint)
    return metrics


def _loaded(signal: Signal, *, asked: bool) -> ModuleType | None:
    """asked: by the flag. Raises ConfigError."""
    try:
        return import_module(f"{MODULES}.{signal}")
    except ImportError as error:
        message = f"OpenTelemetry cannot be imported ({error}); pip install 'turnout[otel]'"
        if asked:
            raise ConfigError(f"--otlp-{signal}-endpoint: {message}") from None
        logger.warning("the environment asks for %s, which are not sent: %s", signal, message)
        return None
