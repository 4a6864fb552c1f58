"""Processes for what a model's files make of a text: no folder can hang or fill the server."""
