"""The parameters of sampling and those of beam search, which exclude each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["BEAM_SEARCH", "SAMPLING", "merge_defaults"]

SAMPLING: dict[str, tuple[float, ...]] = {
    "temperature": (0, 1),
    "top_p": (1,),
    "top_k": (0, -1),
    "min_p": (0,),
}
"""The parameters of sampling, with the values that are compatible with beam search."""
BEAM_SEARCH: dict[str, tuple[object, ...]] = {
    "beam_width": (None,),
    "length_penalty": (1,),
    "early_stopping": (False,),
}
"""The parameters of beam search, with the values that are compatible with sampling."""


def merge_defaults(given: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Merges the parameters that a client gave with the defaults of the server and the model.

    The client chooses between sampling and beam search: if it names a parameter of one, the defaults for the
    other are left out. So are those for beam search if it names a decoding strategy.
    """
    beams = given.get("use_beam_search")
    if beams is None:
        chooses = SAMPLING.keys() & given.keys() or given.get("decoding") is not None
        beams = bool(defaults.get("use_beam_search")) and not chooses
    excluded = SAMPLING.keys() if beams else {"use_beam_search", *BEAM_SEARCH}
    kept = {name: value for name, value in defaults.items() if name not in excluded}
    return {**kept, **given}
