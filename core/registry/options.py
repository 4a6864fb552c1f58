"""A plugin's options: read from its factory's typed signature, validated by pydantic."""

from __future__ import annotations

import inspect
import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, ValidationError, WrapValidator, create_model, field_validator
from pydantic.fields import FieldInfo

from turnout.core.errors import ConfigError
from turnout.core.validation import explain_validation_error

__all__ = ["Option", "Options", "read_options"]


@dataclass(frozen=True)
class Option:
    """One option, as `turnout plugins show` describes it."""

    name: str
    type: str
    default: str
    """As it would be given; empty when the option must be."""
    help: str


@dataclass(frozen=True)
class Options:
    """Validates options and turns them into the factory's keyword arguments."""

    model: type[BaseModel]
    parameter: str | None
    """The one parameter that takes `model` itself; None: its fields are the parameters."""

    def describe(self) -> list[Option]:
        return [_describe(name, field) for name, field in self.model.model_fields.items()]

    def types(self) -> dict[str, object]:
        """The type of each option."""
        return {name: field.annotation for name, field in self.model.model_fields.items()}

    def validate(self, values: Mapping[str, object]) -> dict[str, Any]:
        """Keyword arguments for the factory. Raises ConfigError, a line for each problem."""
        try:
            options = self.model.model_validate(values)
        except ValidationError as error:
            raise ConfigError(explain_validation_error(error, self.model.model_fields)) from None
        if self.parameter is not None:
            return {self.parameter: options}
        return {name: getattr(options, name) for name in options.model_fields_set}


def read_options(factory: Callable[..., object]) -> Options:
    """From the signature. Raises TypeError or NameError for one that cannot be read."""
    parameters = [
        parameter
        for parameter in inspect.signature(factory, eval_str=True).parameters.values()
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if len(parameters) == 1 and _is_model(parameters[0].annotation):
        return Options(_strict(parameters[0].annotation), parameters[0].name)
    fields: dict[str, Any] = {parameter.name: _field(parameter) for parameter in parameters}
    config = ConfigDict(extra="forbid", arbitrary_types_allowed=True, protected_namespaces=())
    with warnings.catch_warnings(action="ignore"):  # that an option shares its name with a BaseModel method
        return Options(create_model("Options", __config__=config, **fields), None)


def _is_model(annotation: object) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _strict(model: type[BaseModel]) -> type[BaseModel]:
    """The author's model, which refuses unknown options whatever its own setting, and reads text."""
    reads = field_validator("*", mode="wrap")(_from_text)
    return type(model.__name__, (model,), {"model_config": ConfigDict(extra="forbid"), "_from_text": reads})


def _field(parameter: inspect.Parameter) -> tuple[Any, Any]:
    annotation = parameter.annotation
    required = parameter.default is parameter.empty
    if annotation is parameter.empty:
        annotation = Any if required or parameter.default is None else type(parameter.default)
    return Annotated[annotation, WrapValidator(_from_text)], ... if required else parameter.default


def _from_text(value: object, validate: Callable[[object], object]) -> object:
    """Pydantic reads numbers and booleans from text itself; lists, mappings and null come as JSON."""
    try:
        return validate(value)
    except ValidationError as error:
        if not isinstance(value, str):
            raise
        try:
            read = json.loads(value)
            if isinstance(read, bool):  # which pydantic would take for the number 1
                raise error
            return validate(read)
        except ValueError:  # which a ValidationError is too
            raise error from None


def _describe(name: str, field: FieldInfo) -> Option:
    default = "" if field.is_required() else _as_given(field.get_default(call_default_factory=True))
    return Option(name, _type(field.annotation), default, field.description or "")


def _type(annotation: object) -> str:
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return f"Literal[{', '.join(repr(member.value) for member in annotation)}]"  # what can be given
    return inspect.formatannotation(annotation)


def _as_given(value: object) -> str:
    if isinstance(value, Enum):
        return _as_given(value.value)
    return value if isinstance(value, str) else json.dumps(value, default=str)
