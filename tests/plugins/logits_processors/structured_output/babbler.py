"""A model of random weights that speaks in the tokens of turnout-tiny: what it says is as good as random."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from turnout.models.hub.resolve import resolve_model
from turnout.models.random.random_weights import write_random_checkpoint
from turnout.models.random.shapes import Shape, config_of

END = 0
"""turnout-tiny's end of sequence."""
FILL_IN = ("<fim_prefix>", "<fim_suffix>", "<fim_middle>")
KV_BYTES = 2 * 1 * 1 * 16 * 4
"""A token's: keys and values, layers, KV heads, head dim, fp32."""


def write_babbler(folder: Path) -> None:
    shape = Shape(32, 1, 2, 1, 48, 4096, max_positions=4096, theta=10_000.0)
    write_random_checkpoint(folder, config_of(shape, "qwen2", dtype="float32"), seed=1)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": END}))
    for name in ("tokenizer_config.json", "chat_template.jinja"):
        shutil.copyfile(resolve_model("turnout-tiny") / name, folder / name)
    tokenizer = json.loads((resolve_model("turnout-tiny") / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps(with_fill_in(tokenizer)))


def with_fill_in(tokenizer: dict[str, Any]) -> dict[str, Any]:
    """The last tokens become those that tell a missing part, as StarCoder has them."""
    vocabulary, merges = tokenizer["model"]["vocab"], tokenizer["model"]["merges"]
    last = sorted(vocabulary, key=vocabulary.__getitem__)[-len(FILL_IN) :]
    added = []
    for name, text in zip(FILL_IN, last, strict=True):
        id = vocabulary[name] = vocabulary.pop(text)
        added.append({**tokenizer["added_tokens"][0], "id": id, "content": name})
    tokenizer["model"]["merges"] = [merge for merge in merges if "".join(merge) not in last]
    tokenizer["added_tokens"] += added
    return tokenizer
