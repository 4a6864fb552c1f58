"""The places of an output where its grammar allows any text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from turnout.core.types.output_format import Calls, OutputFormat, Region, XmlCall
from turnout.core.types.structured_outputs import FreeRegion, FreeText, FreeValue, Pieces
from turnout.text.output.argument_schemas import given_values
from turnout.text.output.grammar.grammar_rules import GrammarRules
from turnout.text.output.grammar.string_forms import ANY, string_form
from turnout.text.output.tools import Tool

__all__ = ["free_places"]


def free_places(
    format: OutputFormat,
    calls: Calls | None,
    tools: Sequence[Tool],
    rules: GrammarRules,
    within: Region | None,
) -> FreeText | None:
    """Returns where text is free; None: nowhere.

    calls: what ends the text that is no region, if that is free up to there. tools: those that may be called,
    if what is no region is such text or calls.
    """
    skips = format.outside == "skip"
    regions = tuple(_region(region, rules, skips) for region in format.regions)
    ends = tuple(_ways(calls.marker, rules)) if calls is not None and calls.marker and not skips else None
    values: tuple[FreeValue, ...] = ()
    close = ""
    if format.calls is not None and isinstance(format.calls.body, XmlCall) and format.calls.body.lines:
        values, close = _values(format.calls.body, tools), format.calls.body.value[1]
    if not regions and ends is None and not values:
        return None
    number = -1 if within is None else format.regions.index(within)
    return FreeText(regions=regions, answer=ends, values=values, close=close, within=number, between=skips)


def _region(region: Region, rules: GrammarRules, skips: bool) -> FreeRegion:
    close = () if skips and region.close in rules.ends else tuple(_ways(region.close, rules))
    return FreeRegion(rules.pieces(region.open), close)


def _ways(marker: str, rules: GrammarRules) -> Iterator[Pieces]:
    """As `GrammarRules.text_up_to` has it."""
    yield (marker,)
    pieces = rules.pieces(marker)
    if isinstance(pieces[0], int):
        yield pieces


def _values(body: XmlCall, tools: Sequence[Tool]) -> tuple[FreeValue, ...]:
    """The values that stand as they are; none where a tool takes arguments of any name."""
    found: dict[str, bool] = {}
    for tool in tools:
        for shape in tool.shapes:
            if shape.others is not False:
                return ()
            for each in shape.properties:
                found[each.name] = found.get(each.name, True) and _is_any_text(tool, each.schema)
    before, after = body.key
    return tuple(FreeValue(f"{before}{name}{after}{body.value[0]}\n", free) for name, free in found.items())


def _is_any_text(tool: Tool, schema: Any) -> bool:
    branches = list(tool.schemas.branches(schema))
    if (
        len(branches) != 1
        or tool.schemas.types(schema) != {"string"}
        or given_values(branches[0]) is not None
    ):
        return False
    return string_form(branches[0], strict=tool.strict) == ANY
