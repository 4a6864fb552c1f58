"""Triton programs of sampling."""
