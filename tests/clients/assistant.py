"""A server whose random model has room for agents' prompts, and whose strategy plays the assistant."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from script import Script, rule
from tiny_server import TinyServer

from turnout.models.hub.resolve import resolve_model
from turnout.models.random.random_weights import write_random_checkpoint
from turnout.models.random.shapes import Shape, config_of

__all__ = ["CONTEXT", "NAME", "AssistantServer", "assistant_serving", "write_assistant"]

NAME = "assistant"
CONTEXT = 65_536
HERE = Path(__file__).parent
ADDED = {"<think>": False, "</think>": False, "<tool_call>": False, "</tool_call>": False}
"""Tokens that Qwen's tokenizers add, and whether they are special."""


def write_assistant(folder: Path) -> Path:
    """Writes the model: one layer, random weights, the embedded model's vocabulary, a template with tools."""
    embedded = resolve_model("turnout-tiny")
    tokenizer = json.loads((embedded / "tokenizer.json").read_text())
    size = len(tokenizer["model"]["vocab"])
    for number, (text, special) in enumerate(ADDED.items()):
        added = {**tokenizer["added_tokens"][0], "id": size + number, "content": text, "special": special}
        tokenizer["added_tokens"].append(added)
    shape = Shape(32, 1, 2, 1, 48, size + 16, max_positions=CONTEXT, theta=1_000_000.0)
    config = config_of(shape, "qwen2", dtype="float32")
    write_random_checkpoint(folder, {**config, "eos_token_id": 2}, seed=1)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|im_end|>"}))
    shutil.copy(HERE / "assistant.jinja", folder / "chat_template.jinja")
    return folder


class AssistantServer(TinyServer):
    """The server, and what its assistant says."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self.script = Script(folder / "script.json")
        self.script.play(rule("Hello!"))
        self._prompts = self.script.file.with_suffix(".prompts")
        model = write_assistant(folder / "model")
        kept = ("--response-store", str(folder / "responses.db"))
        super().__init__(
            *("--served-model-name", NAME, "--plugins-folder", str(HERE), "--max-model-len", str(CONTEXT)),
            *("--decoding", f"played:script={self.script.file}", "--kv-memory", "64MiB", *kept, *flags),
            model=str(model),
        )

    def prompts(self) -> list[str]:
        """The prompts that the assistant was given, first to last."""
        return [json.loads(line) for line in self._prompts.read_text().splitlines()]

    def forget_prompts(self) -> None:
        """Those so far."""
        self._prompts.write_text("")


@contextmanager
def assistant_serving(folder: Path, *flags: str) -> Iterator[AssistantServer]:
    """A server with these flags beside its own."""
    server = AssistantServer(folder, *flags)
    try:
        yield server
    finally:
        server.end()
