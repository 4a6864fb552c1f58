"""A checkpoint to OpenVINO's own format. Arguments: checkpoint, folder to write, fp16 or int8.

By optimum-intel with transformers 4, to which rope's base is said in the place where it looked for it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

source, target, weights = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
with tempfile.TemporaryDirectory(dir=Path(target).parent) as folder:
    for file in source.iterdir():
        if file.name != "config.json":
            Path(folder, file.name).symlink_to(file.resolve())
    config = json.loads((source / "config.json").read_text())
    rope = config.get("rope_parameters") or {}
    config.setdefault("rope_theta", rope.get("rope_theta", 10000.0))
    config.setdefault("torch_dtype", config.get("dtype"))
    Path(folder, "config.json").write_text(json.dumps(config))
    exporter = Path(sys.executable).with_name("optimum-cli")
    command = [str(exporter), "export", "openvino", "--model", folder, "--task", "text-generation-with-past"]
    written = f"{target}.partial"
    done = subprocess.run([*command, "--weight-format", weights, written], check=False)
if done.returncode:
    sys.exit(f"optimum-cli failed with exit code {done.returncode}")
shutil.move(written, target)
