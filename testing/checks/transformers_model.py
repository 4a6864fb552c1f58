"""A model of transformers with random weights, as a checkpoint that a model family can load."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from turnout.core.errors import ModelError

__all__ = ["TransformersModel"]


class TransformersModel:
    """A random model of `config`. Raises ModelError where transformers has no such architecture."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        import transformers

        name = (config.get("architectures") or [""])[0]
        kind = getattr(transformers, name, None) if config.get("model_type") else None
        if kind is None:
            raise ModelError(f"transformers {transformers.__version__} has no {name or 'such architecture'}")
        own = transformers.AutoConfig.for_model(**config)
        torch.manual_seed(5)
        self._model = kind._from_config(own, dtype=torch.float32, attn_implementation="eager").eval()
        for parameter in self._model.parameters():  # transformers' own are so small that tokens do not matter
            if parameter.dim() > 1:
                torch.nn.init.normal_(parameter, std=parameter.shape[-1] ** -0.5)

    def save(self, folder: Path) -> None:
        """Write it to `folder`, as other checkpoints are."""
        self._model.save_pretrained(folder)

    @torch.inference_mode()
    def logits(self, tokens: list[int]) -> Tensor:
        """Returns [tokens, vocab_size]."""
        found: Tensor = self._model(torch.tensor([tokens]), use_cache=False).logits[0]
        return found
