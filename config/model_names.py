"""By which names requests may ask for a model."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator

from turnout.config.fields import Listed

__all__ = ["ModelName", "ModelNames"]

MAX_LENGTH = 256


def _valid(name: str) -> str:
    if name and len(name) <= MAX_LENGTH and name.isprintable() and name == name.strip():
        return name
    raise ValueError(
        f"{name!r} cannot be a model's name: expected 1 to {MAX_LENGTH} printable characters, without spaces "
        "around them or line breaks"
    )


def _all_valid(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(_valid, names))


ModelName = Annotated[str, AfterValidator(_valid)]
ModelNames = Annotated[Listed, AfterValidator(_all_valid)]
