"""Runs code in a fresh interpreter that can import what this one imported."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import TypeVar

__all__ = ["importable", "run_fresh", "run_otherwise_hashed"]

Tried = TypeVar("Tried")

IMPORT = """
import importlib.util, sys
sys.path[:] = {path!r}
try:
    importlib.import_module({module!r})
except ModuleNotFoundError as error:
    if error.name != {module!r}:
        raise
    spec = importlib.util.spec_from_file_location({module!r}, {file!r})  # turnout_plugins.py: on no path
    sys.modules[spec.name] = loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
"""
CALL = """
import pickle
function, arguments = pickle.load(sys.stdin.buffer)
print([function(*each) for each in arguments])
"""


def importable(module: str) -> bool:
    """Whether another process can import a module of this one by its name."""
    if module == "__main__" or module not in sys.modules:
        return False
    try:
        return find_spec(module) is not None
    except ValueError:  # made by hand
        return False


def run_fresh(module: str, code: str, content: bytes = b"", **environment: str) -> str:
    """Imports `module`, then runs `code`, with `content` as standard input; returns what it prints."""
    file = getattr(sys.modules[module], "__file__", None)
    source = IMPORT.format(path=sys.path, module=module, file=file) + code
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, input=content, env={**os.environ, **environment}
    )
    said = done.stderr.decode(errors="replace")[-500:]
    assert done.returncode == 0, f"{module} fails in a fresh interpreter: {said}"
    return done.stdout.decode().strip()


def run_otherwise_hashed(
    function: Callable[[Tried, int], object], arguments: Sequence[tuple[Tried, int]]
) -> str:
    """Calls `function` with each of `arguments` in a process in which strings have other hashes.

    Returns the results as text. Raises an error of pickle for what cannot be handed over.
    """
    content = pickle.dumps((function, list(arguments)))
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    return run_fresh(type(arguments[0][0]).__module__, CALL, content, PYTHONHASHSEED=seed)
