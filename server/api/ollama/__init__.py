"""Ollama's API: the paths under ``/api``."""
