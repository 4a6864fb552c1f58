"""Turnout's layers in the place of transformers' modules, one by one, where they compute the same."""
