"""A model of random weights that speaks in the tokens of turnout-tiny: what it says is as good as random."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from turnout.models.hub.resolve import resolve_model
from turnout.models.random.random_weights import write_random_checkpoint
from turnout.models.random.shapes import Shape, config_of

END = 0
"""turnout-tiny's end of sequence."""
KV_BYTES = 2 * 1 * 1 * 16 * 4
"""A token's: keys and values, layers, KV heads, head dim, fp32."""


def write_babbler(folder: Path) -> None:
    shape = Shape(32, 1, 2, 1, 48, 4096, max_positions=4096, theta=10_000.0)
    write_random_checkpoint(folder, config_of(shape, "qwen2", dtype="float32"), seed=1)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": END}))
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copyfile(resolve_model("turnout-tiny") / name, folder / name)
