"""One definition of configuration: the CLI's flags, the YAML file's keys and `LLM`'s arguments.

A field's name is the flag (``max_num_seqs`` is ``--max-num-seqs``) and its description the help, without
backticks. docs/reference/configuration.md adds the docstring below the field; its links begin in that folder.
"""

from __future__ import annotations

from turnout.config.engine import EngineConfig
from turnout.config.models import ModelConfig, ModelOptions
from turnout.config.server import ServerConfig

__all__ = ["EngineConfig", "ModelConfig", "ModelOptions", "ServerConfig"]
