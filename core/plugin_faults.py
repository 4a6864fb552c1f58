"""Logs the faults of plugins that Turnout survives, once for each type of error."""

from __future__ import annotations

import logging

from turnout.core.errors import describe_error

__all__ = ["PluginFaults"]


class PluginFaults:
    """Logs faults to one logger, each plugin's once for each type of error."""

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._reported: set[tuple[str, type[Exception]]] = set()

    def report(self, plugin: str, error: Exception) -> str:
        """Logs a fault, and returns a line that names the plugin and says what went wrong."""
        message = f"{plugin} failed: {describe_error(error)}"
        if (plugin, type(error)) not in self._reported:
            self._reported.add((plugin, type(error)))
            self._logger.error(message, exc_info=error)
        return message
