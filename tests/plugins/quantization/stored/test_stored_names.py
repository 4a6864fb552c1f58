"""What `quantization_config` says of layers, it says by the names that they have in the checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from layouts import compressed
from stored_checkpoints import load, quantize_layers
from writers import int8_channels, pack_quantized

from turnout.core.errors import ModelError

FOUR_BITS = compressed(num_bits=4, strategy="group", group_size=32)["config_groups"]["group_0"]
EIGHT_BITS = compressed()["config_groups"]["group_0"]


def groups(eight_bits: str, four_bits: str) -> dict[str, Any]:
    """Names layers, some of which the model calls otherwise: Mixtral's experts."""
    found = {
        "group_0": {**EIGHT_BITS, "targets": [eight_bits]},
        "group_1": {**FOUR_BITS, "targets": [four_bits]},
    }
    return {"quant_method": "compressed-tensors", "config_groups": found}


def test_groups_name_layers_as_the_checkpoint_does(tmp_path: Path) -> None:
    """The model's names were looked for, so that such layers fell to the group of all others."""
    config = groups("Linear", r"re:.*block_sparse_moe\.experts.*")
    quantize_layers(
        "mixtral", tmp_path, config, lambda name: pack_quantized if "experts" in name else int8_channels
    )
    load(tmp_path)  # which checks every tensor of a layer by its group


def test_a_layer_that_no_group_names_is_named_as_it_is_stored(tmp_path: Path) -> None:
    quantize_layers("mixtral", tmp_path, groups("re:.*self_attn.*", "x"), lambda name: int8_channels)
    with pytest.raises(ModelError, match=r"layers\.0\.block_sparse_moe\.experts\.0\.w\d is stored quantized"):
        load(tmp_path)
