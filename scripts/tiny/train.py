"""Train turnout-tiny, then its draft: `python -m turnout.scripts.tiny.train`."""

import time
from dataclasses import dataclass
from math import inf
from pathlib import Path

import click
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, kl_div
from transformers import (
    AutoModelForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from turnout.models.tiny.corpus import load_corpus
from turnout.scripts.tiny.architecture import DRAFT, TARGET, model_config
from turnout.scripts.tiny.evaluate import evaluate, greedy_agreement, held_out
from turnout.scripts.tiny.export import export
from turnout.scripts.tiny.loop import LossFunction, TrainingSettings, train
from turnout.scripts.tiny.tokenizer import encode_documents, load_tokenizer, train_tokenizer

SEED = 20
TARGET_NAME = "turnout-tiny"
DRAFT_NAME = "turnout-tiny-draft"


def next_token_loss(model: PreTrainedModel) -> LossFunction:
    def loss(inputs: Tensor, targets: Tensor) -> Tensor:
        logits = model(input_ids=inputs, use_cache=False).logits
        return cross_entropy(logits.float().flatten(0, 1), targets.flatten())

    return loss


def distillation_loss(model: PreTrainedModel, teacher: PreTrainedModel) -> LossFunction:
    """Match the teacher's whole distribution: a draft is judged by agreeing with it."""

    def loss(inputs: Tensor, targets: Tensor) -> Tensor:
        with torch.no_grad():
            wanted = teacher(input_ids=inputs, use_cache=False).logits.float().log_softmax(-1)
        given = model(input_ids=inputs, use_cache=False).logits.float().log_softmax(-1)
        divergence = kl_div(given, wanted, reduction="sum", log_target=True)
        return divergence / targets.numel()

    return loss


@dataclass(frozen=True)
class Workshop:
    """What both trainings share."""

    tokenizer: PreTrainedTokenizerFast
    tokens: Tensor
    device: str
    compiled: bool
    export_every: int

    def train_target(self, settings: TrainingSettings, folder: Path) -> None:
        model = self._new_model(TARGET)
        self._train(model, next_token_loss(model), settings, folder)

    def train_draft(self, settings: TrainingSettings, target: Path, folder: Path) -> None:
        teacher = self._prepare(AutoModelForCausalLM.from_pretrained(target))
        model = self._new_model(DRAFT)
        self._train(model, distillation_loss(model, teacher), settings, folder)

    def _train(
        self, model: PreTrainedModel, loss: LossFunction, settings: TrainingSettings, folder: Path
    ) -> None:
        """What is exported on the way is usable, only worse."""

        def save(steps_done: int) -> None:
            if steps_done % self.export_every == 0:
                export(model, self.tokenizer, folder)

        train(model, self.tokens, loss, settings, save)
        export(model, self.tokenizer, folder)

    def _new_model(self, shape: Qwen2Config) -> PreTrainedModel:
        torch.manual_seed(SEED)
        return self._prepare(Qwen2ForCausalLM(model_config(shape, self.tokenizer)))

    def _prepare(self, model: PreTrainedModel) -> PreTrainedModel:
        if self.compiled:
            model.compile(dynamic=False)  # in place; two window lengths, two graphs
        model.to(self.device)  # type: ignore[arg-type]
        return model


def report(out: Path) -> None:
    """Measure what was exported: bfloat16 weights, computed with in float32."""
    data = held_out(out / TARGET_NAME)
    target = AutoModelForCausalLM.from_pretrained(out / TARGET_NAME)
    click.echo(f"{TARGET_NAME}: {evaluate(target, data)}")
    if (out / DRAFT_NAME).exists():
        draft = AutoModelForCausalLM.from_pretrained(out / DRAFT_NAME)
        click.echo(f"{DRAFT_NAME}: {evaluate(draft, data)}")
        click.echo(f"greedy agreement: {greedy_agreement(draft, target, data):.1%}")


@click.command()
@click.option("--out", type=click.Path(path_type=Path), default=Path("models/tiny"))
@click.option("--steps", default=680, help="Of turnout-tiny; 0 keeps the one in OUT.")
@click.option("--draft-steps", default=270, help="Of turnout-tiny-draft; 0 trains none.")
@click.option("--minutes", default=inf, help="At most, for turnout-tiny.")
@click.option("--draft-minutes", default=inf, help="At most, for the draft.")
@click.option("--export-every", default=100, help="Steps between early exports.")
@click.option("--compile", "compiled", is_flag=True, help="Faster; needs a C++ compiler.")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu")
def main(
    out: Path,
    steps: int,
    draft_steps: int,
    minutes: float,
    draft_minutes: float,
    export_every: int,
    compiled: bool,
    device: str,
) -> None:
    """Train both models on the standard library and write them under OUT."""
    started = time.monotonic()
    texts = [document.text for document in load_corpus().train]
    target = out / TARGET_NAME
    tokenizer = train_tokenizer(texts) if steps else load_tokenizer(target)
    tokens = torch.tensor(encode_documents(tokenizer, texts))
    click.echo(f"{len(tokens)} training tokens, {torch.get_num_threads()} threads")
    workshop = Workshop(tokenizer, tokens, device, compiled, export_every)
    if steps:
        workshop.train_target(TrainingSettings(steps, minutes), target)
    if draft_steps:
        workshop.train_draft(TrainingSettings(draft_steps, draft_minutes), target, out / DRAFT_NAME)
    click.echo(f"trained in {(time.monotonic() - started) / 60:.0f} minutes")
    report(out)


if __name__ == "__main__":
    main()
