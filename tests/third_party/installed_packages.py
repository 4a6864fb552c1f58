"""Packages laid out as pip would, in no time: their modules, and metadata with their entry points."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def lay_out(package: Path, site: Path) -> None:
    """What ``pip install PACKAGE`` would leave in `site`, by its pyproject.toml."""
    described = tomllib.loads((package / "pyproject.toml").read_text())
    project, tool = described["project"], described["tool"]["setuptools"]
    for module in tool.get("py-modules", ()):
        shutil.copy(package / f"{module}.py", site)
    for module in tool.get("packages", ()):
        shutil.copytree(package / module, site / module)
    info = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    head = "Metadata-Version: 2.1\n"
    (info / "METADATA").write_text(f"{head}Name: {project['name']}\nVersion: {project['version']}\n")
    points = "".join(f"{name} = {module}\n" for name, module in project["entry-points"]["turnout"].items())
    (info / "entry_points.txt").write_text(f"[turnout]\n{points}")


def run(site: Path, *command: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Python with those packages, and with this Turnout."""
    import turnout

    ours = str(Path(turnout.__file__).parent.parent)
    known = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    known |= {"PYTHONPATH": os.pathsep.join([str(site), ours]), "OMP_NUM_THREADS": "1", **environment}
    return subprocess.run([sys.executable, *command], cwd=cwd, env=known, capture_output=True, text=True)


def turnout(site: Path, *arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command line."""
    main = "from turnout.cli.main import main; main()"
    return run(site, "-c", main, *arguments, cwd=cwd, **environment)
