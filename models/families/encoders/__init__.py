"""The families of encoders. Importing them imports no torch."""
