"""Finds a library of the kernels: one that was shipped, or else one that is compiled on this machine.

A library is compiled once for each machine, compiler and version of the sources, into the user's cache, and
anew where it was damaged there: a checksum lies beside it. The sources need a C++17 compiler and its standard
library. They include nothing of Python or torch, so that compiling takes seconds.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from turnout.core.user_cache import user_cache
from turnout.kernels.shipped import (
    SOURCES,
    UnfitLibraryError,
    library_name,
    shipped_library,
    sources_hash,
)
from turnout.kernels.variants import VARIANTS, Variant, VariantError, cpu_features, usable_variants

__all__ = [
    "BuildError",
    "BuiltLibrary",
    "UnknownFlags",
    "build_for_shipping",
    "built_library",
    "compiled_library",
    "find_compiler",
]

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
COMPILER_SECONDS = 180
"""A call of the compiler may take so long, at a server's start."""
SHIPPING_SECONDS = 900
SCRATCH = "compiling-"
"""How the names of folders begin in which libraries are being compiled."""


class BuildError(Exception):
    """Says in one line why there is no library."""


class UnavailableError(BuildError):
    """A variant cannot be had, and perhaps the next one can."""


class UnknownFlags(UnavailableError):
    """The compiler does not know a variant's flags."""


class BuiltLibrary(NamedTuple):
    path: Path
    variant: str
    notes: Path | None
    """A folder for what is found out about the library on this kind of machine; None: there is no home folder
    to keep it in."""
    shipped: bool
    passed_over: tuple[str, ...] = ()
    """Why better variants, or shipped libraries, were not taken."""


def built_library(variants: Sequence[Variant] | None = None) -> BuiltLibrary:
    """Returns the library of the first variant that was shipped or can be compiled.

    variants: those that this machine can run, the best first; None: `usable_variants`. Where compiling fails
    for another reason than the variant, only shipped libraries are looked for from then on. Raises
    BuildError.
    """
    try:
        variants = usable_variants() if variants is None else variants
    except VariantError as error:
        raise BuildError(str(error)) from None
    problems: dict[str, None] = {}  # each once, in their order
    places = [_shipped, compiled_library]
    for variant in variants:
        for library_of in tuple(places):
            try:
                return library_of(variant)._replace(passed_over=tuple(problems))
            except BuildError as error:
                problems |= {str(error): None} if str(error) else {}
                if not isinstance(error, UnavailableError):
                    places.remove(library_of)
    raise BuildError("; ".join(problems) or "no variant of the kernels runs on this machine")


def _shipped(variant: Variant) -> BuiltLibrary:
    try:
        path = shipped_library(variant)
    except UnfitLibraryError as error:
        raise UnavailableError(str(error)) from None
    if path is None:
        raise UnavailableError
    try:
        notes = _cache_folder() / _key("shipped", variant)
    except BuildError:
        notes = None
    return BuiltLibrary(path, variant.name, notes, shipped=True)


def compiled_library(variant: Variant) -> BuiltLibrary:
    """Returns the variant's library, compiled on this machine now or before. Raises BuildError."""
    compiler = find_compiler()
    folder = _cache_folder() / _key(" ".join([*compiler[1:], _call([*compiler, "--version"])]), variant)
    library = folder / "kernels.so"
    if not _is_whole(library):
        _check_flags(compiler, variant)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with _alone(folder):
                if not _is_whole(library):  # another process may have compiled it meanwhile
                    _compile(compiler, variant.flags, library)
                    _checksum(library).write_text(_sum_of(library))
        except OSError as error:
            raise BuildError(f"the kernels cannot be kept in {folder}: {error.strerror}") from error
    return BuiltLibrary(library, variant.name, folder, shipped=False)


def build_for_shipping(folder: Path) -> Iterator[tuple[str, str]]:
    """Compiles all variants that the compiler knows into `folder`, tuned for no machine in particular.

    Yields each variant's name, and the library's name or why there is none. Raises BuildError.
    """
    compiler = find_compiler()
    architecture = _call([*compiler, "-dumpmachine"]).partition("-")[0]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BuildError(f"{folder} cannot be made: {error.strerror}") from error
    for variant in VARIANTS:
        if not variant.ships:
            continue
        library = folder / library_name(architecture, variant)
        try:
            _check_flags(compiler, variant)
        except UnknownFlags:
            yield variant.name, f"not for {architecture}, or unknown to {shlex.join(compiler)}"
            continue
        flags = [flag for flag in variant.flags if not flag.startswith("-mtune")]
        try:
            _compile(compiler, flags, library, SHIPPING_SECONDS)
        except OSError as error:
            raise BuildError(f"{library} cannot be written: {error.strerror}") from error
        yield variant.name, library.name


def find_compiler() -> list[str]:
    """Returns ``$CXX``, or a C++ compiler under one of its usual names. Raises BuildError.

    ``$CXX`` is a program, or a command as a shell reads it, such as ``ccache g++``.
    """
    asked = os.environ.get("CXX", "").strip()
    commands = [[name] for name in ([asked] if asked else ["c++", "g++", "clang++"])]
    with suppress(ValueError):  # quotes that are not closed
        commands += [shlex.split(asked)] if asked else []
    for program, *arguments in filter(None, commands):
        if found := shutil.which(program):
            return [found, *arguments]
    raise UnavailableError(f"there is no C++ compiler ({asked or 'c++, g++, clang++'})")


