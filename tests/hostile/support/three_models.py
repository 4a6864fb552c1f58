"""A server of three models: `chat`, `embed` and `rerank`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tiny_server import PROMPT, TinyServer

sys.path.append(str(Path(__file__).parents[3] / "examples" / "rag"))

from small_models import describe, write, write_models  # an example, and no package

__all__ = ["ThreeModels", "describe", "write", "write_models"]


class ThreeModels(TinyServer):
    """Chat is the embedded model's; the others' weights are random."""

    def __init__(self, folder: Path, *flags: str, **options: Any) -> None:
        embed, rerank = write_models(folder)
        super().__init__(f"embed={embed}", f"rerank={rerank}", *flags, model="chat=turnout-tiny", **options)

    def answer(self) -> str:
        response = self.post("/v1/completions", {"model": "chat", **PROMPT})
        assert response.status_code == 200, response.text
        text: str = response.json()["choices"][0]["text"]
        return text
