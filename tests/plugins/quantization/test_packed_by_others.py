"""Layouts as the packages that write them pack them: read bit for bit."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from packers import CASES, GROUP, INPUTS, OUTPUTS
from safetensors.torch import load_file
from torch import Tensor, nn

from turnout.core.interfaces.compute import ComputeContext
from turnout.core.registry.registry import Registry
from turnout.plugins.quantization.formats.grouped_codes import GroupedCodes

HERE = Path(__file__).parent
PACKAGES = {case.package for case in CASES.values()}


def of_case(name: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    begin = f"{name}/"
    return {key.removeprefix(begin): value for key, value in tensors.items() if key.startswith(begin)}


@pytest.fixture(scope="module")
def golden() -> dict[str, Tensor]:
    return load_file(HERE / "packed_by_others.safetensors")


@pytest.fixture(scope="module")
def packed_now(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tensor]:
    """By what is installed, in a process of its own: some change what is imported beside them."""
    if not any(map(find_spec, PACKAGES)):
        return {}
    out = tmp_path_factory.mktemp("packed") / "now.safetensors"
    subprocess.run([sys.executable, HERE / "packers.py", out], check=True, capture_output=True)
    return load_file(out)


def read(name: str, tensors: dict[str, Tensor], monkeypatch: pytest.MonkeyPatch) -> GroupedCodes:
    """What an adopter makes of them before a layer is made of that."""
    config, like = CASES[name].config, nn.Linear(INPUTS, OUTPUTS, bias=False, device="meta")
    adopter = Registry.load().create("quantization", config["quant_method"]).adopter(config)
    monkeypatch.setattr(GroupedCodes, "layer", lambda self, *_: self)
    found = adopter.adopt("up_proj", tensors, like, ComputeContext(torch.device("cpu"), torch.float32))
    assert isinstance(found, GroupedCodes)
    return found


@pytest.mark.parametrize("name", CASES)
def test_codes_zero_points_and_scales_are_those_that_were_packed(
    name: str, golden: dict[str, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, grid = read(name, of_case(name, golden), monkeypatch), CASES[name].grid
    in_place = torch.arange(INPUTS) if found.order is None else found.order
    assert torch.equal(found.codes, grid.codes[:, in_place])
    assert torch.equal(found.zero, grid.zero.float())
    assert torch.equal(found.scale, grid.scale.float())
    assert torch.equal(grid.index[in_place], torch.arange(INPUTS, dtype=torch.int32) // GROUP)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_the_packages_still_pack_like_that(
    name: str, golden: dict[str, Tensor], packed_now: dict[str, Tensor]
) -> None:
    """Where they are installed: they are not needed for anything else."""
    now = of_case(name, packed_now)
    if not now:
        pytest.skip(f"{CASES[name].package} is not installed, or cannot be imported here")
    then = of_case(name, golden)
    assert now.keys() == then.keys()
    assert all(torch.equal(now[part], then[part]) for part in then)
