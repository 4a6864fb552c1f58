"""The hooks a plugin may implement.

A plugin is a module (or object) named by an entry point of group ``turnout``, or a file
``turnout_plugins.py`` beside the config file::

    from turnout import hookimpl

    @hookimpl
    def register_schedulers(register):
        register("ljf", "my_package.ljf:LongestJobFirst")

It may state the hook API that it was written for as ``turnout_hook_api = 1``. A plugin for any version but
`HOOK_API_VERSION` is reported as broken and not used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pluggy

if TYPE_CHECKING:
    from turnout.core.interfaces.observers import (
        ArrivalRecord,
        EngineRecord,
        PreemptionRecord,
        RequestRecord,
        StepRecord,
    )

__all__ = ["HOOK_API_VERSION", "PROJECT", "Factory", "Flag", "Register", "hookimpl", "hookspec"]

HOOK_API_VERSION = 1
"""Raised when a hook or a base class changes in a way that breaks plugins."""

PROJECT = "turnout"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)

Factory = Callable[..., object] | str
"""A class or function, or where to find it as ``"package.module:Attribute"``, imported on first use.

The parameters of its typed signature are the plugin's options.
"""


@dataclass(frozen=True)
class Flag:
    """A field of `EngineConfig`, and so a flag of the command line, that stands for a plugin's option."""

    field: str
    """Its name in `EngineConfig`, which must exist: ``block_size`` is ``--block-size``."""
    option: str
    """The parameter of the plugin's factory."""
    chooses: bool = False
    """True: giving the field brings the plugin in beside the one that the configuration names. For decoding
    strategies alone, of which an engine has several."""
    alone: str = "is an option of a plugin that is not chosen"
    """What the refusal says of a field that is given without those that choose the plugin."""


class Register(Protocol):
    """What a hook calls for each policy it brings."""

    def __call__(self, name: str, factory: Factory, flags: Sequence[Flag] = ()) -> None:
        """Offers `factory` under `name`: letters, digits, ``_``, ``-`` and ``.``.

        `flags`: options that have a flag of their own. If none of them chooses this plugin, their values
        go to whichever plugin of the kind is chosen. Raises TypeError or ValueError for what cannot be
        registered.
        """
        ...


@hookspec
def register_schedulers(register: Register) -> None:
    """Offers scheduling policies (`SchedulingPolicy`), chosen with ``--scheduler``."""


@hookspec
def register_kv_backends(register: Register) -> None:
    """Offers KV backends (`KVBackend`), chosen with ``--kv``."""


@hookspec
def register_evictions(register: Register) -> None:
    """Offers eviction policies for cached prefixes (`EvictionPolicy`), chosen with ``--kv-eviction``."""


@hookspec
def register_quantizers(register: Register) -> None:
    """Offers quantizers (`Quantizer`), chosen with ``--quantization``."""


@hookspec
def register_decodings(register: Register) -> None:
    """Offers decoding strategies (`Decoding`), chosen with ``--decoding`` or by a request."""


@hookspec
def register_proposers(register: Register) -> None:
    """Offers proposers (`Proposer`), which draft tokens, as an option of ``--decoding speculative``."""


@hookspec
def register_poolings(register: Register) -> None:
    """Offers pooling strategies (`Pooling`), for embeddings and scores, chosen with ``--pooling``."""


@hookspec
def register_length_predictors(register: Register) -> None:
    """Offers predictors of output lengths (`LengthPredictor`), chosen with ``--length-predictor``."""


@hookspec
def register_admissions(register: Register) -> None:
    """Offers admission policies (`AdmissionPolicy`), chosen with ``--admission``."""


@hookspec
def register_routers(register: Register) -> None:
    """Offers routers (`Router`), which choose among several engines, with ``--router``."""


@hookspec
def register_launchers(register: Register) -> None:
    """Offers launchers (`Launcher`), which start engines here or elsewhere, chosen with ``--launcher``."""


@hookspec
def register_observers(register: Register) -> None:
    """Offers observers with options (`Observer`), chosen with ``--observer``."""


@hookspec
def register_logits_processors(register: Register) -> None:
    """Offers logits processors (`LogitsProcessor`); all are active, for the requests that want them."""


@hookspec
def register_models(register: Register) -> None:
    """Offers model families (`ModelFamily`), chosen by the architecture in ``config.json``."""


@hookspec
def register_formats(register: Register) -> None:
    """Offers output formats (`OutputFormat`), found by the checkpoint's chat template or ``--format``."""


@hookspec
def step_finished(step: StepRecord) -> None:
    """Called in the engine's process after each step, if a plugin implements it; must be fast."""


@hookspec
def request_arrived(request: ArrivalRecord) -> None:
    """Called in the engine's process when a request has been admitted, before its first step."""


@hookspec
def request_preempted(request: PreemptionRecord) -> None:
    """Called in the engine's process when a running request had to give way."""


@hookspec
def request_finished(request: RequestRecord) -> None:
    """Called in the engine's process when a request has ended, however it did."""


@hookspec
def engine_closed(engine: EngineRecord) -> None:
    """Called in the engine's process when the engine ends; the last call, unless the process is killed."""
