"""What was commanded of an engine and holds for the next one, too."""

from __future__ import annotations

from turnout.core.types.messages import AdminCommand, PinPrefix, SetScheduler, UnpinPrefix

__all__ = ["StandingOrders"]


class StandingOrders:
    """The commands carried out so far that have changed something, without those that others undid."""

    def __init__(self) -> None:
        self._scheduler: SetScheduler | None = None
        self._pins: dict[str, PinPrefix] = {}

    def note(self, command: AdminCommand) -> None:
        """It was carried out."""
        if isinstance(command, SetScheduler):
            self._scheduler = command
        elif isinstance(command, PinPrefix):
            self._pins[command.name] = command
        elif isinstance(command, UnpinPrefix):
            self._pins.pop(command.name, None)

    def commands(self) -> list[AdminCommand]:
        """To be given to an engine that starts anew."""
        return [*([self._scheduler] if self._scheduler else []), *self._pins.values()]
