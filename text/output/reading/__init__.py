"""Reads an output in pieces: a call, its arguments, their values."""
