"""Finds the format in which a checkpoint's model writes reasoning and tool calls."""

from __future__ import annotations

from pathlib import Path

import msgspec

from turnout.core.errors import PluginError
from turnout.core.registry.registry import Registry
from turnout.core.types.output_format import OutputFormat
from turnout.text.tokenizer import template_source

__all__ = ["find_format"]


def find_format(registry: Registry, name: str | None, folder: Path) -> OutputFormat | None:
    """Returns the format of a checkpoint's folder: the one that is named, or that its chat template shows.

    None: it shows none. Of several the most specific: the one whose `found_by` are longest. Regions that the
    chat template does not mention are left out: the model has not learned to write them.
    """
    template = template_source(folder)
    if template is None:
        return None
    if name is not None:
        chosen = _built(registry, name)
    else:
        formats = [_built(registry, entry.name) for entry in registry.usable("format")]
        fitting = [
            each for each in formats if each.found_by and all(text in template for text in each.found_by)
        ]
        if not fitting:
            return None
        chosen = max(fitting, key=lambda each: sum(map(len, each.found_by)))
    regions = tuple(region for region in chosen.regions if region.close in template)
    return msgspec.structs.replace(chosen, regions=regions)


def _built(registry: Registry, spec: str) -> OutputFormat:
    format = registry.create("format", spec)
    if not isinstance(format, OutputFormat):
        raise PluginError(f"the format {spec!r} should be an OutputFormat, not a {type(format).__name__}")
    return format
