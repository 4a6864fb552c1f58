"""Traces of requests that a server once served, read into one form; a file's header tells its format."""
