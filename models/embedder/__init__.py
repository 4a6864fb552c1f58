"""Folders of sentence-transformers: how a model's texts become embeddings."""