def _cache_folder() -> Path:
    try:
        return user_cache() / "kernels"
    except RuntimeError:
        raise BuildError("there is no home folder to keep the kernels in; set XDG_CACHE_HOME") from None


def _is_whole(library: Path) -> bool:
    """Says whether the library holds what was compiled. To load a part of one may end the process."""
    try:
        return _checksum(library).read_bytes() == _sum_of(library).encode()
    except OSError:
        return False


def _checksum(library: Path) -> Path:
    return library.with_suffix(".sha256")


def _sum_of(library: Path) -> str:
    return hashlib.sha256(library.read_bytes()).hexdigest()


def _key(compiler: str, variant: Variant) -> str:
    """Hashes all that the library depends on: different machines may share a home folder."""
    machine = platform.machine(), sorted(cpu_features())
    digest = hashlib.sha256(repr((FLAGS, variant.flags, machine, compiler, sources_hash())).encode())
    return digest.hexdigest()[:24]


def _check_flags(compiler: Sequence[str], variant: Variant) -> None:
    try:
        _call([*compiler, *variant.flags, "-x", "c++", "-fsyntax-only", os.devnull])
    except BuildError as error:
        raise UnknownFlags(str(error)) from None


def _compile(
    compiler: Sequence[str], flags: Sequence[str], library: Path, seconds: float | None = None
) -> None:
    """Compiles the sources at the same time, and links them; the library appears whole or not at all."""
    flags = [*FLAGS, f'-DTURNOUT_SOURCES="{sources_hash()}"', *flags]
    calls: set[subprocess.Popen[str]] = set()
    with _scratch_folder(library.parent) as folder, ThreadPoolExecutor() as pool:

        def compiled(source: Path) -> str:
            target = str(folder / f"{source.stem}.o")
            _call([*compiler, *flags, "-c", str(source), "-o", target], seconds, calls)
            return target

        started = [pool.submit(compiled, source) for source in sorted(SOURCES.glob("*.cpp"))]
        try:
            objects = [each.result() for each in started]
        except BaseException:  # a Ctrl-C is not the compiler's, and the pool waits for its threads
            pool.shutdown(wait=False, cancel_futures=True)
            while not all(each.done() for each in started):
                for call in tuple(calls):
                    _end(call)
                time.sleep(0.02)
            raise
        linked = folder / library.name
        _call([*compiler, "-shared", "-pthread", *objects, "-o", str(linked)])
        linked.replace(library)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Lets one process compile into `folder`, for replicas and ranks that start together on a new machine.

    A lock only saves work: where the file system has none, or its holder takes longer than a compiler may,
    the caller compiles too.
    """
    handle = os.open(folder, os.O_RDONLY)
    try:
        deadline = time.monotonic() + COMPILER_SECONDS
        while time.monotonic() < deadline:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.05)
            except OSError:
                break
        yield
    finally:
        os.close(handle)


@contextmanager
def _scratch_folder(beside: Path) -> Iterator[Path]:
    """Makes a folder on the cache's own file system, so that the library can be moved into place.

    Its lock ends with the process that compiles in it. Folders without one are removed: those of processes
    that were killed.
    """
    for left in beside.glob(f"{SCRATCH}*"):
        with _locked(left) as alone:
            if alone:
                shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=SCRATCH, dir=beside) as folder, _locked(Path(folder)):
        yield Path(folder)


@contextmanager
def _locked(folder: Path) -> Iterator[bool]:
    """Locks `folder`; yields whether that could be done, which another process and a file system may deny."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        yield False
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        locked = True
    except OSError:
        locked = False
    try:
        yield locked
    finally:
        os.close(handle)


def _call(
    command: Sequence[str], seconds: float | None = None, calls: set[subprocess.Popen[str]] | None = None
) -> str:
    """Runs the compiler for so many seconds at most; None: `COMPILER_SECONDS`.

    calls: has the call while it runs, for others to end it.
    """
    try:
        # In a session of its own, by which all programs that the compiler starts are ended together.
        pipe = subprocess.PIPE
        call = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True)
    except OSError as error:
        raise BuildError(f"{command[0]} cannot be used: {error}") from error
    with call:
        calls = set() if calls is None else calls
        calls.add(call)
        try:
            out, errors = call.communicate(timeout=COMPILER_SECONDS if seconds is None else seconds)
        except BaseException as error:
            _end(call)
            if isinstance(error, subprocess.TimeoutExpired):
                raise BuildError(f"{command[0]} cannot be used: {error}") from error
            raise
        finally:
            calls.discard(call)
    if call.returncode:
        complaint = next((line for line in errors.splitlines() if "error" in line), errors.strip())
        raise BuildError(f"{command[0]} failed: {complaint}")
    return out


def _end(call: subprocess.Popen[str]) -> None:
    """Ends a compiler that runs, with all programs that it started."""
    if call.returncode is None:  # otherwise the session's number may be another's by now
        with suppress(ProcessLookupError):
            os.killpg(call.pid, signal.SIGKILL)
