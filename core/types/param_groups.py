"""The parameters of sampling and those of beam search, which exclude each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from turnout.core.errors import RequestError

if TYPE_CHECKING:
    from turnout.core.types.sampling_params import SamplingParams

__all__ = ["check_param_groups", "merge_defaults"]

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
    other are left out.
    """
    beams = given.get("use_beam_search")
    if beams is None:
        beams = bool(defaults.get("use_beam_search")) and not SAMPLING.keys() & given.keys()
    excluded = SAMPLING.keys() if beams else {"use_beam_search", *BEAM_SEARCH}
    kept = {name: value for name, value in defaults.items() if name not in excluded}
    return {**kept, **given}


def check_param_groups(params: SamplingParams) -> None:
    """Raises RequestError for parameters that contradict each other."""
    if not isinstance(params.use_beam_search, bool):
        raise RequestError("use_beam_search must be true or false", "use_beam_search")
    if not isinstance(params.early_stopping, bool) and params.early_stopping != "never":
        raise RequestError('early_stopping must be true, false or "never"', "early_stopping")
    if params.best_of is not None and params.best_of < params.n:
        raise RequestError(f"best_of ({params.best_of}) must be at least n ({params.n})", "best_of")
    if params.use_beam_search:
        _check_beams(params)
        return
    for name, nothing in BEAM_SEARCH.items():
        if getattr(params, name) not in nothing:
            raise RequestError(f"{name} needs use_beam_search to be true", name)


def _check_beams(params: SamplingParams) -> None:
    if params.best_of is not None and params.best_of != params.n:
        raise RequestError("best_of does not go with beam search; beam_width is how many are kept", "best_of")
    if params.beam_width is not None and params.n > params.beam_width:
        raise RequestError(f"n ({params.n}) must not exceed beam_width ({params.beam_width})", "n")
    for name, nothing in SAMPLING.items():
        value = getattr(params, name)
        if value not in nothing:
            raise RequestError(
                f"{name} ({value:g}) is for sampling and does not go with beam search, which draws nothing; "
                "leave it out",
                name,
            )
