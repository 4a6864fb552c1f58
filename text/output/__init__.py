"""The parts of an assistant's output: text, reasoning and tool calls, told apart by the model's format."""
