"""Faults of plugins that are survived: each is named in the log, once for each kind of error."""

from __future__ import annotations

import logging

from turnout.core.errors import described

__all__ = ["PluginFaults"]


class PluginFaults:
    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._reported: set[tuple[str, type[Exception]]] = set()

    def report(self, who: str, error: Exception) -> str:
        """What went wrong, in a line that names the plugin, for whom it harms."""
        message = f"{who} failed: {described(error)}"
        if (who, type(error)) not in self._reported:
            self._reported.add((who, type(error)))
            self._logger.error(message, exc_info=error)
        return message
