"""Requests, views and rows made by hand, for a test of what a policy means, beside its conformance suite."""

from turnout.testing.factories.made import made_request, made_row, made_view

__all__ = ["made_request", "made_row", "made_view"]
