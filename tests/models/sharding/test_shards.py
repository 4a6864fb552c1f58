"""A model that ranks share computes the logits that it computes whole."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
import torch
from family_checkpoints import FAMILIES, VOCABULARY, write_checkpoint
from ranks_in_threads import PROMPT, Meeting, ThreadCollective, logits_of, on_ranks, shards_of
from torch import nn

from turnout.core.errors import ConfigError
from turnout.models import families
from turnout.models.checkpoints.readers.safetensors_file import SafetensorsFile
from turnout.models.random.shapes import Shape, config_of
from turnout.models.sharding.plan import plan_shards

QUICK = ("qwen3-biased", "olmo2", "gpt2", "phi4-mini")
"""Between them: one KV head on all ranks, norms over what is split, fused and transposed tensors, biases."""


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize(
    "name",
    [pytest.param(each, marks=() if each in QUICK else pytest.mark.slow) for each in FAMILIES],
)
def test_ranks_compute_what_one_device_does(name, size, tmp_path):
    write_checkpoint(name, tmp_path)
    alone = logits_of(tmp_path)
    together, *others = on_ranks(size, lambda collective: logits_of(tmp_path, collective))
    assert alone.shape == (len(PROMPT), VOCABULARY)
    within = 1e-5 * max(1.0, float(alone.abs().max()))  # Granite's logits are large
    torch.testing.assert_close(together, alone, atol=within, rtol=0)
    assert (together.argmax(-1) == alone.argmax(-1)).all()
    assert all(each.shape == (0, VOCABULARY) for each in others)


def test_a_vocabulary_that_ranks_do_not_divide_is_padded(tmp_path):
    """Of 157 tokens, four ranks have 40, 40, 40 and 37."""
    write_checkpoint("qwen3-biased", tmp_path, vocab_size=157)
    alone = logits_of(tmp_path)
    together, *_ = on_ranks(4, lambda collective: logits_of(tmp_path, collective))
    assert together.shape == (len(PROMPT), 157)
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-5)


def test_each_rank_reads_only_its_part(tmp_path, monkeypatch):
    """What is stored as it is comes as a slice of the file; half of a model is read by each of two ranks."""
    write_checkpoint("qwen3", tmp_path)
    read = []
    plain = SafetensorsFile.read

    @contextmanager
    def counting(self, key, take=()):
        with plain(self, key, take) as stored:
            read.append(stored.numel())
            yield stored

    monkeypatch.setattr(SafetensorsFile, "read", counting)
    logits_of(tmp_path)
    whole = sum(read)
    read.clear()
    on_ranks(2, lambda collective: logits_of(tmp_path, collective))
    assert sum(read) < 1.02 * whole


def test_ranks_add_up_twice_a_layer_and_once_for_the_embedding(tmp_path):
    write_checkpoint("qwen3-moe", tmp_path)
    sums = on_ranks(2, lambda collective: (logits_of(tmp_path, collective), collective.sums)[1])
    steps, layers = len(PROMPT) - 14, 4
    assert sums == [steps * (2 * layers + 1)] * 2


# ------------------------------------------------------------------ refusals, by name


@pytest.mark.parametrize(
    ("changes", "size", "message"),
    [
        ({}, 3, r"its attention heads are 4, which 3 does not divide; take 1 or 2 or 4"),
        (
            {"intermediate_size": 90},
            4,
            r"its intermediate_size are 90, which 4 does not divide; take 1 or 2$",
        ),
        (
            {"num_attention_heads": 6, "num_key_value_heads": 2, "hidden_size": 96, "intermediate_size": 96},
            4,
            r"its attention heads are 6, which 4 does not divide; take 1 or 2 or 6$",
        ),
        (
            {"num_attention_heads": 12, "num_key_value_heads": 3, "hidden_size": 96},
            2,
            r"it has 3 KV heads, and neither number divides the other; take one of 1, 3, 6, 12$",
        ),
    ],
)
def test_what_cannot_be_divided_is_refused_with_the_numbers(changes, size, message, tmp_path):
    write_checkpoint("mistral", tmp_path, **changes)
    with pytest.raises(ConfigError, match=f"tensor_parallel_size={size} cannot divide .*{message}"):
        shards_of(tmp_path, size)


class Widened(nn.Module):
    """A layer of a third party, with a parameter for each head."""

    def __init__(self, spec):
        super().__init__()
        self.slopes = nn.Parameter(torch.empty(spec.heads))


class Sloped(families.Llama):
    def build(self, spec):
        decoder = super().build(spec)
        decoder.model.layers[1].self_attn.extra = Widened(spec)
        return decoder


class OfItsOwn(families.Llama):
    def build(self, spec):
        return nn.Linear(spec.hidden_size, spec.hidden_size)


@pytest.mark.parametrize(
    ("family", "message"),
    [
        (Sloped, r"model.layers.1.self_attn.extra, a Widened, would have a part of 'slopes' on each rank"),
        (OfItsOwn, "is run by Linear, whose layers are not known to be divisible"),
    ],
)
def test_layers_that_nobody_proved_are_refused_by_name(family, message, tmp_path):
    shape = Shape(64, 2, 4, 2, 96, 160)
    collective = ThreadCollective(Meeting(2), 0, 2)
    with pytest.raises(ConfigError, match=message):
        plan_shards(family(), family().spec(config_of(shape, "llama")), collective)
