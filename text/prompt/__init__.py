"""Prompts that are not conversations: text to fill in, prompts that are cut."""
