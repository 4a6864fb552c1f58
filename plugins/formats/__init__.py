"""How model families write reasoning and tool calls."""
