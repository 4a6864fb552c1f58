"""A model that the server serves: its names, and the arms behind them."""

from __future__ import annotations

from dataclasses import dataclass

from turnout.server.fleet.arms import Arms

__all__ = ["HostedModel"]


@dataclass(eq=False)
class HostedModel:
    """One of the server's models."""

    arms: Arms
    given_name: str | None = None
    """None: the name that its engine says."""
    aliases: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name that clients give the model. It is the same for all arms: a client asks for no arm."""
        return self.given_name or self.arms.first.client.ready.model

    def is_called(self, name: str, tag: str = "") -> bool:
        """tag: what may follow the name, such as ``:latest``."""
        return any(name in (known, f"{known}{tag}") for known in (self.name, *self.aliases))

    @property
    def state(self) -> str:
        """`loaded`; `restarting`: its engine died, and another is starting; `failed`: it was given up."""
        if self.arms.failure is not None:
            return "failed"
        serving = [arm for arm in self.arms.all if arm.serves]
        return "restarting" if all(arm.client.restarting for arm in serving) else "loaded"
