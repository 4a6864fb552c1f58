"""The model that ranks divide."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from turnout.models.hub.resolve import resolve_model


@pytest.fixture(scope="session")
def model(random_model, tmp_path_factory) -> Path:
    """The random model, with the small model's tokenizer."""
    folder = tmp_path_factory.mktemp("model")
    for source in (resolve_model("turnout-tiny"), random_model):
        for file in source.iterdir():
            if file.is_file() and (source == random_model or "token" in file.name):
                shutil.copy(file, folder)
    return folder
