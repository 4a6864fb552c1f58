"""Ray Serve serves Turnout's application, streams included."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SERVES = """
import ray
from ray import serve
from urllib.request import Request, urlopen
from deploy.ray_serve import turnout

ray.init(address="local", include_dashboard=False)  # another test may run a cluster
serve.start(http_options={"port": 8766})
serve.run(turnout({"model": "turnout-tiny", "max_num_seqs": "8"}), name="t", route_prefix="/")
body = b'{"prompt": "def f(", "max_tokens": 5, "stream": true}'
asked = Request("http://127.0.0.1:8766/v1/completions", body, {"Content-Type": "application/json"})
print(urlopen(asked, timeout=60).read().decode())
print(urlopen("http://127.0.0.1:8766/health").read().decode())
serve.shutdown()
"""


@pytest.mark.slow
def test_an_application_of_ray_serve_streams() -> None:
    pytest.importorskip("ray.serve", reason="pip install 'ray[serve]'")
    root = Path(__file__).parents[2]
    path = os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", SERVES],
        env={**os.environ, "PYTHONPATH": path, "RAY_USAGE_STATS_ENABLED": "0"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("data: {") >= 5 and "data: [DONE]" in done.stdout
    assert '{"status":"ok"}' in done.stdout
