"""The schemes of bitsandbytes: what they compute where it is installed, and what is said where it is not."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import torch
from exactness import exact, relative_error

from turnout.core.errors import ConfigError
from turnout.core.interfaces.compute import ComputeContext
from turnout.core.interfaces.quantization import Quantizer
from turnout.core.registry.registry import Registry
from turnout.runner.memory.budget import weight_bytes

REGISTRY = Registry.load()
BOUNDS = {"bnb-int8": 0.025, "bnb-nf4": 0.19, "bnb-fp4": 0.27}
BITS = {"bnb-int8": 8, "bnb-nf4": 4, "bnb-fp4": 4}
installed = pytest.mark.skipif(find_spec("bitsandbytes") is None, reason="bitsandbytes is not installed")

CONTEXT = ComputeContext(torch.device("cpu"), torch.float32)


def scheme(spec: str) -> Quantizer:
    return REGISTRY.create("quantization", spec)


@installed
@pytest.mark.parametrize("rows", [1, 5, 40])
@pytest.mark.parametrize("bias", [False, True], ids=["plain", "bias"])
@pytest.mark.parametrize("spec", BOUNDS)
def test_outputs_are_within_the_bound_of_float64(spec: str, bias: bool, rows: int, linear) -> None:
    layer = linear(bias=bias)
    x = torch.randn(rows, 256, generator=torch.Generator().manual_seed(1))
    expected = exact(layer, x)
    converted = scheme(spec).convert(layer, CONTEXT)
    for row, wanted in zip(converted(x), expected, strict=True):
        assert relative_error(row, wanted) < BOUNDS[spec]


@installed
@pytest.mark.parametrize("spec", BOUNDS)
def test_weights_take_the_bytes_they_should(spec: str, linear) -> None:
    layer = scheme(spec).convert(linear(1024, 512), CONTEXT)
    assert weight_bytes(layer) <= 1024 * 512 * BITS[spec] / 8 * 1.2


@installed
def test_weights_are_those_that_bitsandbytes_itself_decodes(linear) -> None:
    from bitsandbytes import functional

    layer = linear(256, 96)
    for levels in ("nf4", "fp4"):
        codes, state = functional.quantize_4bit(layer.weight, quant_type=levels, blocksize=64)
        expected = functional.dequantize_4bit(codes, state)
        converted = scheme(f"bnb-{levels}").convert(layer, CONTEXT)
        torch.testing.assert_close(converted(torch.eye(256)), expected.t())


@installed
def test_outliers_are_not_rounded(linear) -> None:
    """One activation of a thousand would leave the others of its token no bits, and counts for nothing."""
    layer, x = linear(), torch.randn(4, 256, generator=torch.Generator().manual_seed(1))
    x[:, 9] = 1000
    layer.weight[:, 9] = 0
    expected = exact(layer, x)
    assert relative_error(scheme("bnb-int8").convert(layer, CONTEXT)(x), expected) < 0.025
    assert relative_error(scheme("bnb-int8:threshold=0").convert(layer, CONTEXT)(x), expected) > 0.5


@installed
def test_a_token_s_outliers_are_its_own(linear) -> None:
    layer, x = scheme("bnb-int8").convert(linear(), CONTEXT), torch.randn(4, 256)
    alone = layer(x[:1])
    x[2, 9] = 1000
    torch.testing.assert_close(layer(x)[:1], alone)


@installed
def test_a_block_is_never_in_two_rows(linear) -> None:
    assert scheme("bnb-nf4").wants("up_proj", linear(128, 20))
    assert not scheme("bnb-nf4").wants("up_proj", linear(96, 20))
    assert not scheme("bnb-nf4:block_size=128").wants("up_proj", linear(64, 20))


@installed
@pytest.mark.parametrize("spec", BOUNDS)
def test_a_device_without_kernels_is_refused_by_name(spec: str) -> None:
    with pytest.raises(ConfigError, match=f"quantization '{spec}' has no kernels for meta"):
        scheme(spec).convert(torch.nn.Linear(64, 64, device="meta"), CONTEXT)


@installed
@pytest.mark.parametrize("spec", ["bnb-nf4:block_size=100", "bnb-int8:threshold=-1"])
def test_wrong_options_are_refused(spec: str) -> None:
    with pytest.raises(ConfigError, match=f"quantization '{spec.partition(':')[0]}'"):
        scheme(spec)


@pytest.mark.parametrize("spec", BOUNDS)
def test_a_missing_extra_is_said_in_one_line(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnout.plugins.quantization.schemes.bnb.find_spec", lambda name: None)
    with pytest.raises(
        ConfigError, match=r"needs bitsandbytes, which is not installed; pip install"
    ) as error:
        scheme(spec)
    assert "turnout[bnb]" in str(error.value) and "\n" not in str(error.value)
