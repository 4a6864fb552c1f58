"""Models of the installed transformers that have no family: decoders over our KV memory, and encoders.

Importing this imports no torch.
"""

from turnout.models.transformers_adapter.encoders.family import EncoderAdapter
from turnout.models.transformers_adapter.family import TransformersAdapter

__all__ = ["EncoderAdapter", "TransformersAdapter"]
