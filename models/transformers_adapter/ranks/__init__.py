"""How several ranks divide models of transformers: by its own plans, tried on a small model first."""
