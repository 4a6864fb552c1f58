"""The configuration of an engine."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from turnout.config.fields import Config, JsonObject, PathText, PluginNames, PluginSpecs, PluginText
from turnout.core import limits
from turnout.core.sizes import ByteSize, SizeOrZero
from turnout.plugins.defaults import (
    ADMISSION,
    DECODING,
    KV,
    KV_EVICTION,
    LENGTH_PREDICTOR,
    MAX_DRAFT,
    SCHEDULER,
    UNQUANTIZED,
)

__all__ = ["EngineConfig"]

MAX_COUNT = 2**31 - 1
"""More than any engine has; what follows from it still fits into a message."""


class EngineConfig(Config):
    """The configuration of an engine: its model, policies, device, memory and limits."""

    model: PathText = Field("turnout-tiny", description="Folder, hub name or short name of the model.")
    """See [how a model is found](models.md#how-a-model-is-found). `turnout serve NAME` is a short form."""
    revision: str | None = Field(None, description="Branch, tag or commit on the hub; default: `main`.")
    scheduler: PluginText = Field(
        SCHEDULER, description="Scheduling policy, as `NAME` or `NAME:option=value,…`."
    )
    """See [how to choose one](../how-to/choose-a-scheduler.md)."""
    length_predictor: PluginText = Field(
        LENGTH_PREDICTOR,
        description="Predicts output lengths for policies that use them, as `NAME` or `NAME:option=value,…`.",
    )
    """`max_tokens` predicts the request's own limit."""
    admission: PluginText = Field(
        ADMISSION,
        description="Admission policy, which refuses requests when there is too much to do, as `NAME` or "
        "`NAME:option=value,…`.",
    )
    """`none` leaves it to `--max-waiting`. See [overload](../how-to/serve.md#overload)."""
    kv: PluginText = Field(KV, description="KV backend, as `NAME` or `NAME:option=value,…`.")
    """See [policies](policies.md#kv) and [KV memory](../explanation/kv.md)."""
    hf_overrides: JsonObject | None = Field(
        None, description="JSON object whose keys stand in place of those of the model's `config.json`."
    )
    """Objects are merged. See [what runs it](models.md#what-runs-it). A config file may have a mapping."""
    model_impl: Literal["auto", "native", "transformers"] = Field(
        "auto",
        description="What runs the model: `native`, a family of Turnout's or a plugin's; `transformers`, its "
        "own modules over Turnout's KV memory; `auto`: `native` where a family has the architecture.",
    )
    """[models.md](models.md) lists which architectures have a family, and which run by transformers."""
    trust_remote_code: bool = Field(
        False,
        description="Run code that the checkpoint brings (`auto_map`), where neither a family nor "
        "transformers has its architecture.",
    )
    """Start-up names the files. They run with all rights of the server's user: read them first."""
    quantization: PluginText = Field(
        UNQUANTIZED, description="Quantizer, as `NAME` or `NAME:option=value,…`."
    )
    """See [how to quantize](../how-to/quantize.md)."""
    decoding: PluginText = Field(
        DECODING, description="Decoding of requests that do not choose, as `NAME` or `NAME:option=value,…`."
    )
    """It is a default, not a restriction; see [below](#naming-a-policy)."""
    pooling: PluginText | None = Field(
        None,
        description="Pooling, which makes embeddings of prompts, as `NAME` or `NAME:option=value,…`; "
        "default: the model's.",
    )
    """Without one in the model's folder, `last` for decoders and `mean` for encoders. See
    [embeddings](http-api.md#embeddings-and-scores)."""
    spec_draft: str | None = Field(
        None,
        min_length=1,
        description="Model that drafts for speculative decoding: a folder, hub name or short name.",
    )
    """See [speculative decoding](../explanation/speculation.md)."""
    spec_ngram: bool = Field(
        False, description="Draft without a model, from what followed the latest tokens earlier in the text."
    )
    spec_tokens: int | None = Field(
        None, gt=0, le=MAX_DRAFT, description="Most tokens to draft in a step; default: 5."
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto",
        description="Dtype to compute in; `auto`: the model's own if the device is fast at it, else "
        "`float32`.",
    )
    """A CPU is fast at `bfloat16` if it has AVX512-BF16."""
    cpu_kernels: Literal["auto", "native", "torch"] = Field(
        "auto",
        description="Kernels on a CPU in `float32` or `bfloat16`: `native`, shipped or compiled by the first "
        "start, or `torch`, PyTorch's own operators; `auto`: `native`, if they can be had and are not "
        "slower.",
    )
    """Compiling [`native`](../explanation/performance-cpu.md) takes
    a few seconds; the result is kept in the user's cache folder (`$XDG_CACHE_HOME` or `~/.cache`). The
    compiler is `$CXX`, `c++`, `g++` or `clang++`; start-up says why `auto` chose `torch`. The
    first start with a shape of layers measures which are faster, for about 0.3 seconds, and keeps the
    result. Of the variants for AVX2, AVX-VNNI, AVX-512, its bfloat16 and AMX, the best that the machine
    runs is taken, or the one that `TURNOUT_CPU_VARIANT` names; `turnout doctor` tells them and tests the
    kernels."""
    cpu_engines: int = Field(
        1,
        gt=0,
        le=MAX_COUNT,
        description="Engines that share this machine's cores, or its quota of them: each computes with its "
        "part of the threads.",
    )
    """Set it for replicas that you start beside each other. The two engines of `--ab` divide the cores by
    themselves. Where `OMP_NUM_THREADS` is set, it decides. Start-up says how many threads an engine has."""
    cpu_engine: int | None = Field(
        None,
        ge=0,
        description="The engine's number among those, from 0: it keeps to the cores and memory of its part "
        "of the machine's NUMA nodes.",
    )
    """A server numbers its replicas by itself. An engine without a number computes on all nodes."""
    cpu_share: float | None = Field(
        None,
        gt=0,
        le=1,
        description="Share of this machine's cores, or of its quota of them, that the engine computes with; "
        "default: an equal part (`--cpu-engines`).",
    )
    """Replicas divide it. Of several models, those without one divide what the others leave; where none has
    one, those that generate divide all cores beside the others. Shares may exceed the whole: engines then
    take turns, as `--nice` has it. See [chat beside embeddings](../how-to/rag.md#chat-beside-embeddings)."""
    nice: int | None = Field(
        None,
        ge=0,
        le=19,
        description="How far the engine gives way to other processes on its cores, as `nice` has it; "
        "default: 0, and 10 for a model that generates nothing beside others.",
    )
    """Beside others: it has only a part of the cores, by `--cpu-share` or `--cpu-engines`."""
    tensor_parallel_size: int = Field(
        1,
        gt=0,
        le=64,
        description="Ranks that divide every layer of the model between them, a process each.",
    )
    """`-tp` is a short form. So far ranks are processes of one CPU machine. See
    [one engine on several devices](../how-to/several-devices.md)."""
    pipeline_parallel_size: int = Field(
        1,
        gt=0,
        le=64,
        description="Stages that the layers of the model are divided into, each with ranks of its own.",
    )
    """`-pp` is a short form. With `-tp`, each stage has as many ranks as that says."""
    pipeline_layers: str | None = Field(
        None,
        pattern=r"^\d{1,5}(,\d{1,5})*$",
        description="Layers of each stage, such as `13,11`; default: about as many parameters each.",
    )
    """The first stage has the embedding, the last one the head. vLLM has `VLLM_PP_LAYER_PARTITION`."""
    rank_workers: str | None = Field(
        None,
        pattern=r"^tcp://[^\s,]+:\d{1,5}(,tcp://[^\s,]+:\d{1,5})*$",
        description="Machines that take ranks beside this one, as many each: where `turnout worker --ranks` "
        "listens, such as `tcp://10.0.0.2:7000,tcp://10.0.0.3:7000`.",
    )
    """See [ranks on several machines](../how-to/several-devices.md#several-machines)."""
    rank_key_file: PathText | None = Field(
        None, description="File of the keys that `--rank-workers` have; `turnout worker --ranks` makes one."
    )
    enable_expert_parallel: bool = Field(
        False,
        description="Give each tensor parallel rank some experts whole, instead of a part of every expert.",
    )
    """`-ep` is a short form. Attention and other MLPs are divided as with `-tp` alone."""
    gpu_kernels: Literal["auto", "triton", "torch"] = Field(
        "auto",
        description="Kernels for norms, gates and rotations on a GPU: `triton`, which are fused, or `torch`, "
        "PyTorch's own operators; `auto`: `triton` if it is installed.",
    )
    """See [fused kernels](../how-to/use-a-gpu.md). On a CPU, `triton` needs Triton's interpreter
    (`TRITON_INTERPRET=1`), which is for tests."""
    device: str = Field("auto", description="`cpu`, `cuda` or `cuda:N`; `auto`: a GPU if PyTorch sees one.")
    enforce_eager: bool = Field(
        False,
        description="On a GPU, launch every step kernel by kernel instead of replaying captured graphs.",
    )
    """See [graphs](../how-to/use-a-gpu.md#graphs)."""
    async_scheduling: bool | None = Field(
        None,
        description="Hand the next step to the device before this one's tokens are known; default: on a GPU.",
    )
    """See [steps that overlap](../how-to/use-a-gpu.md#steps-that-overlap)."""
    max_model_len: int | None = Field(
        None,
        gt=0,
        le=MAX_COUNT,
        description="Most tokens of prompt and output together; default: the model's own limit.",
    )
    """It cannot exceed the model's own limit."""
    max_num_seqs: int = Field(256, gt=0, le=MAX_COUNT, description="Sequences that run at once.")
    """A request with `n` choices counts `n` times."""
    max_num_batched_tokens: int | None = Field(
        None,
        gt=0,
        le=MAX_COUNT,
        description="Most tokens computed in a step, over all requests; default: 512 on CPU, 8192 on a GPU.",
    )
    """Longer prompts are computed in chunks."""
    max_num_pooled_tokens: int | None = Field(
        None,
        gt=0,
        le=MAX_COUNT,
        description="Most tokens of embeddings and scores computed in a step while other requests generate; "
        "default: 4 on CPU, 64 on a GPU.",
    )
    """More: embeddings come sooner, and every token that is generated later. See
    [chat beside embeddings](../how-to/rag.md#chat-beside-embeddings)."""
    max_waiting: int = Field(
        limits.WAITING.whole,
        gt=0,
        le=MAX_COUNT,
        description="Most requests that wait; more are refused with status 503.",
    )
    """The server holds at most `--max-waiting` and `--max-num-seqs` requests together, also while the engine
    hangs or restarts."""
    kv_memory: ByteSize | None = Field(
        None, description="Size of the KV pool, such as 2GiB; default: fitted to the device's free memory."
    )
    """On a CPU the default is 4 GiB, but at most half of the free memory; on a GPU, what
    `--gpu-memory-utilization` leaves. It is never more than `--max-num-seqs` requests of full length need."""
    gpu_memory_utilization: float = Field(
        0.9, gt=0, le=1, description="Share of the GPU's memory to use if `--kv-memory` is not given."
    )
    """The share holds everything, weights included."""
    memory_share: float = Field(
        1.0,
        gt=0,
        le=1,
        description="Share of the default KV and swap memory that this engine takes, for several engines on "
        "one machine.",
    )
    """[Two arms](../how-to/serve.md#serve-two-configurations-at-once) have half of it each. Sizes that are
    given are taken whole."""
    kv_eviction: PluginText | None = Field(
        None,
        description="Policy that chooses which cached prefixes to evict first, for backends that cache some, "
        f"as `NAME` or `NAME:option=value,…`; default: `{KV_EVICTION}`.",
    )
    """Backends that cache nothing refuse it."""
    swap_memory: SizeOrZero | None = Field(
        None,
        description="Host memory to which preempted requests are swapped out, such as 4GiB; 0: none; "
        "default: 4GiB for a GPU, none on CPU.",
    )
    """On a GPU the default is at most half of the free host memory. On a CPU the KV pool is host memory
    already."""
    preemption: Literal["auto", "recompute", "swap"] = Field(
        "auto",
        description="What happens to a preempted request's KV memory: `recompute` computes it again, "
        "`swap` moves it to `--swap-memory`, `auto` does what takes less time.",
    )
    """`swap` recomputes what swap memory has no room for. `auto` compares costs that are measured at
    start-up; without swap memory it is `recompute`."""
    block_size: int | None = Field(
        None,
        gt=0,
        le=MAX_COUNT,
        description="Tokens in a KV block, for backends that have blocks; default: the backend's own.",
    )
    """The same as the backend's option `block_size`. Backends without blocks refuse it."""
    kv_cache_dtype: str | None = Field(
        None,
        description="Dtype in which keys and values are stored, such as `int8`; default: the backend's own.",
    )
    """The same as the backend's option `dtype`; see [quantized KV](../explanation/quantized-kv.md)."""
    format: str | None = Field(
        None,
        description="Format in which the model writes reasoning and tool calls; default: found by the chat "
        "template.",
    )
    """See [tools](../how-to/tools.md)."""
    chat_template: PathText | None = Field(
        None, description="Chat template: a file, or the template itself; default: the checkpoint's own."
    )
    """A value with `{{`, `{%` or a line break is the template itself."""
    observer: PluginSpecs = Field(
        (),
        description="Observer, which watches the engine, as `NAME` or `NAME:option=value,…`; repeat the flag "
        "for several.",
    )
    """Hooks that observe are called without it. A config file may have a list."""
    logits_processor: PluginSpecs = Field(
        (),
        description="Options of a logits processor, as `NAME:option=value,…`; repeat the flag for several.",
    )
    """All installed processors are active anyway, those that are not named here with their defaults. A config
    file may have a list."""
    plugins_folder: PathText | None = Field(
        None,
        description="Folder whose `turnout_plugins.py` is loaded as a plugin; default: the config file's "
        "folder.",
    )
    disable_plugin: PluginNames = Field(
        (),
        description="Plugin not to load, by its own or its package's name; separate several by "
        "commas, or repeat the flag.",
    )
    """Its own name is that of its entry point or file. A config file may have a list. The environment
    variable `TURNOUT_DISABLE_PLUGINS` names more. Built-in plugins cannot be disabled."""
    strict_plugins: bool = Field(
        False, description="Fail if a plugin cannot be loaded, or if a policy is at fault at run time."
    )
    """Plugins that are not used count too. A scheduling policy's fault stops the engine.
    `--no-strict-plugins` overrides a file."""

    @property
    def ranks(self) -> int:
        """The processes that compute a step together."""
        return self.tensor_parallel_size * self.pipeline_parallel_size

    @property
    def rank_addresses(self) -> tuple[str, ...]:
        """`rank_workers`, one by one."""
        return tuple(self.rank_workers.split(",")) if self.rank_workers else ()

    @property
    def stage_layers(self) -> tuple[int, ...]:
        """`pipeline_layers` as numbers; empty: not given."""
        return tuple(map(int, self.pipeline_layers.split(","))) if self.pipeline_layers else ()

    @property
    def plugins_path(self) -> Path | None:
        return Path(self.plugins_folder) if self.plugins_folder else None
