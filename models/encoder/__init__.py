"""Encoders: transformers whose tokens see both sides, and which generate nothing."""
