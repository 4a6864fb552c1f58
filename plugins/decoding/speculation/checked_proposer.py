"""Asks a proposer, and checks its answers.

Errors here are the proposer's: messages name the first argument, as of a method (`plugin_faults.blamed`).
"""

from __future__ import annotations

from collections.abc import Sequence

from turnout.core.engine.decision_checks import check_tokens
from turnout.core.interfaces.proposer import DraftRequest, Proposal, Proposer
from turnout.core.types.request import Sequence as TokenSequence

__all__ = ["backlog", "propose"]


def propose(proposer: Proposer, requests: Sequence[DraftRequest], vocab_size: int) -> list[Proposal]:
    """Returns the proposals that have tokens. Raises ValueError for one that cannot be verified.

    Values of probabilities are not read here, which would wait for the device: `by_rejection` checks them.
    """
    wanted = {request.sequence: request.tokens for request in requests}
    proposals = []
    for proposal in proposer.propose(requests):
        if not isinstance(proposal, Proposal):
            raise ValueError(f"gave {type(proposal).__name__}; expected a Proposal")
        sequence, tokens, probabilities = proposal
        if not isinstance(tokens, list):
            raise ValueError(f"drafted {type(tokens).__name__}; expected a list of tokens")
        if len(tokens) > wanted.pop(sequence, -1):  # each once, empty ones too: an iterator may never end
            raise ValueError(f"{type(proposer).__name__} drafted what was not asked for: {tokens}")
        if tokens:
            check_tokens(tokens, vocab_size)
            if probabilities is not None:
                _check_probabilities(probabilities, [len(tokens), vocab_size])
            proposals.append(proposal)
    return proposals


def backlog(proposer: Proposer, sequence: TokenSequence) -> int:
    """Returns the proposer's backlog of a sequence. Raises TypeError or ValueError if that is no number."""
    return int(proposer.backlog(sequence))


def _check_probabilities(probabilities: object, shape: list[int]) -> None:
    from torch import Tensor

    if not isinstance(probabilities, Tensor):
        raise ValueError(f"gave probabilities as {type(probabilities).__name__}; expected a tensor")
    if list(probabilities.shape) != shape or not probabilities.is_floating_point():
        given = f"{probabilities.dtype} {list(probabilities.shape)}"
        raise ValueError(f"gave probabilities as {given}; expected torch.float32 {shape}")
