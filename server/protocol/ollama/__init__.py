"""Ollama's API: its requests, and what they mean as requests of ours; its responses."""
