"""The best variant that a machine can run is taken, and one that is named is taken or refused."""

from __future__ import annotations

import pytest
import torch

from turnout.kernels import choose_kernels, variants
from turnout.kernels.variants import VARIABLE, VARIANTS, VariantError, cpu_features, usable_variants

CPU = torch.device("cpu")
ZEN_2 = {"avx2", "fma", "f16c", "bmi1", "bmi2"}
ALDER_LAKE = ZEN_2 | {"avx_vnni"}
SKYLAKE = ZEN_2 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
ZEN_4 = SKYLAKE | {"avx512_vnni", "avx512_vbmi2", "avx512_bf16"}
SAPPHIRE_RAPIDS = ZEN_4 | {"amx_tile", "amx_bf16", "amx_int8"}


def machine(monkeypatch: pytest.MonkeyPatch, features: set[str], tiles: bool = False) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(variants, "cpu_features", lambda: frozenset(features))
    monkeypatch.setattr(variants, "_tiles_permitted", lambda: tiles)


@pytest.mark.parametrize(
    ("features", "tiles", "best"),
    [
        (SAPPHIRE_RAPIDS, True, "amx"),
        (SAPPHIRE_RAPIDS, False, "avx512-bf16"),
        (ZEN_4, False, "avx512-bf16"),
        (SKYLAKE | {"avx512_vnni"}, False, "avx512-vnni"),
        (SKYLAKE, False, "avx512"),
        (ALDER_LAKE, False, "avx2-vnni"),
        (ZEN_2, False, "avx2"),
        (set(), False, "native"),
    ],
)
def test_the_best_that_cpu_and_system_allow_comes_first(
    monkeypatch: pytest.MonkeyPatch, features: set[str], tiles: bool, best: str
) -> None:
    machine(monkeypatch, features, tiles)
    names = [variant.name for variant in usable_variants()]
    assert names[0] == best
    assert names[-1] == "native"
    assert "amx-emulated" not in names


def test_a_named_variant_is_the_only_one(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, ZEN_4)
    monkeypatch.setenv(VARIABLE, "avx2")
    assert [variant.name for variant in usable_variants()] == ["avx2"]


@pytest.mark.usefixtures("fresh_kernels")
@pytest.mark.parametrize(
    ("features", "name", "why"),
    [
        (ZEN_4, "sse", "there is no such variant; there are amx, avx512-bf16, "),
        (ZEN_4, "amx", "this CPU has no amx_bf16, amx_int8, amx_tile; without it the best one is taken"),
        (SAPPHIRE_RAPIDS, "amx", "the system gives no permission to use tiles"),
    ],
)
def test_a_named_variant_that_cannot_be_had_is_refused(
    monkeypatch: pytest.MonkeyPatch, features: set[str], name: str, why: str
) -> None:
    machine(monkeypatch, features)
    monkeypatch.setenv(VARIABLE, name)
    with pytest.raises(VariantError, match=f"{VARIABLE}={name}: {why}"):
        usable_variants()
    assert why in choose_kernels("auto", CPU, torch.float32).note


def test_an_older_compiler_gets_a_variant_that_it_knows(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    """A compiler that does not know the flags for bfloat16 compiles for what it knows."""
    from turnout.kernels import build

    asked: list[list[str]] = []

    def call(command: list[str]) -> str:
        asked.append(command)
        if "-mavx512bf16" in command:
            raise build.BuildError("c++ failed: error: unrecognized option '-mavx512bf16'")
        return ""

    machine(monkeypatch, ZEN_4)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(build, "_call", call)
    monkeypatch.setattr(build, "_compile", lambda compiler, variant, library: library.write_text(""))
    assert build.built_library().variant == "avx512-vnni"


def test_this_machine_can_run_some_variant() -> None:
    assert cpu_features() >= next(iter(usable_variants())).needs
    assert len({variant.name for variant in VARIANTS}) == len(VARIANTS)
