"""The markers of a format."""

from __future__ import annotations

from collections.abc import Sequence

from turnout.core.types.output_format import Body, NamedCall, OutputFormat, XmlCall

__all__ = ["markers"]


def markers(format: OutputFormat) -> list[str]:
    """The texts that a format writes itself; some may be empty."""
    texts = [text for region in format.regions for text in (region.open, region.close)]
    if (calls := format.calls) is not None:
        texts += [
            calls.before,
            calls.lead,
            calls.open,
            calls.close,
            calls.between,
            calls.after,
            *calls.around,
        ]
        texts += _marks(calls.body)
    return [*texts, format.between]


def _marks(body: Body) -> Sequence[str]:
    """What a call holds besides names and values."""
    if isinstance(body, NamedCall):
        return [*body.separators, body.notation.quote]
    if isinstance(body, XmlCall):
        value = "\n" + body.value[1] if body.lines else body.value[1]
        return [body.before, body.after, *body.key, body.value[0], value, body.end]
    return ()
