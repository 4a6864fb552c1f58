"""Decoders as embedders, classifiers and rerankers: another family's layers, with another head or none."""
