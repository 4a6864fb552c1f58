"""Code that a checkpoint brings for its architecture, and running it where the user trusts it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import CONFIG_MAPPING, AutoModelForCausalLM
from transformers.dynamic_module_utils import get_class_from_dynamic_module

from turnout.core.errors import ModelError, describe_error

__all__ = ["run_own_code"]

logger = logging.getLogger(__name__)

CONFIG, MODEL = "AutoConfig", "AutoModelForCausalLM"


def run_own_code(config: Mapping[str, Any], folder: Path, trusted: bool) -> None:
    """Makes a checkpoint's classes known to transformers, where that has none for its `model_type`.

    Raises ModelError that names the code, unless it is trusted.
    """
    named = config.get("auto_map")
    kind = config.get("model_type")
    if not isinstance(named, Mapping) or MODEL not in named or kind in CONFIG_MAPPING:
        return
    code = {key: str(named.get(key)) for key in (CONFIG, MODEL)}
    files = sorted({f"{name.partition('.')[0]}.py" for name in code.values()})
    if not trusted:
        raise ModelError(
            f"model_type = {kind!r} is computed by code that the checkpoint brings ({', '.join(files)} in "
            f"{folder}), which is not run; read it, and give --trust-remote-code if you trust it"
        )
    for file in files:
        if "--" in file or not (folder / file).is_file():
            raise ModelError(f"{folder} lacks {file}, which config.json: auto_map names; fetch it again")
    logger.warning("running code of the checkpoint, as --trust-remote-code says: %s", ", ".join(files))
    try:
        of_config, of_model = (get_class_from_dynamic_module(name, folder) for name in code.values())
        CONFIG_MAPPING.register(str(kind), of_config, exist_ok=True)
        AutoModelForCausalLM.register(of_config, of_model, exist_ok=True)
    except Exception as error:  # the code is anyone's
        raise ModelError(f"the code in {folder} cannot be run: {describe_error(error)}") from error
