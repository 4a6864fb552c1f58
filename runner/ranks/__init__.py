"""One engine over several processes: rank 0 decides, and followers repeat what it did with their shards."""
