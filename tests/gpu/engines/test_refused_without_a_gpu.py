"""Where Triton's kernels cannot run, they are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from turnout.config import EngineConfig
from turnout.core.errors import ConfigError
from turnout.runner.assembly import build_engine


def build(model: Path, **options: Any) -> None:
    build_engine(EngineConfig(model=str(model), device="cpu", max_model_len=64, **options))


def test_reading_prefixes_once_is_refused_without_these_kernels(random_model: Path) -> None:
    with pytest.raises(ConfigError, match="paged:cascade is an option of Triton's kernels"):
        build(random_model, kv="paged:attention=torch,cascade=8")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_they_are_refused(random_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET")
    with pytest.raises(ConfigError, match="attention=triton needs a GPU; use torch on a CPU"):
        build(random_model, kv="paged:attention=triton")
    with pytest.raises(ConfigError, match="gpu_kernels=triton on device cpu: they need a GPU; leave it out"):
        build(random_model, kv="paged", gpu_kernels="triton")
