"""By which names requests may ask for a model."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BeforeValidator

from turnout.config.fields import Listed

__all__ = ["ModelNames"]

MAX_LENGTH = 256


def _valid(name: str) -> str:
    if name and len(name) <= MAX_LENGTH and name.isprintable() and name == name.strip():
        return name
    raise ValueError(
        f"{name!r} cannot be a model's name: expected 1 to {MAX_LENGTH} printable characters, without spaces "
        "around them or line breaks"
    )


def _given(value: object) -> object:
    """Text that has no name is none by mistake, as of an empty variable."""
    texts = value if isinstance(value, list | tuple) else (value,)
    if texts and all(isinstance(text, str) and not text.strip(" ,") for text in texts):
        raise ValueError("it should be a model's name, or several with commas between them, and is empty")
    return value


def _all_valid(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(_valid, names))


ModelNames = Annotated[Listed, BeforeValidator(_given), AfterValidator(_all_valid)]
