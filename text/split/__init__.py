"""What a client may see of a choice, told apart by the parts of its output."""
