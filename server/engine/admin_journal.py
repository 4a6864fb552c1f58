"""What an engine is told that starts: what the server wants of it, and the admin commands that still hold."""

from __future__ import annotations

from collections.abc import Iterator

from turnout.core.types.messages import (
    AdminCommand,
    AnnouncePrefixes,
    PinPrefix,
    SetEventInterval,
    SetScheduler,
    UnpinPrefix,
)

__all__ = ["AdminJournal", "lasts"]


def lasts(command: AdminCommand) -> bool:
    """Whether a command holds for engines that start later, too."""
    return isinstance(command, SetScheduler | PinPrefix | UnpinPrefix)


class AdminJournal:
    """Remembers the commands that have changed something, without those that later commands undid."""

    def __init__(self, *, announce: bool = False, event_interval: float = 0) -> None:
        """`announce`: engines tell which prefixes they keep. `event_interval`: as in `SetEventInterval`."""
        self._announce = announce
        self.event_interval = event_interval
        self.beside: AdminJournal | None = None
        """Of the engines of another configuration, which remember the same."""
        self._scheduler: SetScheduler | None = None
        self._pins: dict[str, PinPrefix] = {}

    def copy(self, *, scheduler: bool) -> AdminJournal:
        """The same for other engines; with the scheduler that was set, or without."""
        copy = AdminJournal(announce=self._announce, event_interval=self.event_interval)
        copy._scheduler, copy._pins = self._scheduler if scheduler else None, dict(self._pins)
        return copy

    def note(self, command: AdminCommand) -> None:
        """Remember a command that was carried out."""
        self._note(command)
        if self.beside is not None:
            self.beside._note(command)

    def _note(self, command: AdminCommand) -> None:
        if isinstance(command, SetScheduler):
            self._scheduler = command
        elif isinstance(command, PinPrefix):
            self._pins[command.name] = command
        elif isinstance(command, UnpinPrefix):
            self._pins.pop(command.name, None)

    def pin(self, name: str) -> PinPrefix | None:
        """What pinned the prefix of this name; None: nothing did."""
        return self._pins.get(name)

    def commands(self) -> Iterator[AdminCommand | AnnouncePrefixes | SetEventInterval]:
        """The commands to give to an engine that starts anew."""
        if self.event_interval:
            yield SetEventInterval(self.event_interval)
        if self._announce:
            yield AnnouncePrefixes()
        if self._scheduler is not None:
            yield self._scheduler
        yield from self._pins.values()
