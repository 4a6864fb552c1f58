"""Any decoder of the installed transformers, over our KV memory. Importing this imports no torch."""

from turnout.models.transformers_adapter.family import TransformersAdapter

__all__ = ["TransformersAdapter"]
