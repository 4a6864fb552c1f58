"""Responses that are generated while no client waits for them, and their events."""
