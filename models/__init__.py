"""Model families, checkpoints and names. Importing this package imports no torch."""
