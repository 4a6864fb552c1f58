"""One definition of configuration: the CLI's flags, the YAML file's keys and `LLM`'s arguments.

A field's name is the flag (``max_num_seqs`` is ``--max-num-seqs``) and its description the help.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from turnout.core import limits
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
    """Splits ``a,b``, or each text of a list, into names."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple):
        return value
    return tuple(name.strip() for text in texts for name in str(text).split(",") if name.strip())


PluginNames = Annotated[tuple[str, ...], BeforeValidator(_names)]


def _texts(value: object) -> object:
    """Makes a tuple of one text or of several; a comma does not separate texts."""
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
    """The configuration of an engine: its model, policies, device, memory and limits."""

    model: Annotated[str, BeforeValidator(_path_text)] = Field(
        "turnout-tiny", description="Folder, hub name or short name of the model."
    )
    revision: str | None = Field(None, description="Branch, tag or commit on the hub.")
    scheduler: str = Field(SCHEDULER, description="Scheduling policy, as NAME or NAME:option=value,….")
    length_predictor: str = Field(
        LENGTH_PREDICTOR,
        description="Predicts output lengths for policies that use them, as NAME or NAME:option=value,….",
    )
    kv: str = Field(KV, description="KV backend, as NAME or NAME:option=value,….")
    quantization: str = Field(UNQUANTIZED, description="Quantizer, as NAME or NAME:option=value,….")
    decoding: str = Field(
        DECODING, description="Decoding of requests that do not choose, as NAME or NAME:option=value,…."
    )
    spec_draft: str | None = Field(
        None, description="Model that drafts for speculative decoding: a folder, hub name or short name."
    )
    spec_ngram: bool = Field(
        False, description="Draft without a model, from what followed the latest tokens earlier in the text."
    )
    spec_tokens: int | None = Field(
        None, gt=0, le=MAX_DRAFT, description="Most tokens to draft in a step; default: 5."
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto",
        description="Dtype to compute in; auto: the model's own if the device is fast at it, else float32.",
    )
    cpu_kernels: Literal["auto", "native", "torch"] = Field(
        "auto",
        description="Kernels on a CPU: native, which the first start compiles, or torch, PyTorch's own "
        "operators; auto: native if there is a C++ compiler.",
    )
    gpu_kernels: Literal["auto", "triton", "torch"] = Field(
        "auto",
        description="Kernels for norms, gates and rotations on a GPU: triton, which are fused, or torch, "
        "PyTorch's own operators; auto: triton if it is installed.",
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
        description="Most tokens of prompt and output together; default: the model's own limit.",
    )
    max_num_seqs: int = Field(256, gt=0, description="Sequences that run at once.")
    max_num_batched_tokens: int | None = Field(
        None, gt=0, description="Most tokens computed in a step; default: 512 on CPU, 8192 on a GPU."
    )
    max_waiting: int = Field(
        4096, gt=0, description="Most requests that wait; more are refused with status 503."
    )
    kv_memory: ByteSize | None = Field(
        None, description="Size of the KV pool, such as 2GiB; default: fitted to the device's free memory."
    )
    gpu_memory_utilization: float = Field(
        0.9, gt=0, le=1, description="Share of the GPU's memory to use if kv-memory is not given."
    )
    memory_share: float = Field(
        1.0,
        gt=0,
        le=1,
        description="Share of the default KV and swap memory that this engine takes, for several engines on "
        "one machine.",
    )
    kv_eviction: str | None = Field(
        None,
        description="Policy that chooses which cached prefixes to evict first, for backends that cache some, "
        f"as NAME or NAME:option=value,…; default: {KV_EVICTION}.",
    )
    swap_memory: SizeOrZero | None = Field(
        None,
        description="Host memory to which preempted requests are swapped out, such as 4GiB; default: 4GiB "
        "for a GPU, none on CPU, where the KV pool is host memory already.",
    )
    preemption: Literal["auto", "recompute", "swap"] = Field(
        "auto",
        description="What happens to a preempted request's KV memory: recompute computes it again, swap "
        "moves it to swap-memory, auto does what takes less time.",
    )
    block_size: int | None = Field(
        None,
        gt=0,
        description="Tokens in a KV block, for backends that have blocks; default: the backend's own.",
    )
    plugins_folder: str | None = Field(
        None, description="Folder whose turnout_plugins.py is loaded as a plugin; default: the config file's."
    )
    disable_plugin: PluginNames = Field(
        (),
        description="Plugin not to load, by its own or its package's name; separate several by "
        "commas, or repeat the flag.",
    )
    strict_plugins: bool = Field(
        False, description="Fail if a plugin cannot be loaded, or if a policy is at fault at run time."
    )

    @property
    def plugins_path(self) -> Path | None:
        return Path(self.plugins_folder) if self.plugins_folder else None


class ServerConfig(_Config):
    """The configuration of a server around the engine: its address, keys, limits and live test."""

    host: str = Field("127.0.0.1", description="Address to bind.")
    port: int = Field(8000, ge=0, le=65535, description="Port to bind; 0: any free one.")
    served_model_name: str | None = Field(
        None, description="Name of the model in the API; default: --model as given."
    )
    api_key: str | None = Field(
        None,
        min_length=1,
        description="Key that clients must send as a bearer token; default: no key is required.",
    )
    admin_key: str | None = Field(
        None,
        min_length=1,
        description="Key that /admin requires as a bearer token; default: /admin answers only this machine.",
    )
    engine_restarts: int = Field(
        3,
        ge=0,
        description="Restarts of the engine within ten minutes when it dies; requests continue where they "
        "were. 0: the server ends with the engine.",
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
        "each field is an option of serve, and compare the two.",
    )
    split: float | None = Field(
        None, gt=0, lt=1, description="Share of the sessions that the arm of --ab gets; default: 0.5."
    )
    max_body_size: ByteSize = Field(
        limits.BODY.whole, description="Size of the largest request body; larger ones get status 413."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Lowest severity to log; the log goes to standard error."
    )
