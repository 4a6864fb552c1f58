"""Builds models of transformers: for their shapes, to be filled by a checkpoint, or with random weights."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from inspect import signature
from typing import Any, cast

import torch
from torch import nn
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel
from transformers.initialization import no_init_weights
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from turnout.core.errors import ModelError, describe_error
from turnout.models.text_parts import with_shared

__all__ = [
    "build_empty",
    "build_filled",
    "build_shape",
    "has_causal",
    "model_class",
    "parse_config",
    "refused",
    "text_config",
    "with_padding",
]

_one_builds = threading.RLock()

POOLING_LAYER = "add_pooling_layer"
"""The argument by which an encoder without a head leaves out the layer that only heads read."""


def parse_config(config: Mapping[str, Any]) -> PreTrainedConfig:
    """Reads a ``config.json`` as transformers does. Raises ModelError where transformers cannot."""
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in CONFIG_MAPPING:
        raise ModelError(
            f"config.json: model_type = {kind!r} is not known to the installed transformers; a newer one may "
            "know it: pip install -U transformers"
        )
    try:
        parsed = CONFIG_MAPPING[kind].from_dict(_with_floats(dict(config)))
    except Exception as error:  # each config checks its own keys, and raises what it likes
        why = " ".join(describe_error(error).split())
        raise ModelError(f"config.json: transformers cannot read it: {why}") from error
    return with_padding(parsed)


def _with_floats(value: Any) -> Any:
    """Returns a copy with numbers that JSON lacks: transformers writes {"__float__": "Infinity"}."""
    if isinstance(value, Mapping):
        if value.keys() == {"__float__"}:
            return float(value["__float__"])
        return {key: _with_floats(each) for key, each in value.items()}
    return [_with_floats(each) for each in value] if isinstance(value, list) else value


def with_padding(config: PreTrainedConfig) -> PreTrainedConfig:
    """Says that there is no padding token where a config says nothing: models of 5.0.0 ask for it."""
    if not hasattr(config, "pad_token_id"):
        config.pad_token_id = None
    return config


def model_class(config: PreTrainedConfig) -> type[PreTrainedModel] | None:
    """Returns the causal model that transformers has for a config; None: it has none."""
    known = cast(Mapping[type[PreTrainedConfig], type[PreTrainedModel]], AutoModelForCausalLM._model_mapping)
    return known[type(config)] if type(config) in known else None  # noqa: SIM401  # its `get` differs


def has_causal(config: Mapping[str, Any], architecture: str) -> bool:
    """Says whether a ``config.json`` has the causal model of that name, whose tokens see no later ones.

    transformers also has causal models for configs of encoders, which are such if ``is_decoder`` is set.
    """
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in CONFIG_MAPPING:
        return False
    parsed = parse_config(config)
    made = model_class(parsed)
    encodes = hasattr(parsed, "is_decoder") and hasattr(parsed, "type_vocab_size") and not parsed.is_decoder
    return made is not None and made.__name__ == architecture and not encodes


def text_config(config: Mapping[str, Any]) -> dict[str, Any] | None:
    """Returns a whole ``config.json`` of the text model; None: the installed transformers has none.

    Its ``architectures`` is the causal model that transformers has for it.
    """
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in CONFIG_MAPPING:
        return None
    parsed = parse_config(config)
    text = parsed.get_text_config()
    causal = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(text.model_type)
    if text is parsed or not isinstance(causal, str):
        return None
    tied = getattr(parsed, "tie_word_embeddings", None)
    around = {**config, **({} if tied is None else {"tie_word_embeddings": tied})}
    return {**with_shared(text.to_dict(), around), "architectures": [causal], "model_type": text.model_type}


def refused(why: str) -> ModelError:
    """Returns the error to raise for a model that transformers has: why it is not served, and what to do."""
    return ModelError(
        f"{why}; such models are not served: choose one of another architecture, or write a family for it "
        "(turnout plugins new --kind model)"
    )


def build_shape(
    config: PreTrainedConfig,
    implementation: str,
    made: type[PreTrainedModel] | None = None,
    dtype: torch.dtype = torch.bfloat16,
) -> PreTrainedModel:
    """Returns the model on "meta", buffers too: it computes shapes alone.

    made: the class; None: the causal model's. dtype: some operators know their shapes in bfloat16 alone.
    """
    try:
        with torch.device("meta"), no_init_weights():
            return _build(config, implementation, made, dtype)
    except ModelError:  # some modules compute with numbers as they are built
        model = _build_on_cpu(config, implementation, made, dtype)
        nn.Module.to(model, "meta")
        return model


def build_empty(
    config: PreTrainedConfig, implementation: str, made: type[PreTrainedModel] | None = None
) -> PreTrainedModel:
    """Returns the model with parameters on "meta", tied, and buffers on the CPU with their values."""
    model = _build_on_cpu(config, implementation, made)
    model.tie_weights()
    _load_buffers(model)
    return model


def _build_on_cpu(
    config: PreTrainedConfig,
    implementation: str,
    made: type[PreTrainedModel] | None,
    dtype: torch.dtype = torch.float32,
) -> PreTrainedModel:
    with torch.device("cpu"), _parameters_on_meta(), no_init_weights():
        return _build(config, implementation, made, dtype)


def _load_buffers(model: nn.Module) -> None:
    """Makes parameters of the buffers that checkpoints have, such as a router's correction of its scores."""
    stored = model.state_dict().keys() - dict(model.named_parameters(remove_duplicate=False)).keys()
    for name in stored:
        owner, _, attribute = name.rpartition(".")
        module = model.get_submodule(owner)
        empty = nn.Parameter(getattr(module, attribute).to("meta"), requires_grad=False)
        delattr(module, attribute)
        module.register_parameter(attribute, empty)


