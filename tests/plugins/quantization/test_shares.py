"""What ranks build of a layer that is stored quantized computes together what the whole one does."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from layouts import CASES, DYNAMIC, adopter, compressed
from torch import Tensor, nn
from writers import int8_channels, pack_quantized

from turnout.core.errors import ConfigError
from turnout.core.interfaces.compute import ComputeContext
from turnout.core.interfaces.layer_share import LayerShare
from turnout.kernels import choose_kernels
from turnout.models.decoder.packed import layer_capabilities

CONTEXT = ComputeContext(torch.device("cpu"), torch.float32)
WIDTH, OUTPUTS = 256, 160
INPUTS, EVERY = [range(128), range(128, 256)], range(OUTPUTS)


class Rank:
    """What a share asks of a collective."""

    def __init__(self, rank: int) -> None:
        self.rank, self.size = rank, 2


def share(outputs: range, inputs: range, rank: int) -> LayerShare:
    return LayerShare("down_proj", outputs, inputs, (OUTPUTS, WIDTH), Rank(rank))  # type: ignore[arg-type]


def computed(layer: nn.Module, x: Tensor, whole: Tensor) -> Tensor:
    scaled = layer_capabilities(layer).scaled
    return layer(x) if scaled is None else scaled(x, whole.abs().amax(1))


@pytest.mark.parametrize("computed_by", ["native", "torch"])
@pytest.mark.parametrize("case", [each for each in CASES if "desc_act" not in each])
def test_shares_compute_what_the_whole_does(case: str, computed_by: str, linear) -> None:
    config, write, _ = CASES[case]
    context = CONTEXT
    if computed_by == "native":
        context = replace(CONTEXT, kernels=choose_kernels("auto", CONTEXT.device, torch.float32).kernels)
    layer = linear(WIDTH, OUTPUTS, bias=True)
    tensors = {**write(layer.weight).tensors, "bias": layer.bias}
    like = nn.Linear(WIDTH, OUTPUTS, device="meta")

    def of(part: LayerShare) -> nn.Module:
        return adopter(config).adopt("down_proj", dict(tensors), like, replace(context, share=part))

    x = torch.randn(5, WIDTH, generator=torch.Generator().manual_seed(3))
    whole = adopter(config).adopt("down_proj", dict(tensors), like, context)(x)
    summed = sum(
        computed(of(share(EVERY, inputs, rank)), x[:, inputs.start : inputs.stop], x)
        for rank, inputs in enumerate(INPUTS)
    )
    sixteen_bits = computed_by == "torch" and ("A16" in case or "awq" in case or "gptq" in case)
    # PyTorch's own kernels of few bits put out bfloat16, of which ranks add up two.
    bound = (2e-2 if sixteen_bits else 2e-6) * float(whole.abs().max())
    assert float((summed - whole).abs().max()) <= bound
    halves = [of(share(rows, range(WIDTH), 0))(x) for rows in (range(80), range(80, 160))]
    assert float((torch.cat(halves, 1) - whole).abs().max()) <= bound


def test_outputs_behind_the_last_are_zeros(linear) -> None:
    """Of a vocabulary that ranks do not divide evenly."""
    tensors = int8_channels(linear(WIDTH, OUTPUTS).weight).tensors
    like = nn.Linear(WIDTH, OUTPUTS, bias=False, device="meta")
    context = replace(CONTEXT, share=share(range(96, 192), range(WIDTH), 1))
    adopted = adopter(compressed(DYNAMIC)).adopt("lm_head", tensors, like, context)
    out = adopted(torch.randn(2, WIDTH))
    assert out.shape == (2, 96)
    assert not out[:, 64:].any()
    assert out[:, :64].all()


@pytest.mark.parametrize(
    ("config", "write", "inputs", "message"),
    [
        (*CASES["gptq desc_act"][:2], INPUTS[0], "inputs from anywhere"),
        (
            *CASES["W4A16"][:2],
            range(80),
            "a scale for each 32 inputs, and a rank would have 160 outputs of 80",
        ),
    ],
)
def test_what_cannot_be_cut_is_refused_with_the_numbers(config, write, inputs, message, linear) -> None:
    tensors = write(linear(WIDTH, OUTPUTS).weight).tensors
    like = nn.Linear(WIDTH, OUTPUTS, bias=False, device="meta")
    context = replace(CONTEXT, share=share(EVERY, inputs, 0))
    with pytest.raises(ConfigError, match=f"tensor_parallel_size=2 cannot divide down_proj: .*{message}"):
        adopter(config).adopt("down_proj", tensors, like, context)


def test_groups_that_ranks_cut_apart_keep_their_scales(linear) -> None:
    config = compressed(num_bits=4, strategy="group", group_size=128)
    tensors = pack_quantized(linear(WIDTH, OUTPUTS).weight, group=128).tensors
    like, x = nn.Linear(WIDTH, OUTPUTS, bias=False, device="meta"), torch.randn(3, WIDTH)
    kernels = choose_kernels("auto", CONTEXT.device, torch.float32).kernels
    context = replace(CONTEXT, kernels=kernels)
    whole = adopter(config).adopt("x", dict(tensors), like, context)(x)
    summed = torch.zeros_like(whole)
    for rank, inputs in enumerate((range(64), range(64, 256))):
        given = replace(context, share=share(EVERY, inputs, rank))
        layer = adopter(config).adopt("x", dict(tensors), like, given)
        summed += computed(layer, x[:, inputs.start : inputs.stop], x)
    torch.testing.assert_close(summed, whole, atol=2e-5, rtol=1e-5)
