"""The grammar of an output: what a model may write, so that every call is valid."""