def build_filled(
    config: PreTrainedConfig, implementation: str, made: type[PreTrainedModel] | None = None
) -> PreTrainedModel:
    """Returns the model with random weights, in float32 on the CPU."""
    with torch.device("cpu"):
        return _build(config, implementation, made)


def _build(
    config: PreTrainedConfig,
    implementation: str,
    made: type[PreTrainedModel] | None,
    dtype: torch.dtype = torch.float32,
) -> PreTrainedModel:
    config = copy.deepcopy(config)  # building writes into it
    made = made or model_class(config)
    assert made is not None, "only configs of causal models come here, unless the class is given"
    more = {POOLING_LAYER: False} if POOLING_LAYER in signature(made.__init__).parameters else {}
    try:
        model: PreTrainedModel = made._from_config(  # type: ignore[no-untyped-call]
            config, attn_implementation=implementation, dtype=dtype, **more
        )
    except KeyError as error:
        if error.args != (implementation,):
            raise ModelError(f"config.json: transformers cannot build it: {describe_error(error)}") from error
        raise refused(
            f"{made.__name__} has attention code of its own, which does not use the attention interface of "
            "transformers"
        ) from None
    except Exception as error:  # as above
        raise ModelError(f"config.json: transformers cannot build it: {describe_error(error)}") from error
    model.train(False)
    return model


@contextmanager
def _parameters_on_meta() -> Iterator[None]:
    """Moves parameters that this thread registers to "meta"; their memory, never written, is free at once."""
    with _one_builds:
        register, builder = nn.Module.register_parameter, threading.get_ident()

        def register_empty(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
            if parameter is not None and not parameter.is_meta and threading.get_ident() == builder:
                parameter = nn.Parameter(parameter.detach().to("meta"), requires_grad=False)
            register(module, name, parameter)

        nn.Module.register_parameter = register_empty  # type: ignore[method-assign, assignment]
        try:
            yield
        finally:
            nn.Module.register_parameter = register  # type: ignore[method-assign]
