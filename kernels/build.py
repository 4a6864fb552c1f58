"""Compiles the kernels, once for each machine, compiler and version of the sources, into the user's cache.

The sources need a C++17 compiler and its standard library. They include nothing of Python or torch, so that
compiling takes seconds.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from turnout.kernels.variants import Variant, VariantError, cpu_features, usable_variants

__all__ = ["BuildError", "BuiltLibrary", "UnknownFlags", "built_library", "find_compiler"]

SOURCES = Path(__file__).parent / "native"
FLAGS = (
    "-std=c++17",
    "-O3",
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-signed-zeros",
    "-pthread",
    "-fPIC",
)
COMPILER_SECONDS = 60
"""A call of the compiler may take so long."""


class BuildError(Exception):
    """Says in one line why there is no library."""


class BuiltLibrary(NamedTuple):
    path: Path
    variant: str


def built_library(variants: Sequence[Variant] | None = None) -> BuiltLibrary:
    """Returns the library of the first variant that the compiler knows, which is compiled if there is none.

    variants: those that this machine can run, the best first; None: `usable_variants`. Raises BuildError.
    """
    compiler = find_compiler()
    try:
        variants = usable_variants() if variants is None else variants
    except VariantError as error:
        raise BuildError(str(error)) from None
    unknown: BuildError | None = None
    for variant in variants:
        try:
            return BuiltLibrary(_library(compiler, variant), variant.name)
        except UnknownFlags as error:
            unknown = error
    raise unknown or BuildError("no variant of the kernels runs on this machine")


class UnknownFlags(BuildError):
    """The compiler does not know a variant's flags."""


def _library(compiler: str, variant: Variant) -> Path:
    folder = _cache_folder() / _key(compiler, variant)
    library = folder / "kernels.so"
    if not library.exists():
        try:
            _call([compiler, *variant.flags, "-x", "c++", "-fsyntax-only", os.devnull])
        except BuildError as error:
            raise UnknownFlags(str(error)) from None
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _compile(compiler, variant, library)
        except OSError as error:
            raise BuildError(f"the kernels cannot be kept in {folder}: {error.strerror}") from error
    return library


def find_compiler() -> str:
    """Returns ``$CXX``, or a C++ compiler under one of its usual names. Raises BuildError."""
    asked = os.environ.get("CXX")
    for name in [asked] if asked else ["c++", "g++", "clang++"]:
        if found := shutil.which(name):
            return found
    raise BuildError(f"there is no C++ compiler ({asked or 'c++, g++, clang++'})")


def _cache_folder() -> Path:
    try:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:
        raise BuildError("there is no home folder to keep the kernels in; set XDG_CACHE_HOME") from None
    return Path(base) / "turnout" / "kernels"


def _key(compiler: str, variant: Variant) -> str:
    """Hashes all that the library depends on: different machines may share a home folder."""
    machine = platform.machine(), sorted(cpu_features())
    digest = hashlib.sha256(repr((FLAGS, variant.flags, machine)).encode())
    digest.update(_call([compiler, "--version"]).encode())
    for file in sorted(SOURCES.iterdir()):
        digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()[:24]


def _compile(compiler: str, variant: Variant, library: Path) -> None:
    """Compiles the sources at the same time, and links them; the library appears whole or not at all."""
    with _scratch_folder(library.parent) as folder, ThreadPoolExecutor() as pool:

        def compiled(source: Path) -> str:
            target = str(folder / f"{source.stem}.o")
            _call([compiler, *FLAGS, *variant.flags, "-c", str(source), "-o", target])
            return target

        objects = list(pool.map(compiled, sorted(SOURCES.glob("*.cpp"))))
        linked = folder / library.name
        _call([compiler, "-shared", "-pthread", *objects, "-o", str(linked)])
        linked.replace(library)


@contextmanager
def _scratch_folder(beside: Path) -> Iterator[Path]:
    """Makes a folder on the cache's own file system, so that the library can be moved into place."""
    with tempfile.TemporaryDirectory(dir=beside) as folder:
        yield Path(folder)


def _call(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILER_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BuildError(f"{command[0]} cannot be used: {error}") from error
    if done.returncode:
        complaint = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr.strip())
        raise BuildError(f"{command[0]} failed: {complaint}")
    return done.stdout
