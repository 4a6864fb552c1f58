"""Held-out loss: `python -m turnout.scripts.tiny.evaluate models/tiny/turnout-tiny`."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM, PreTrainedModel

from turnout.models.tiny.corpus import load_corpus
from turnout.scripts.tiny.tokenizer import encode_documents, load_tokenizer

WINDOW = 1024
MAX_TOKENS = 300_000


@dataclass(frozen=True)
class Evaluation:
    nats_per_token: float
    bits_per_byte: float
    tokens: int

    def __str__(self) -> str:
        return (
            f"{self.nats_per_token:.3f} nats/token, {self.bits_per_byte:.3f} bits/byte "
            f"over {self.tokens} held-out tokens"
        )


@dataclass(frozen=True)
class HeldOut:
    """The held-out modules as one stream of tokens, and the bytes these stand for."""

    tokens: Tensor
    bytes: int

    def windows(self) -> Iterator[tuple[Tensor, Tensor]]:
        """(inputs, targets), [1, WINDOW] each: every token but the first is a target once."""
        for start in range(0, len(self.tokens) - 1, WINDOW):
            window = self.tokens[start : start + WINDOW + 1]
            yield window[None, :-1], window[None, 1:]


def held_out(tokenizer_folder: Path) -> HeldOut:
    tokenizer = load_tokenizer(tokenizer_folder)
    texts = [document.text for document in load_corpus().held_out]
    tokens = encode_documents(tokenizer, texts)[:MAX_TOKENS]
    text = str(tokenizer.decode(tokens, skip_special_tokens=True))
    return HeldOut(torch.tensor(tokens), len(text.encode()))


@torch.inference_mode()
def evaluate(model: PreTrainedModel, data: HeldOut) -> Evaluation:
    nats = 0.0
    for inputs, targets in data.windows():
        logits = model(input_ids=inputs.to(model.device), use_cache=False).logits[0]
        nats += cross_entropy(logits.float().cpu(), targets[0], reduction="sum").item()
    predicted = len(data.tokens) - 1
    return Evaluation(nats / predicted, nats / math.log(2) / data.bytes, predicted)


@torch.inference_mode()
def greedy_agreement(draft: PreTrainedModel, target: PreTrainedModel, data: HeldOut) -> float:
    """How often both find the same token most likely: what speculation can accept."""
    agreed = 0
    for inputs, _ in data.windows():
        choices = [
            model(input_ids=inputs.to(model.device), use_cache=False).logits.argmax(-1).cpu()
            for model in (draft, target)
        ]
        agreed += int((choices[0] == choices[1]).sum())
    return agreed / (len(data.tokens) - 1)


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
def main(folder: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder)
    click.echo(str(evaluate(model, held_out(folder))))


if __name__ == "__main__":
    main()
