"""The process of a rank other than 0: it loads its share, and repeats what rank 0 tells it."""
