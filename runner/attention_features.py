"""Which KV backend a model needs, by the way in which its layers attend; others are refused."""

from __future__ import annotations

from turnout.config import EngineConfig
from turnout.core.errors import ConfigError
from turnout.core.interfaces.kv import KVBackend
from turnout.core.plugin_faults import title_of
from turnout.core.registry.hookspecs import PROJECT
from turnout.core.registry.registry import Registry
from turnout.core.types.layer_attention import NOT_CAUSAL, AttentionFeature
from turnout.core.types.model_spec import ModelSpec
from turnout.plugins.defaults import KV

__all__ = ["OF_DECODERS", "check_attention", "encoder_config"]

MEANINGS = {
    "scale": "scores with a scale of their own",
    "window": "windows",
    "softcap": "soft caps of scores",
    "sinks": "attention sinks",
    "value_dim": "values of another width than keys",
    "layer_shapes": "layers that differ in shape",
    "kv_from": "layers that read another's keys and values",
    "values_in_keys": "values that lie in the keys",
    NOT_CAUSAL: "queries that see later positions",
}
"""What each feature is, as a message says it."""


def check_attention(registry: Registry, backend: KVBackend, spec: ModelSpec) -> None:
    """Raises ConfigError if layers of the model ask for what `backend` does not declare, naming both."""
    asked = spec.attention_features()
    missing = asked - backend.attention_features
    if not missing:
        return
    what = " and ".join(f"{MEANINGS.get(name, name)} ({name})" for name in sorted(missing))
    raise ConfigError(
        f"{title_of(backend, 'kv')} cannot serve {spec.architecture}: it does not follow {what}; choose "
        f"another KV backend with --kv{_those_that_do(registry, asked)}"
    )


def _those_that_do(registry: Registry, asked: frozenset[AttentionFeature]) -> str:
    """Names the built-in backends that follow all of `asked`."""
    builtin = [entry.name for entry in registry.usable("kv") if entry.distribution == PROJECT]
    followed = {name: registry.create("kv", name).attention_features for name in builtin}
    encodes = NOT_CAUSAL in asked  # what follows it keeps nothing, and is of no use to others
    names = [name for name, each in followed.items() if asked <= each and (NOT_CAUSAL in each) == encodes]
    return f": {' or '.join(names)}" if names else ""


OF_DECODERS = (
    *("kv_memory", "kv_eviction", "swap_memory", "preemption", "block_size", "kv_cache_dtype"),
    *("spec_draft", "spec_ngram", "spec_tokens"),
)
"""Settings that an encoder has nothing to do with: it keeps no keys and values, and drafts nothing."""


def encoder_config(config: EngineConfig, spec: ModelSpec) -> EngineConfig:
    """Returns the configuration of an engine that serves an encoder: without KV memory.

    Raises ConfigError for settings of KV memory and of speculation.
    """
    for name in OF_DECODERS:
        if getattr(config, name) != EngineConfig.model_fields[name].default:
            raise ConfigError(
                f"{name}={getattr(config, name)} is for models that generate; {spec.architecture} is an "
                "encoder, which keeps no keys and values and drafts nothing: leave it out, or among several "
                "models give it in the sections of those that generate"
            )
    return config.model_copy(update={"kv": "none"}) if config.kv == KV else config
