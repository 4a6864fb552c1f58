"""Write a model folder that transformers, or any server of its models, can load."""

import os
from pathlib import Path

import torch
from safetensors.torch import save
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from turnout.scripts.tiny.architecture import generation_config

TIED = "lm_head.weight"


def export(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Weights go out as bfloat16, for size; config.json still says float32, to compute in."""
    folder.mkdir(parents=True, exist_ok=True)
    model.config.save_pretrained(folder)
    generation_config(tokenizer).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    weights = {
        name: tensor.detach().to("cpu", torch.bfloat16).contiguous()
        for name, tensor in model.state_dict().items()
        if name != TIED
    }
    # Renamed into place: a server may be loading the folder while training goes on.
    partial = folder / "model.safetensors.partial"
    partial.write_bytes(save(weights, metadata={"format": "pt"}))
    os.replace(partial, folder / "model.safetensors")
