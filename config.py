"""One definition of configuration: the CLI's flags, the YAML file's keys and `LLM`'s arguments.

A field's name is the flag (``max_num_seqs`` is ``--max-num-seqs``) and its description the help.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from turnout.core.errors import ConfigError
from turnout.core.sizes import ByteSize, SizeOrZero
from turnout.core.validation import explain_validation_error
from turnout.plugins.defaults import (
    DECODING,
    KV,
    KV_EVICTION,
    LENGTH_PREDICTOR,
    MAX_DRAFT,
    SCHEDULER,
    UNQUANTIZED,
)

__all__ = ["EngineConfig", "ServerConfig"]


def _path_text(value: object) -> object:
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _names(value: object) -> object:
    """``a,b``, or several of such."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple):
        return value
    return tuple(name.strip() for text in texts for name in str(text).split(",") if name.strip())


PluginNames = Annotated[tuple[str, ...], BeforeValidator(_names)]


def _texts(value: object) -> object:
    """One text, or several; commas are part of them."""
    return (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value


Texts = Annotated[tuple[str, ...], BeforeValidator(_texts)]


class _Config(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ConfigError(explain_validation_error(error, type(self).model_fields)) from None


class EngineConfig(_Config):
    """What an engine is made of."""

    model: Annotated[str, BeforeValidator(_path_text)] = Field(
        "turnout-tiny", description="Folder, hub name or short name of the model."
    )
    revision: str | None = Field(None, description="Branch, tag or commit on the hub.")
    scheduler: str = Field(SCHEDULER, description="Scheduling policy, as NAME or NAME:option=value,….")
    length_predictor: str = Field(
        LENGTH_PREDICTOR,
        description="Guesses output lengths for policies that use them, as NAME or NAME:option=value,….",
    )
    kv: str = Field(KV, description="KV backend, as NAME or NAME:option=value,….")
    quantization: str = Field(UNQUANTIZED, description="Quantizer, as NAME or NAME:option=value,….")
    decoding: str = Field(
        DECODING, description="How to decode for requests that do not say, as NAME or NAME:option=value,…."
    )
    spec_draft: str | None = Field(
        None, description="Model that drafts for speculative decoding: a folder, hub name or short name."
    )
    spec_ngram: bool = Field(
        False, description="Draft without a model, from what followed the latest tokens earlier in the text."
    )
    spec_tokens: int | None = Field(
        None, gt=0, le=MAX_DRAFT, description="Tokens to draft at most for each step; default: 5."
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto",
        description="What to compute in; auto: the model's own where the device is fast at it, else float32.",
    )
    cpu_kernels: Literal["auto", "native", "torch"] = Field(
        "auto",
        description="What computes on a CPU: native, kernels that the first start compiles, or torch's own; "
        "auto: native where there is a compiler.",
    )
    gpu_kernels: Literal["auto", "triton", "torch"] = Field(
        "auto",
        description="What computes norms, gates and rotations on a GPU: triton, fused kernels, or torch's "
        "own operators; auto: triton where it is installed.",
    )
    device: str = Field("auto", description="cpu, cuda or cuda:N; auto: a GPU if there is one.")
    enforce_eager: bool = Field(
        False,
        description="On a GPU, launch every step kernel by kernel instead of replaying captured graphs.",
    )
    async_scheduling: bool | None = Field(
        None,
        description="Hand the next step to the device before this one's tokens are known; default: on a GPU.",
    )
    max_model_len: int | None = Field(
        None,
        gt=0,
        description="Longest prompt and output together, in tokens; default: what the model supports.",
    )
    max_num_seqs: int = Field(256, gt=0, description="Sequences that run at once.")
    max_num_batched_tokens: int | None = Field(
        None, gt=0, description="Tokens computed in one step; default: 512 on CPU, 8192 on a GPU."
    )
    max_waiting: int = Field(4096, gt=0, description="Requests that may wait; more are refused with 503.")
    kv_memory: ByteSize | None = Field(
        None, description="Memory for the KV pool, such as 2GiB; default: fitted to the device's free memory."
    )
    gpu_memory_utilization: float = Field(
        0.9, gt=0, le=1, description="Share of the GPU's memory to use when kv-memory is not given."
    )
    memory_share: float = Field(
        1.0,
        gt=0,
        le=1,
        description="Share of what would be taken without kv-memory that is this engine's, where several "
        "are on one machine.",
    )
    kv_eviction: str | None = Field(
        None,
        description="Which cached prefixes go first, as NAME or NAME:option=value,…, for backends that keep "
        f"some; default: {KV_EVICTION}.",
    )
    swap_memory: SizeOrZero | None = Field(
        None,
        description="Host memory that preempted requests are swapped out to, such as 4GiB; default: 4GiB for "
        "a GPU, none on CPU, where the KV pool is host memory already.",
    )
    preemption: Literal["auto", "recompute", "swap"] = Field(
        "auto",
        description="What becomes of a preempted request's KV memory: computed again, swapped out to "
        "swap-memory, or whichever takes less time.",
    )
    block_size: int | None = Field(
        None, gt=0, description="Tokens in a KV block, for backends that have blocks; default: theirs."
    )
    plugins_folder: str | None = Field(
        None, description="Folder whose turnout_plugins.py counts as a plugin; default: the config file's."
    )
    disable_plugin: PluginNames = Field(
        (),
        description="Plugin not to load, by its own or its package's name; several with commas, or flags.",
    )
    strict_plugins: bool = Field(
        False, description="A plugin that cannot be loaded, or a policy's fault at run time, is fatal."
    )

    @property
    def plugins_path(self) -> Path | None:
        return Path(self.plugins_folder) if self.plugins_folder else None


class ServerConfig(_Config):
    """How a server is reached."""

    host: str = Field("127.0.0.1", description="Address to bind.")
    port: int = Field(8000, ge=0, le=65535, description="Port to bind; 0: any free one.")
    served_model_name: str | None = Field(
        None, description="Name the API gives the model; default: --model as given."
    )
    api_key: str | None = Field(
        None,
        min_length=1,
        description="Key that clients must send as a bearer token; default: none is asked for.",
    )
    admin_key: str | None = Field(
        None,
        min_length=1,
        description="Key that /admin asks for as a bearer token; default: /admin answers only this machine.",
    )
    engine_restarts: int = Field(
        3,
        ge=0,
        description="How often within ten minutes the engine is started again when it dies; requests go on "
        "where they were. 0: the server ends with it.",
    )
    shutdown_timeout: float = Field(
        25,
        ge=0,
        allow_inf_nan=False,
        description="Seconds that running requests get to end after Ctrl-C or SIGTERM; a second signal ends "
        "them at once.",
    )
    ab: Texts = Field(
        (),
        description="Serve a part of the sessions by another configuration, as NAME:field=value,…, where "
        "fields are options of serve, and compare the two.",
    )
    split: float | None = Field(
        None, gt=0, lt=1, description="Share of the sessions that the arm of ab gets; default: 0.5."
    )
    max_body_size: ByteSize = Field(32 * 2**20, description="Largest request body; larger ones get 413.")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="How much to log.")
