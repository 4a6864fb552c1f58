"""Profiles an engine's process: torch's operators as a trace for Perfetto, and the native code by `perf`.

Imported only when a profile is asked for.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch

from turnout.core.errors import RequestError
from turnout.core.types.messages import ProfileFiles

__all__ = ["EngineProfile"]

FREQUENCY = 199
"""Samples of native code a second; no round number, so that they do not go in step with anything."""
QUIET = "99"
"""The library under torch's profiler otherwise writes lines of its own to standard error."""
PERF_SECONDS = 10.0
"""How long `perf` may take to write its file."""
LOOK_SECONDS = 0.2
"""How long to wait for `perf` to say that it may not."""


class EngineProfile:
    """A profile that is being taken, from its construction to `stop`."""

    def __init__(self, folder: str, name: str) -> None:
        """name: of the engine, for its files. Raises RequestError where the folder cannot be written."""
        self._folder = Path(folder)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._stem = self._folder / f"{name}-{os.getpid()}-{time.time_ns() // 1_000_000}"
            self._trace = self._stem.with_name(f"{self._stem.name}.pt.trace.json.gz")
            self._trace.touch()
        except OSError as error:
            raise RequestError(
                f"the folder {folder} of --profile-dir cannot be written: {error.strerror}"
            ) from None
        os.environ.setdefault("KINETO_LOG_LEVEL", QUIET)
        activities = [torch.profiler.ProfilerActivity.CPU]
        on_gpu = torch.cuda.is_available()
        if on_gpu:
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        self._native = _Native(self._stem.with_name(f"{self._stem.name}.perf.data"), asked=not on_gpu)
        self._profile: Any = torch.profiler.profile(activities=activities)
        self._profile.start()

    def step(self) -> AbstractContextManager[object]:
        """Names a step in the trace."""
        return torch.profiler.record_function("engine step")

    def stop(self) -> ProfileFiles:
        """End it, and write its files. Raises RequestError where they cannot be written."""
        notes = self._native.stop()
        self._profile.stop()
        try:
            self._profile.export_chrome_trace(str(self._trace))
        except (OSError, RuntimeError) as error:
            raise RequestError(f"the profile {self._trace} cannot be written: {error}") from None
        files = [str(self._trace), *([str(self._native.file)] if self._native.file.exists() else [])]
        return ProfileFiles(files, notes)


class _Native:
    """Samples of native code, where `perf` is there and may look at this process."""

    def __init__(self, file: Path, *, asked: bool) -> None:
        self.file = file
        self._process: subprocess.Popen[str] | None = None
        self._lacks = ""
        perf = shutil.which("perf") if asked else None
        if perf is None:
            self._lacks = "no native samples: perf is not installed" if asked else ""
            return
        options = ["-q", "-g", "-F", str(FREQUENCY), "-o", str(file), "-p", str(os.getpid())]
        command = [perf, "record", *options]
        try:
            self._process = subprocess.Popen(
                command, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
            )
            self._process.wait(LOOK_SECONDS)
        except OSError as error:
            self._lacks = f"no native samples: perf cannot be run: {error.strerror}"
        except subprocess.TimeoutExpired:
            return
        else:
            self._lacks = f"no native samples: perf says: {self._said()}"
        self._process = None

    def stop(self) -> list[str]:
        """What there is to say of it."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(PERF_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
                self._lacks = "no native samples: perf did not end"
            self._close()
        if self._lacks or not self.file.exists():
            self.file.unlink(missing_ok=True)
            return [self._lacks] if self._lacks else []
        return []

    def _said(self) -> str:
        assert self._process is not None and self._process.stderr is not None
        text = self._process.stderr.read().strip()
        self._close()
        return text.splitlines()[0] if text else f"exit code {self._process.returncode}"

    def _close(self) -> None:
        if self._process is not None and self._process.stderr is not None:
            self._process.stderr.close()
