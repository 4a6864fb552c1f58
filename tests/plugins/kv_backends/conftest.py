"""Makes the helper modules of this folder importable by the tests in its subfolders."""
