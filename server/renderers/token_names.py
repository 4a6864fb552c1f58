"""How tokens are named in log-probabilities: by their text, or by their number."""

from __future__ import annotations

from dataclasses import dataclass

from turnout.text.tokenizer import Tokenizer

__all__ = ["TokenNames"]


@dataclass(frozen=True)
class TokenNames:
    """Names tokens for one client."""

    tokenizer: Tokenizer
    as_ids: bool = False
    """vLLM's `return_tokens_as_token_ids`: names are ``token_id:123``, which no two tokens share."""

    def name(self, token: int) -> str:
        """A token's text, or its bytes, as in ``bytes:\\xe4\\xbd``, where it is part of a character."""
        if self.as_ids:
            return f"token_id:{token}"
        spelling = self.tokenizer.token_bytes(token) or b""
        try:
            return spelling.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in spelling)

    def bytes(self, token: int) -> list[int] | None:
        """The bytes of a token's text; None for a token without text."""
        spelling = self.tokenizer.token_bytes(token)
        return None if spelling is None else list(spelling)
