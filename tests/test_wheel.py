"""What is shipped is enough: a wheel, in an environment without this folder, serves the embedded model."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).parent.parent

COMPLETE = """
import turnout
from turnout import LLM, SamplingParams
assert {site!r} in turnout.__file__, turnout.__file__
llm = LLM(kv_memory="32MiB", device="cpu")
params = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)
(out,) = llm.generate("import os", params, progress=False)
assert len(out.outputs[0].token_ids) == 4
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an environment that has our wheel, and sees this one's other packages."""
    folder = tmp_path_factory.mktemp("wheel")
    # From a copy: a build leaves folders behind, and finds what an earlier one left.
    source = shutil.copytree(
        ROOT, folder / "source", ignore=shutil.ignore_patterns(".*", "build", "*.egg-info")
    )
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(source)]
    subprocess.run(build, check=True, capture_output=True, cwd=folder)
    (wheel,) = folder.glob("*.whl")
    environment = folder / "environment"
    venv.create(environment, with_pip=False)
    site = _site(environment)
    target = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--target",
        str(site),
        str(wheel),
    ]
    subprocess.run(target, check=True, capture_output=True)
    # Dependencies from here; the editable install of this folder stays out: its .pth is not read that way.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return environment


def _site(environment: Path) -> Path:
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return environment / "lib" / version / "site-packages"


def _run(environment: Path, *arguments: str) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [str(environment / "bin" / "python"), *arguments],
        capture_output=True,
        text=True,
        cwd=environment,
        env=clean,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_wheel_completes_on_the_embedded_model(installed: Path) -> None:
    _run(installed, "-c", COMPLETE.format(site=str(_site(installed))))


def test_the_wheel_serves(installed: Path) -> None:
    main = "from turnout.cli.main import main; main()"
    command = [str(installed / "bin" / "python"), "-c", main, "serve", "--port", "0", "--kv-memory", "32MiB"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=installed) as server:
        try:
            assert server.stdout is not None
            lines = iter(server.stdout.readline, "")
            url = next(found[0] for line in lines if (found := re.search(r"http://\S+", line)))
            body = {"prompt": "import os", "max_tokens": 3, "ignore_eos": True}
            answer = httpx.post(f"{url}/v1/completions", json=body, timeout=60).json()
            console = [httpx.get(f"{url}/{name}") for name in ("console", "console/panels/timeline/draw.js")]
        finally:
            server.terminate()
    assert answer["usage"]["completion_tokens"] == 3
    assert [file.status_code for file in console] == [200, 200]
    assert server.returncode == 0


def test_the_wheel_lists_its_policies_once(installed: Path) -> None:
    listed = _run(installed, "-c", "from turnout.cli.main import main; main()", "plugins").splitlines()
    assert sum(line.split()[:2] == ["scheduler", "fcfs"] for line in listed) == 1
    assert not any("duplicate" in line for line in listed)
