"""Layers that are stored quantized and that a model lacks are refused; what a refusal advises helps."""

from __future__ import annotations

from pathlib import Path

import pytest
from family_checkpoints import write_checkpoint
from layouts import CASES
from stored_checkpoints import load, quantize_layers

from turnout.core.errors import ModelError

LAYOUTS = ("gptq 4 bits", "W8A8")
UNQUANTIZED, ADAPTER = "take the unquantized checkpoint, and --quantization", "--model-impl transformers"
REFUSED = {
    # model: how it is asked for, and whether transformers' modules have such layers
    "phi3": ("auto", True),
    "phi4-mini": ("auto", True),
    "gpt2": ("auto", False),
    "mixtral": ("transformers", False),
    "olmoe": ("auto", False),
}


@pytest.mark.parametrize("case", LAYOUTS)
@pytest.mark.parametrize("name", REFUSED)
def test_what_a_refusal_advises_helps(name: str, case: str, tmp_path: Path) -> None:
    """It was not said that transformers' modules have Phi-3's joint layers, and of experts nothing was."""
    implementation, has_layers = REFUSED[name]
    config, write, _ = CASES[case]
    quantize_layers(name, tmp_path / "stored", config, lambda _: write)
    with pytest.raises(ModelError, match=UNQUANTIZED) as refusal:
        load(tmp_path / "stored", implementation)
    assert (ADAPTER in str(refusal.value)) == has_layers
    if has_layers:
        load(tmp_path / "stored", "transformers")
    elif implementation == "auto":
        with pytest.raises(ModelError, match=UNQUANTIZED):
            load(tmp_path / "stored", "transformers")
    write_checkpoint(name, tmp_path / "plain")
    load(tmp_path / "plain", implementation, "int8")
