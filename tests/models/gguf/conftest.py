"""GGUF files of tiny models, and where their configurations and tokenizers go."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from gguf_files import write_gguf

from turnout.core.errors import ConfigError
from turnout.kernels.choice import native_kernels
from turnout.kernels.compiled import CpuKernels
from turnout.models.random.random_weights import write_random_checkpoint
from turnout.models.random.shapes import Shape, config_of


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def kernels() -> CpuKernels:
    """Of the module, so that they are there before each test has a cache of its own."""
    try:
        return native_kernels()
    except ConfigError as error:
        pytest.skip(str(error))


@pytest.fixture
def gguf_file(tmp_path: Path) -> Callable[..., Path]:
    """gguf_file(kind, family, rope, **sizes): a file with random weights, and beside it, widened.

    changes: as of `write_gguf`.
    """

    def write(
        kind: str = "Q8_0",
        family: str = "llama",
        rope: str = "default",
        changes: Mapping[str, Any] | None = None,
        **sizes: Any,
    ) -> Path:
        given = {"hidden": 64, "layers": 2, "heads": 4, "kv_heads": 2, "intermediate": 96, "vocab": 160}
        shape = Shape(**{**given, "max_positions": 64, "theta": 10_000.0, **sizes})
        folder = tmp_path / "source"
        write_random_checkpoint(folder, config_of(shape, family, rope=rope, dtype="float32"))
        file = tmp_path / f"model-{kind}.gguf"
        return write_gguf(folder, file, kind, widened=tmp_path / "widened", changes=changes)

    return write
