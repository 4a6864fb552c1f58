"""Encoders of the installed transformers: what texts become, in both directions and without KV memory."""
