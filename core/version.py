"""Which version of Turnout this is."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version

__all__ = ["own_version"]


@cache
def own_version() -> str:
    """The installed version, whose file is read once."""
    return version("turnout")
