"""Which models may be loaded at once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from turnout.core.errors import ConfigError
from turnout.server.fleet.models.residence import Stay

__all__ = ["Budget"]

ROUNDING = 1e-9


@dataclass(frozen=True)
class Budget:
    """So many models, and so much of the machine's memory, for all that are loaded."""

    most: int | None = None
    """None: any number."""
    share: float = 1.0
    """Of the memory."""

    @classmethod
    def all(cls) -> Budget:
        """Whatever is served may be loaded."""
        return cls(share=math.inf)

    def lack(self, stays: Mapping[str, Stay]) -> str | None:
        """What these models, by name, would need more to be loaded together; None: they may be."""
        if self.most is not None and len(stays) > self.most:
            return f"{', '.join(stays)} are {len(stays)} models, of {self.most} (--max-loaded-models)"
        total = sum(stay.share for stay in stays.values())
        if total > self.share + ROUNDING:
            sums = " + ".join(f"{name} {stay.share:g}" for name, stay in stays.items())
            return f"their shares of the memory are {sums} = {total:g}, of {self.share:g}"
        return None

    def check(self, stays: Mapping[str, Stay]) -> None:
        """Raise ConfigError for a model that could never be loaded beside those that are pinned."""
        pinned = {name: stay for name, stay in stays.items() if stay.pinned}
        for name, stay in stays.items():
            if (lack := self.lack({**pinned, name: stay})) is not None:
                beside = f" beside the pinned {', '.join(pinned)}" if pinned.keys() - {name} else ""
                raise ConfigError(f"model {name!r} could never be loaded{beside}: {lack}")
