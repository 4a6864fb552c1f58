"""Environments of outside packages, each with versions of its own, in a folder of the user's cache."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

__all__ = ["npm_folder", "packages_beside", "python_of"]


def python_of(requirements: Path) -> Path:
    """The interpreter of an environment with these requirements, made when they are new."""
    folder = _folder(requirements)
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "-r", requirements], check=True)
        (folder / "complete").touch()
    return python


def packages_beside(requirements: Path) -> Path:
    """A folder with these packages alone, for PYTHONPATH: what they need is there, PyTorch above all."""
    folder = _folder(requirements)
    if not (folder / "complete").exists():
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder]
        subprocess.run([*install, "-r", requirements], check=True)
        (folder / "complete").touch()
    return folder


def npm_folder(package: Path) -> Path:
    """The folder in which what a package.json asks for is installed."""
    folder = _folder(package)
    if not (folder / "complete").exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / package.name).write_text(package.read_text())
        subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--silent"], cwd=folder, check=True)
        (folder / "complete").touch()
    return folder


def _folder(pins: Path) -> Path:
    """A folder for these pins, of this Python."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    key = hashlib.sha256(pins.read_bytes() + sys.version.encode()).hexdigest()[:12]
    return cache / "turnout" / "clients" / f"{pins.parent.name}-{key}"
