"""Quantized, a model that ranks share computes what it computes quantized whole."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import ranks_in_threads
import torch
from family_checkpoints import write_checkpoint
from ranks_in_threads import CONTEXT, assert_as_on_one_device, logits_of, on_grid, on_ranks
from torch import nn

from turnout.core.errors import ConfigError
from turnout.core.interfaces.compute import ComputeContext
from turnout.core.interfaces.quantization import Quantizer
from turnout.core.meeting import Meeting
from turnout.core.registry.registry import Registry
from turnout.kernels.choice import native_kernels
from turnout.kernels.collectives.shm import SharedMemory
from turnout.runner.checkpoint import open_checkpoint

WIDE = {"head_dim": 32, "intermediate_size": 256}
"""Of 128 outputs of heads, two ranks cut through a group of int4wo; of 256 of MLPs, they do not."""


def shared(folder, quantization):
    """By native kernels, over memory that ranks share."""
    meeting = Meeting.on_this_machine()

    def of_rank(rank):
        with torch.inference_mode():
            return logits_of(folder, SharedMemory(meeting, rank, 2), quantization)

    with ThreadPoolExecutor(2) as pool:
        together, _ = pool.map(of_rank, range(2))
    meeting.close()
    return together


@pytest.mark.parametrize(
    ("name", "quantization"),
    [
        ("mistral", "int8"),
        *(
            pytest.param(name, quantization, marks=pytest.mark.slow)
            for name in ("mistral", "mixtral")
            for quantization in ("int8", "int8wo", "int4wo", "fp8wo", "int8:lm_head=true,embeddings=true")
            if (name, quantization) != ("mistral", "int8")
        ),
    ],
)
def test_native_ranks_compute_what_one_device_does(name, quantization, tmp_path, monkeypatch):
    """Scales of weights are those of whole rows; so are those of activations, of dense layers and experts.

    Dense layers of `int8` add up integers, and differ in no bit. What else rounds activations differs by that
    rounding, which any difference before it sets off.
    """
    try:
        kernels = native_kernels()
    except ConfigError as error:
        pytest.skip(str(error))
    write_checkpoint(name, tmp_path, **WIDE)
    monkeypatch.setattr(ranks_in_threads, "CONTEXT", ComputeContext(CONTEXT.device, CONTEXT.dtype, kernels))
    alone, together = logits_of(tmp_path, quantization=quantization), shared(tmp_path, quantization)
    if name == "mistral" and quantization.partition(":")[0] == "int8":
        assert torch.equal(together, alone)
        return
    within = 1e-3 if quantization in ("int8wo", "int4wo") else 1e-5
    assert_as_on_one_device(together, alone, within, codes=quantization.partition(":")[0] == "int8")


EXACT = [
    *("qwen3", "qwen3-biased", "qwen2-windows", "mistral-window", "ministral", "gemma2"),
    *("gemma3", "gpt2", "phi3", "phi4-mini", "granite", "smollm3"),
]
"""Families all of whose layers with split inputs are linear, and not experts."""


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    "name",
    [pytest.param(each, marks=() if each in ("gpt2", "qwen3") else pytest.mark.slow) for each in EXACT],
)
def test_ranks_of_dense_models_in_int8_compute_the_bits_of_one_device(name, dtype, tmp_path, monkeypatch):
    """Over any collective, in any dtype, with biases."""
    try:
        kernels = native_kernels()
    except ConfigError as error:
        pytest.skip(str(error))
    write_checkpoint(name, tmp_path)
    monkeypatch.setattr(ranks_in_threads, "CONTEXT", ComputeContext(CONTEXT.device, dtype, kernels))
    alone = logits_of(tmp_path, quantization="int8")
    assert alone.any()
    together, *_ = on_ranks(2, lambda collective: logits_of(tmp_path, collective, "int8"))
    assert torch.equal(together, alone)


@pytest.mark.slow
@pytest.mark.parametrize("quantization", ["int8", "int8wo", "int4wo", "fp8wo"])
@pytest.mark.parametrize(("parts", "stages"), [(1, 2), (2, 1), (2, 2)])
def test_stages_and_whole_experts_compute_it_too(quantization, parts, stages, tmp_path, monkeypatch):
    try:
        kernels = native_kernels()
    except ConfigError as error:
        pytest.skip(str(error))
    write_checkpoint("mixtral", tmp_path, **WIDE)
    monkeypatch.setattr(ranks_in_threads, "CONTEXT", ComputeContext(CONTEXT.device, CONTEXT.dtype, kernels))

    def of_rank(part, line):
        line = line if stages > 1 else None
        return logits_of(tmp_path, part, quantization, line, whole_experts=parts > 1)

    alone = logits_of(tmp_path, quantization=quantization)
    together, *_ = on_grid(parts, stages, of_rank)
    if parts == 1:
        assert torch.equal(together, alone)
        return
    within = 1e-3 if quantization in ("int8wo", "int4wo") else 1e-5
    assert_as_on_one_device(together, alone, within, codes=quantization == "int8")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mistral", "mixtral"])
@pytest.mark.parametrize("quantization", ["int8", "fp8wo"])
def test_torch_computes_it_too(name, quantization, tmp_path):
    write_checkpoint(name, tmp_path, **WIDE)
    alone = logits_of(tmp_path, quantization=quantization)
    together, *_ = on_ranks(2, lambda collective: logits_of(tmp_path, collective, quantization))
    assert_as_on_one_device(together, alone, 1e-5, codes=quantization == "int8")


class Rounded(Quantizer):
    """A third party's, which knows nothing of ranks."""

    def wants(self, name, linear):
        return True

    def convert(self, linear, context):
        return nn.Linear(linear.in_features, linear.out_features, linear.bias is not None)


def test_a_quantizer_that_knows_nothing_of_ranks_is_refused_by_name(tmp_path, monkeypatch):
    write_checkpoint("mistral", tmp_path)
    create = Registry.create
    monkeypatch.setattr(
        Registry,
        "create",
        lambda self, kind, spec: Rounded() if kind == "quantization" else create(self, kind, spec),
    )
    with pytest.raises(
        ConfigError, match=r"Rounded.* cannot quantize layers that ranks divide, such as model"
    ):
        on_ranks(2, lambda collective: logits_of(tmp_path, collective, "rounded"))


def test_blocks_that_ranks_cut_through_are_refused(tmp_path):
    """MXFP4 of experts in blocks of 32 inputs, of which a rank would have 24."""
    write_checkpoint("gpt-oss-mxfp4", tmp_path)
    assert open_checkpoint(Registry.load(), str(tmp_path)).quantization
    try:
        kernels = native_kernels()
    except ConfigError as error:
        pytest.skip(str(error))
    ranks = ComputeContext(CONTEXT.device, CONTEXT.dtype, kernels)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranks_in_threads, "CONTEXT", ranks)
        with pytest.raises(ConfigError, match="stored in blocks of 32 inputs"):
            on_ranks(4, lambda collective: logits_of(tmp_path, collective))
