"""Native kernels that are clearly slower on a machine than PyTorch's operators are not chosen."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from turnout.config import EngineConfig
from turnout.core.registry.registry import Registry
from turnout.kernels import CpuKernels, choice, measured
from turnout.kernels.measured import LinearShape, native_slowdown
from turnout.runner import compute_setup
from turnout.runner.checkpoint import open_checkpoint
from turnout.runner.compute_setup import ComputeSetup

SHAPES = (LinearShape(64, 96), LinearShape(32, 64))


@pytest.fixture
def kernels(variant_kernels: CpuKernels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CpuKernels:
    """Kernels whose results are kept in a folder of the test's own."""
    monkeypatch.setattr(variant_kernels, "built", variant_kernels.built._replace(notes=tmp_path))
    return variant_kernels


@pytest.fixture
def measurements(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float | None]]:
    """What the next measurements find."""
    found: list[float | None] = []
    monkeypatch.setattr(measured, "_measured", lambda *_: found.pop(0))
    yield found
    assert not found


def test_a_measurement_compares_the_two(kernels: CpuKernels) -> None:
    assert 0 < native_slowdown(kernels, SHAPES, torch.float32) < float("inf")


def test_a_shape_is_measured_once(kernels: CpuKernels, measurements: list[float | None]) -> None:
    measurements += [0.5, 3.0]
    assert [native_slowdown(kernels, SHAPES, torch.float32) for _ in range(2)] == [0.5, 0.5]
    assert [native_slowdown(kernels, SHAPES, torch.bfloat16) for _ in range(2)] == [3.0, 3.0]


def test_on_a_busy_machine_native_kernels_stay_and_the_next_start_measures(
    kernels: CpuKernels, measurements: list[float | None]
) -> None:
    measurements += [None, 3.0]
    assert [native_slowdown(kernels, SHAPES, torch.float32) for _ in range(3)] == [1.0, 3.0, 3.0]


def test_turns_in_which_others_had_the_cores_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a thread that waits for its core, others say how long it takes."""
    clock, waited = iter(range(1000)), iter([0.0, 0.06, 0.06, 0.1, 0.1, 0.1, 0.1, 0.1])
    monkeypatch.setattr(measured.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(measured.time, "perf_counter", lambda: float(next(clock)))
    monkeypatch.setattr(measured, "_waited", lambda: next(waited))
    taken = list[None]()
    assert measured._best(lambda: taken.append(None), 1000.0) == 1.0
    assert len(taken) == 1 + 1 + measured.TURNS, "to warm up, and the first turn was disturbed"
    monkeypatch.setattr(measured, "_waited", lambda: float(next(clock)))
    assert measured._ratio(lambda: None, lambda: None, 900.0) is None


@pytest.mark.parametrize("damaged", ["{", "[]", '{"shape": null}'])
def test_a_damaged_file_is_measured_anew(
    kernels: CpuKernels, measurements: list[float | None], tmp_path: Path, damaged: str
) -> None:
    measurements += [0.5]
    (tmp_path / "measured.json").write_text(damaged)
    assert native_slowdown(kernels, SHAPES, torch.float32) == 0.5


def test_a_folder_that_cannot_be_written_costs_only_another_measurement(
    kernels: CpuKernels, measurements: list[float | None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measurements += [0.5, 0.6]
    (tmp_path / "file").touch()
    monkeypatch.setattr(kernels, "built", kernels.built._replace(notes=tmp_path / "file" / "notes"))
    assert [native_slowdown(kernels, SHAPES, torch.float32) for _ in range(2)] == [0.5, 0.6]


def test_a_disk_that_fills_up_keeps_no_part_of_a_file(
    kernels: CpuKernels, measurements: list[float | None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half_written(path: Path, text: str) -> None:
        with path.open("w") as file:
            file.write(text[: len(text) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", half_written)
    measurements += [0.5]
    assert native_slowdown(kernels, SHAPES, torch.float32) == 0.5
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("slowdown", "options", "note"),
    [
        (0.4, {}, "CPU kernels native, "),
        (1.2, {}, "CPU kernels native, "),
        (2.2, {}, "CPU kernels torch: native ones ("),
        (2.2, {"cpu_kernels": "native"}, "CPU kernels native, "),
        (2.2, {"quantization": "int8"}, "CPU kernels native, "),
    ],
)
def test_an_engine_takes_the_faster(
    monkeypatch: pytest.MonkeyPatch, slowdown: float, options: dict[str, str], note: str
) -> None:
    if isinstance(choice._kernels(), Exception):
        pytest.skip("there is no compiler")
    monkeypatch.setattr(compute_setup, "native_slowdown", lambda *_: slowdown)
    config = EngineConfig(model="turnout-tiny", device="cpu", dtype="float32", **options)
    setup = ComputeSetup.chosen(config, open_checkpoint(Registry.load(), config.model).spec)
    assert setup.kernels_note.startswith(note)
    if "torch" in note:
        assert "took 2.2 times as long" in setup.kernels_note
        assert setup.context.kernels is None


def test_each_takes_its_turns_behind_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """In turns, PyTorch's threads would wait actively on the cores that native threads need."""
    taken = list[str]()
    monkeypatch.setattr(measured, "_waited", lambda: 0.0)
    monkeypatch.setattr(measured.time, "sleep", lambda seconds: taken.append("rest"))
    measured._ratio(lambda: taken.append("native"), lambda: taken.append("plain"), float("inf"))
    assert taken == ["rest", *["native"] * (1 + measured.TURNS), "rest", *["plain"] * (1 + measured.TURNS)]
