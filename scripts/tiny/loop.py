"""The training loop: batches of windows, two optimizers, one learning-rate schedule."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import click
import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_
from transformers import PreTrainedModel

from turnout.scripts.tiny.muon import Muon

LossFunction = Callable[[Tensor, Tensor], Tensor]
"""(inputs, targets), both [windows, length], to the mean loss."""

LOG_EVERY = 10


@dataclass(frozen=True)
class TrainingSettings:
    """How long to train, and at which learning rate. It ends after `steps` or `minutes`."""

    steps: int
    minutes: float
    peak_lr: float = 5e-3
    warmup_steps: int = 40
    tokens_per_step: int = 4096
    length: int = 512
    long_length: int = 2048
    long_every: int = 10
    seed: int = 0

    def progress(self, step: int, seconds: float) -> float:
        return max(step / self.steps, seconds / 60 / self.minutes)

    def learning_rate(self, step: int, progress: float) -> float:
        """Linear up by steps, then linear down to zero at the end."""
        return self.peak_lr * min(1.0, (step + 1) / self.warmup_steps) * (1 - progress)

    def window_length(self, step: int) -> int:
        """One step in ten sees long windows, so that late positions are trained too."""
        return self.long_length if step % self.long_every == 1 else self.length


def batches(tokens: Tensor, settings: TrainingSettings) -> Iterator[tuple[Tensor, Tensor]]:
    """One (inputs, targets) a step."""
    windows = {
        length: _windows(tokens, length, torch.Generator().manual_seed(settings.seed + length))
        for length in (settings.length, settings.long_length)
    }
    for step in range(settings.steps):
        length = settings.window_length(step)
        batch = torch.stack(list(islice(windows[length], settings.tokens_per_step // length)))
        yield batch[:, :-1], batch[:, 1:]


def train(
    model: PreTrainedModel,
    tokens: Tensor,
    loss_function: LossFunction,
    settings: TrainingSettings,
    after_step: Callable[[int], None],
) -> None:
    """Train in place. `after_step` is called with the number of steps done."""
    optimizers = _optimizers(model, settings)
    started = time.monotonic()
    for step, (inputs, targets) in enumerate(batches(tokens, settings)):
        progress = settings.progress(step, time.monotonic() - started)
        if progress >= 1:
            break
        with torch.autocast("cuda", torch.bfloat16, enabled=model.device.type == "cuda"):
            loss = loss_function(inputs.to(model.device), targets.to(model.device))
        loss.backward()  # type: ignore[no-untyped-call]
        clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            _set_learning_rate(optimizer, settings.learning_rate(step, progress))
            optimizer.step()
            optimizer.zero_grad()
        if step % LOG_EVERY == 0:
            seconds = time.monotonic() - started
            click.echo(f"step {step} loss {loss.item():.3f} {seconds:.0f}s {progress:.1%}")
        after_step(step + 1)


def _windows(tokens: Tensor, length: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Windows of length + 1 that overlap by one token; each epoch cuts them elsewhere."""
    while True:
        offset = int(torch.randint(length, (), generator=generator))
        windows = tokens[offset:].unfold(0, length + 1, length)
        yield from windows[torch.randperm(len(windows), generator=generator)]


def _set_learning_rate(optimizer: torch.optim.Optimizer, learning_rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = learning_rate


def _optimizers(model: PreTrainedModel, settings: TrainingSettings) -> list[torch.optim.Optimizer]:
    """Muon for the layers' matrices, AdamW for the rest; no decay on norms and biases."""
    named = list(model.named_parameters())
    matrices = [p for name, p in named if p.ndim == 2 and ".layers." in name]
    embeddings = [p for name, p in named if p.ndim == 2 and ".layers." not in name]
    vectors = [p for _, p in named if p.ndim < 2]
    groups: list[dict[str, Any]] = [{"params": embeddings}, {"params": vectors, "weight_decay": 0.0}]
    return [
        Muon(matrices, settings.peak_lr, weight_decay=0.1),
        torch.optim.AdamW(groups, settings.peak_lr, betas=(0.9, 0.95), weight_decay=0.1),
    ]
