"""`turnout doctor` tells what the machine has, and finds kernels that compute something else."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner

from turnout.cli.main import cli
from turnout.kernels import self_test
from turnout.kernels.self_test import Check
from turnout.kernels.variants import VARIABLE, usable_variants

pytestmark = pytest.mark.usefixtures("fresh_kernels")


def doctor() -> tuple[int, str]:
    result = CliRunner().invoke(cli, ["doctor"])
    return result.exit_code, result.output


def test_a_healthy_machine() -> None:
    status, output = doctor()
    assert status == 0
    assert "chosen: the best that runs here" in output
    assert re.search(r"attention, bfloat16 +right", output)
    assert "WRONG" not in output


def test_a_named_variant(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that there would be anyhow, which has been compiled. Of others, nothing is said."""
    named = usable_variants()[0].name
    monkeypatch.setenv(VARIABLE, named)
    _, output = doctor()
    assert re.search(rf"{named} +named by {VARIABLE}", output)
    assert "this CPU has no" not in output
    assert "does not know its flags" not in output


def test_a_kernel_that_computes_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = [Check("linear, float32", 0.0, 1e-5), Check("norm, float32", 0.25, 1e-5)]
    monkeypatch.setattr(self_test, "self_test", lambda kernels, dequantized: checks)
    status, output = doctor()
    assert status == 1
    assert "linear, float32  right" in output
    assert "norm, float32    WRONG: off by 2.5e-01 of the largest number" in output
    assert "serve with --cpu-kernels torch" in output


def test_a_machine_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    status, output = doctor()
    assert status == 0
    assert "none, PyTorch's operators serve: there is no C++ compiler (no-such-compiler)" in output
