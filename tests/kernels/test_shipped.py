"""A library that was compiled elsewhere is taken if it fits, and else refused with the reason."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

from turnout.cli.main import cli
from turnout.kernels import build, choose_kernels, cpu_kernels, shipped
from turnout.kernels.build import BuildError, build_for_shipping, built_library, compiled_library
from turnout.kernels.measured import LinearShape, native_slowdown
from turnout.kernels.shipped import VARIABLE, library_name
from turnout.kernels.variants import usable_variants

CPU = torch.device("cpu")
BEST = next(iter(usable_variants()))
has_compiler = pytest.mark.skipif(
    not BEST.ships or not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="nothing to compile with"
)


@pytest.fixture(
    scope="module", params=["compiled before", pytest.param("compiled to ship", marks=pytest.mark.slow)]
)
def libraries(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The best variant: as this machine has it, or compiled, which takes long even without optimizing."""
    folder = tmp_path_factory.mktemp("libraries")
    compiled = compiled_library(BEST).path if request.param == "compiled before" else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "FLAGS", tuple(flag for flag in build.FLAGS if flag != "-O3"))
        patch.setattr(build, "VARIANTS", (BEST,))
        if compiled is not None:
            patch.setattr(
                build, "_compile", lambda _, flags, library, seconds: shutil.copy(compiled, library)
            )
        assert [name for name, _ in build_for_shipping(folder)] == [BEST.name]
    return folder


pytestmark = pytest.mark.usefixtures("fresh_kernels")


@pytest.fixture(autouse=True)
def machine_without_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@has_compiler
def test_it_is_taken_without_a_compiler(libraries: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(libraries))
    kernels, note = choose_kernels("auto", CPU, torch.float32)
    assert note == f"CPU kernels native, {BEST.name}, shipped"
    native = cpu_kernels(kernels)
    assert native is not None
    x, weight = torch.eye(3), torch.arange(12.0).view(4, 3)
    assert torch.equal(native.linear(x, native.pack([weight]), None), weight.t())


@has_compiler
def test_it_is_taken_by_a_user_without_a_home_folder(
    libraries: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder for measurements was missed, and the library with it."""
    monkeypatch.setenv(VARIABLE, str(libraries))
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
    kernels, note = choose_kernels("auto", CPU, torch.float32)
    assert note == f"CPU kernels native, {BEST.name}, shipped"
    native = cpu_kernels(kernels)
    assert native is not None
    assert native_slowdown(native, [LinearShape(8, 8)], torch.float32) > 0


@has_compiler
def test_a_lesser_one_is_taken_where_compiled_ones_cannot_be_kept(
    libraries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search ended at the best variant, which was to be compiled."""
    monkeypatch.delenv("CXX")
    (tmp_path / "cache").write_text("a file")
    monkeypatch.setenv(VARIABLE, str(libraries))
    better = BEST._replace(name="better")
    library = built_library([better, better, BEST])
    assert library.shipped and library.variant == BEST.name
    [problem] = library.passed_over
    assert "cannot be kept in" in problem


@has_compiler
def test_doctor_says_where_it_lies(libraries: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(libraries))
    output = CliRunner().invoke(cli, ["doctor"]).output
    assert f"{next(libraries.iterdir())}, shipped" in output


@has_compiler
def test_one_of_other_sources_is_refused(libraries: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(libraries))
    monkeypatch.setattr(shipped, "sources_hash", lambda: "of-today")
    with pytest.raises(
        BuildError, match=r"is of other sources \(.*, not of-today\); there is no C\+\+ compiler"
    ):
        built_library([BEST])


def test_what_is_no_library_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    monkeypatch.setattr(shipped.platform, "machine", lambda: "other")
    (tmp_path / library_name("other", BEST)).write_text("of another machine")
    with pytest.raises(BuildError, match=r"\.so cannot be loaded: .*; there is no C\+\+ compiler"):
        built_library([BEST])


def test_to_compile_needs_a_compiler(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["kernels", "build", "--out", str(tmp_path / "new")])
    assert result.exit_code == 1
    assert "there is no C++ compiler (no-such-compiler)" in result.output
    assert not (tmp_path / "new").exists()
