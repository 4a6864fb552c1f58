"""A model that the server serves: its names, and the arms behind them."""

from __future__ import annotations

from dataclasses import dataclass, field

from turnout.server.fleet.arms import Arms
from turnout.server.fleet.models.residence import Residence, Stay

__all__ = ["HostedModel"]


@dataclass(eq=False)
class HostedModel:
    """One of the server's models."""

    arms: Arms
    given_name: str | None = None
    """None: the name that its engine says."""
    aliases: tuple[str, ...] = ()
    stay: Stay = field(default_factory=Stay)
    """When it is loaded, as the server was started."""
    residence: Residence = field(init=False)

    def __post_init__(self) -> None:
        self.residence = Residence(self.arms, self.stay)

    @property
    def name(self) -> str:
        """The name that clients give the model. It is the same for all arms: a client asks for no arm."""
        return self.given_name or self.arms.first.client.ready.model

    def is_called(self, name: str, tag: str = "") -> bool:
        """tag: what may follow the name, such as ``:latest``."""
        return any(name in (known, f"{known}{tag}") for known in (self.name, *self.aliases))

    @property
    def loaded(self) -> bool:
        """Engines have been started for it, though they may have died since."""
        return self.residence.state == "loaded"

    @property
    def state(self) -> str:
        """As `ModelCard.state` says."""
        if not self.loaded:
            return self.residence.state
        if self.arms.failure is not None:
            return "failed"
        if self.residence.draining:
            return "unloading"
        serving = [arm for arm in self.arms.all if arm.serves]
        return "restarting" if all(arm.client.restarting for arm in serving) else "loaded"

    @property
    def reason(self) -> str | None:
        """Why it has failed; None: it has not."""
        return self.arms.failure if self.loaded else self.residence.reason
