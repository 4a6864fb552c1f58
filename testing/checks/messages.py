"""How failure messages show what was tested."""

from __future__ import annotations

import msgspec

__all__ = ["shown"]


def shown(struct: msgspec.Struct) -> str:
    """Sampling parameters, or a request, as the fields that differ from the defaults."""
    return str(msgspec.to_builtins(struct))
