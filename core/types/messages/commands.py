"""What a server asks an engine to do."""

from __future__ import annotations

from uuid import uuid4

import msgspec

from turnout.core.types.request import RequestSpec

__all__ = [
    "Abort",
    "AdminCommand",
    "AnnouncePrefixes",
    "Command",
    "ListPlugins",
    "ListPrefixes",
    "PinPrefix",
    "Reset",
    "SetEventInterval",
    "SetScheduler",
    "ShowKV",
    "ShowScheduler",
    "Shutdown",
    "StartProfile",
    "StopProfile",
    "Submit",
    "UnpinPrefix",
    "Watch",
]


class Submit(msgspec.Struct, frozen=True, tag=True):
    """Asks to serve a request."""

    request: RequestSpec


class Abort(msgspec.Struct, frozen=True, tag=True):
    """Asks to stop a request, or one of its choices. Unknown ones, which may just have ended, are ignored."""

    request_id: str
    index: int | None = None
    timing: bool = False
    """If this ends the whole request, or there is no such request, answer with a last delta that carries the
    `Timing`, if it is known."""


class AnnouncePrefixes(msgspec.Struct, frozen=True, tag=True):
    """Asks to send events from now on of the prefixes that are in memory; not answered."""


class SetEventInterval(msgspec.Struct, frozen=True, tag=True):
    """Asks to send tokens that only go on a choice once in so many seconds; not answered."""

    seconds: float


class Watch(msgspec.Struct, frozen=True, tag=True):
    """Asks to record what the engine does for so many seconds, and to send `EngineNews` with the `Stats`; not
    answered."""

    seconds: float
    anew: bool = False
    """Tell of all requests again."""


class _AdminCommandBase(msgspec.Struct, frozen=True, kw_only=True):
    """The id by which a `Reply` answers a command."""

    id: str = msgspec.field(default_factory=lambda: uuid4().hex)


class ShowScheduler(_AdminCommandBase, frozen=True, tag=True):
    """Asks for the scheduling policy and its state."""


class SetScheduler(_AdminCommandBase, frozen=True, tag=True):
    """Asks to use another scheduling policy from the next step on; requests stay in their queues."""

    spec: str
    """As for ``--scheduler``: ``NAME`` or ``NAME:option=value,…``."""


class ShowKV(_AdminCommandBase, frozen=True, tag=True):
    """Asks for the state of the KV pool."""

    states: bool = False
    """Whether to include the block map; if not, `KVSnapshot.states` is empty."""


class PinPrefix(_AdminCommandBase, frozen=True, tag=True):
    """Asks to pin a prefix, in place of the one of the same name."""

    name: str
    tokens: list[int]
    salt: str = ""


class UnpinPrefix(_AdminCommandBase, frozen=True, tag=True):
    """Asks to unpin a prefix."""

    name: str


class ListPrefixes(_AdminCommandBase, frozen=True, tag=True):
    """Asks for all pinned prefixes."""


class ListPlugins(_AdminCommandBase, frozen=True, tag=True):
    """Asks for all plugins that were found, failed ones included."""


class StartProfile(_AdminCommandBase, frozen=True, tag=True):
    """Asks to profile the engine's process."""

    folder: str
    """Where the profile is to be written."""


class StopProfile(_AdminCommandBase, frozen=True, tag=True):
    """Asks to end the profile, and to write it."""


AdminCommand = (
    ShowScheduler
    | SetScheduler
    | ShowKV
    | PinPrefix
    | UnpinPrefix
    | ListPrefixes
    | ListPlugins
    | StartProfile
    | StopProfile
)
"""Carried out between two steps; each is answered by a `Reply` of the same id."""


class Reset(msgspec.Struct, frozen=True, tag=True):
    """Asks to end all requests and to take back what admin commands changed, for another server; answered by
    `Ready`."""


class Shutdown(msgspec.Struct, frozen=True, tag=True):
    """Asks the engine to end after the current step."""


Command = Submit | Abort | AnnouncePrefixes | SetEventInterval | Watch | AdminCommand | Reset | Shutdown
