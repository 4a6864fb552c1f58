"""The text model of a checkpoint that reads images or sound too, whose other weights are skipped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from turnout.core.interfaces.division import Division
from turnout.core.interfaces.models import ModelFamily
from turnout.core.plugin_faults import name_plugin, title_of
from turnout.core.types.model_spec import ModelSpec
from turnout.core.types.placement import Renamed
from turnout.models.bodies.parts import ModuleParts
from turnout.models.text_parts import text_name

if TYPE_CHECKING:
    from torch import nn

__all__ = ["TextPart"]


class TextPart(ModelFamily):
    """Builds what the family of the text model builds."""

    architectures = ()

    def __init__(self, family: ModelFamily, text: Mapping[str, Any]) -> None:
        """text: a whole ``config.json`` of the text model, whose architecture `family` builds."""
        self._family, self._text = family, text
        self._parts = ModuleParts()
        name_plugin(self, title_of(family, "model"))

    def spec(self, config: Mapping[str, Any]) -> ModelSpec:
        return replace(self._family.spec(self._text), architecture=config["architectures"][0])

    def build(self, spec: ModelSpec) -> nn.Module:
        module = self._family.build(spec)
        self._parts = ModuleParts(module)
        return module

    def parameter_count(self, spec: ModelSpec) -> int | None:
        return self._family.parameter_count(spec)

    def division(self, spec: ModelSpec, parts: int, stages: int) -> Division | None:
        return self._family.division(spec, parts, stages)

    def rename(self, key: str) -> Renamed:
        name = text_name(key)
        if name is not None:
            return self._family.rename(name)
        renamed = self._family.rename(key)
        return renamed if self._parts.have(renamed) else None
