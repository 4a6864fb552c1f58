"""Finds the format in which a checkpoint's model writes reasoning and tool calls."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from turnout.core.errors import PluginError
from turnout.core.registry.registry import Registry
from turnout.core.types.output_format import OutputFormat
from turnout.models.checkpoints.checkpoint import read_json
from turnout.runner.response_template import NotExpressible, format_of
from turnout.text.tokenizer import template_source

__all__ = ["FoundFormat", "find_format"]


class FoundFormat(NamedTuple):
    """A format, and how it was found."""

    format: OutputFormat | None
    """None: there is none."""
    told: str = ""
    """The line of the start-up summary about it."""


def find_format(
    registry: Registry, name: str | None, folder: Path, chat_template: str | None = None
) -> FoundFormat:
    """Returns the format of a checkpoint's folder.

    The one that is named, or the checkpoint's own `response_template`, or the one that its chat template
    shows; of two templates, the one for tools is asked first. Regions that no template mentions are left out:
    the model has not learned to write them.

    chat_template: as of `load_tokenizer`.
    """
    sources = [template_source(folder, chat_template, tools=tools) for tools in (True, False)]
    templates = [source for source in dict.fromkeys(sources) if source is not None]
    if not templates:
        return FoundFormat(None)
    if name is not None:
        return FoundFormat(_without_unknown(_built(registry, name), templates), f"output format: {name}")
    config = read_json(folder / "tokenizer_config.json", needed=False)
    ignored = ""
    if "response_template" in config:
        try:
            return FoundFormat(
                format_of(config["response_template"]), "output format: the checkpoint's response_template"
            )
        except NotExpressible as reason:
            ignored = f"; the checkpoint's response_template is ignored: {reason}"
    elif "response_schema" in config:
        ignored = "; the checkpoint's response_schema is ignored: transformers has replaced it"
    found = next((name for name in map(partial(_shown, registry), templates) if name is not None), None)
    if found is None:
        return FoundFormat(None, f"output format: none{ignored}" if ignored else "")
    format = _without_unknown(_built(registry, found), templates)
    return FoundFormat(format, f"output format: {found}, by the chat template{ignored}")


def _shown(registry: Registry, template: str) -> str | None:
    """The name of the format that a chat template shows: the most specific, whose `found_by` are longest."""
    formats = {entry.name: _built(registry, entry.name) for entry in registry.usable("format")}
    sizes = {
        name: sum(map(len, format.found_by))
        for name, format in formats.items()
        if format.found_by and all(text in template for text in format.found_by)
    }
    return max(sizes, key=lambda name: sizes[name]) if sizes else None


def _without_unknown(format: OutputFormat, templates: Sequence[str]) -> OutputFormat:
    """A format without the regions that no chat template mentions."""
    regions = tuple(each for each in format.regions if any(each.close in template for template in templates))
    return msgspec.structs.replace(format, regions=regions)


def _built(registry: Registry, spec: str) -> OutputFormat:
    format = registry.create("format", spec)
    if not isinstance(format, OutputFormat):
        raise PluginError(f"the format {spec!r} should be an OutputFormat, not a {type(format).__name__}")
    return format
