"""Finds the format in which a checkpoint's model writes reasoning and tool calls."""

from __future__ import annotations

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
    shows. Regions that the chat template does not mention are left out: the model has not learned to write
    them.

    chat_template: as of `load_tokenizer`.
    """
    template = template_source(folder, chat_template)
    if template is None:
        return FoundFormat(None)
    if name is not None:
        return FoundFormat(_without_unknown(_built(registry, name), template), f"output format: {name}")
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
    found = _shown(registry, template)
    if found is None:
        return FoundFormat(None, f"output format: none{ignored}" if ignored else "")
    format = _without_unknown(_built(registry, found), template)
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


def _without_unknown(format: OutputFormat, template: str) -> OutputFormat:
    """A format without the regions that a chat template does not mention."""
    regions = tuple(region for region in format.regions if region.close in template)
    return msgspec.structs.replace(format, regions=regions)


def _built(registry: Registry, spec: str) -> OutputFormat:
    format = registry.create("format", spec)
    if not isinstance(format, OutputFormat):
        raise PluginError(f"the format {spec!r} should be an OutputFormat, not a {type(format).__name__}")
    return format
