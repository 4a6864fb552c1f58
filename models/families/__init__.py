"""The model families that ship with Turnout. Importing them imports no torch."""

from turnout.models.families.llama import Llama
from turnout.models.families.qwen2 import Qwen2

__all__ = ["Llama", "Qwen2"]
