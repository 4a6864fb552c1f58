"""A decoding strategy that plays the assistant: what a request's prompt asks for, it says, token by token.

The engine finds this file by `--plugins-folder`, as it finds anyone's plugins.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field
from tokenizers import Tokenizer

from turnout import Decoding, Row, SamplingParams, hookimpl
from turnout.core.errors import RequestError
from turnout.core.interfaces.resources import Resources
from turnout.core.types.decision import Continuation
from turnout.core.types.plan import Logits
from turnout.core.types.request import Request

if TYPE_CHECKING:
    from torch import Tensor

turnout_hook_api = 1

BEGUN = "<|im_start|>assistant\n"


class Played(Decoding):
    """Says the text of the first rule that fits a prompt, whatever the model would say.

    The rules are read anew for each request, and its prompt is written beside them. Where a grammar forbids
    the next token of a text, the request ends with an error: a model that means this could not have said it.
    """

    wraps = True

    def __init__(
        self, script: Annotated[str, Field(description="A file of rules, as `Script` writes it.")]
    ) -> None:
        self._script = Path(script)

    def start(self, resources: Resources) -> None:
        self._tokenizer = Tokenizer.from_file(str(resources.model.folder / "tokenizer.json"))

    def accepts(self, params: SamplingParams) -> bool:
        return not params.use_beam_search

    def check(self, request: Request) -> None:
        prompt = self._tokenizer.decode(request.prompt, skip_special_tokens=False)
        with self._script.with_suffix(".prompts").open("a") as asked:
            asked.write(json.dumps(prompt) + "\n")
        for rule in json.loads(self._script.read_text()):
            if _fits(rule, prompt):
                request.state = self._tokenizer.encode(rule["say"], add_special_tokens=False).ids
                return
        raise RequestError(f"no rule of the script fits the prompt, which ends in: {prompt[-2000:]}")

    def decide(self, requests: Sequence[Request], logits: Logits) -> Iterable[Continuation]:
        from turnout.plugins.decoding.candidates import continue_each

        return continue_each(requests, logits, self._pick)

    def _pick(self, logits: Tensor, rows: list[Row]) -> Tensor:
        import torch

        tokens = [row.request.state[row.output_length] for row in rows]
        for number, (row, token) in enumerate(zip(rows, tokens, strict=True)):
            if logits[number, token] == -torch.inf:
                said = self._tokenizer.decode(row.sequence.output, skip_special_tokens=False)
                raise ValueError(f"after {said!r} the grammar forbids {self._tokenizer.id_to_token(token)!r}")
        return torch.tensor(tokens, device=logits.device)


def _fits(rule: dict[str, Any], prompt: str) -> bool:
    if rule["turn"] is not None and prompt.count(BEGUN) - 1 != rule["turn"]:
        return False
    if rule["unless"] and re.search(rule["unless"], prompt):
        return False
    return all(re.search(pattern, prompt) for pattern in rule["when"])


@hookimpl
def register_decodings(register):
    register("played", Played)
