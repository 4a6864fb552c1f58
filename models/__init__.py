"""Model families, checkpoints and names. Importing this package imports no torch."""

from turnout.models.checkpoint import read_config, read_generation_config
from turnout.models.resolve import resolve_model

__all__ = ["read_config", "read_generation_config", "resolve_model"]
