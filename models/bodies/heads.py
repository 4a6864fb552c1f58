"""What a decoder's last hidden state is scored by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from weakref import proxy

from torch import Tensor, nn

from turnout.models.decoder.layers import Linear

__all__ = ["score_layer", "token_score"]


def score_layer(hidden_size: int, labels: int) -> nn.Module:
    """Returns the linear layer of ``…ForSequenceClassification``, [rows, hidden_size] to [rows, labels]."""
    return Linear(hidden_size, labels, bias=False)


def token_score(module: nn.Module, tokens: Sequence[int]) -> Callable[[Tensor], Tensor]:
    """Returns what scores hidden states [rows, hidden_size] by the logits of one token or of two: [rows, 1].

    The score is the first one's logit, less the second's: the log-odds of "yes" against "no".
    """
    model = proxy(module)  # the module holds the function

    def score(pooled: Tensor) -> Tensor:
        logits: Tensor = model.logits(pooled)
        first = logits[:, tokens[0], None]
        return first if len(tokens) == 1 else first - logits[:, tokens[1], None]

    return score
