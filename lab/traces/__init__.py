"""Traces of requests that somebody once served, read into one form; a file's header says which it has."""
