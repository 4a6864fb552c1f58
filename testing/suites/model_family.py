"""The conformance suite of model families."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ClassVar

from turnout.core.errors import ModelError
from turnout.core.interfaces.models import ModelFamily
from turnout.core.types.layer_attention import LayerAttention
from turnout.core.types.model_spec import ModelSpec
from turnout.testing.suites.suite import Suite, not_for_it, skip

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["ModelFamilySuite"]

Split = Sequence[tuple[int, int]]
"""The sequence, and the number of tokens, of each piece that is computed, in order."""


class ModelFamilySuite(Suite[ModelFamily]):
    """A small model of the family gives the same logits in a flat batch, in chunks and alone."""

    kind = "model"

    config: ClassVar[Mapping[str, Any]] = {}
    """A small model's ``config.json``; it must be given."""
    refused: ClassVar[Sequence[Mapping[str, Any]]] = ()
    """Changes of `config` that the family does not support, and must refuse."""
    reference: ClassVar[Callable[[nn.Module, list[int]], Tensor] | None] = None
    """A function of the family's module and tokens: another implementation's logits, [tokens, vocab_size]."""
    tolerance: ClassVar[float] = 1e-4
    """Largest difference between logits, relative to the largest logit or to 1."""

    @cached_property
    def family(self) -> ModelFamily:
        """The object that all methods are called of, as in a server."""
        return self.make()

    def test_it_names_its_architectures(self) -> None:
        names = self.family.architectures
        assert names and all(isinstance(name, str) for name in names), (
            f"`architectures` is {names!r}; expected a name or more"
        )

    def test_the_spec_describes_the_config(self) -> None:
        spec = self._spec()
        assert spec.architecture in self.family.architectures, (
            f"`spec` has the architecture {spec.architecture!r}; expected one of "
            f"{list(self.family.architectures)}"
        )
        assert spec.heads % spec.kv_heads == 0, (
            f"`spec` has {spec.heads} heads and {spec.kv_heads} KV heads; expected a multiple"
        )
        sizes = (spec.vocab_size, spec.hidden_size, spec.layers, spec.head_dim, spec.max_positions)
        assert all(size > 0 for size in sizes), f"`spec` has sizes of 0 or less: {spec}"

    def test_unsupported_configs_are_refused(self) -> None:
        self._spec()
        for change in self.refused:
            try:
                self.family.spec({**self.config, **change})
            except ModelError:
                continue
            raise AssertionError(
                f"`spec` accepted a config with {dict(change)}; expected a ModelError that names the key, "
                "since answers would be wrong"
            )

    def test_parameters_are_built_without_storage(self) -> None:
        """On the meta device, parameters have no storage: a model must not be in memory twice."""
        import torch

        spec = self._spec()
        with torch.device("meta"):
            model = self.family.build(spec)
        held = [name for name, parameter in model.named_parameters() if parameter.device.type != "meta"]
        assert not held, (
            f"`build` gave the parameter {held[0]} storage on the meta device; create parameters without "
            "naming a device"
        )
        lost = [name for name, buffer in model.named_buffers() if buffer.device.type == "meta"]
        assert not lost, (
            f"`build` left the buffer {lost[0]} without values, which no checkpoint has; create it with "
            "device='cpu'"
        )

    def test_chunks_give_the_same_logits(self) -> None:
        model, tokens = self._model(), self._tokens(17)
        whole = self._run(model, [tokens], [(0, 17)])[0]
        for pieces in ([5, 12], [1] * 17, [16, 1]):
            chunked = self._run(model, [tokens], [(0, piece) for piece in pieces])[0]
            self._near(chunked, whole, f"a sequence in chunks of {pieces}, compared with the whole")

    def test_a_sequence_does_not_see_others_in_its_batch(self) -> None:
        model, one, other = self._model(), self._tokens(9), self._tokens(14, seed=2)
        together = self._run(model, [one, other], [(0, 4), (1, 14), (0, 5)])
        for tokens, found in zip((one, other), together, strict=True):
            self._near(
                found,
                self._run(model, [tokens], [(0, len(tokens))])[0],
                "a sequence in a batch, compared with alone",
            )

    def test_logits_are_finite_and_cover_the_vocabulary(self) -> None:
        model, spec = self._model(), self._spec()
        (logits,) = self._run(model, [self._tokens(6)], [(0, 6)])
        assert logits.shape == (6, spec.vocab_size), (
            f"`logits` of 6 tokens have shape {list(logits.shape)}; expected {[6, spec.vocab_size]}"
        )
        assert logits.isfinite().all(), "`logits` gave NaN or infinity for random weights"

    def test_a_checkpoint_of_transformers_gives_its_logits(self) -> None:
        """transformers writes a random checkpoint of `config`, which is loaded as a server would."""
        self._spec()
        import torch

        from turnout.core.interfaces.compute import ComputeContext
        from turnout.models.checkpoints.checkpoint import read_config
        from turnout.models.checkpoints.loading import load_model
        from turnout.testing.checks.transformers_model import TransformersModel

        try:
            theirs = TransformersModel(self.config)
        except ModelError as error:
            not_for_it(str(error))
        with TemporaryDirectory() as folder:
            theirs.save(Path(folder))
            config = read_config(Path(folder))
            spec = self.family.spec(config)
            spec = spec if spec.config else replace(spec, config=config)
            context = ComputeContext(torch.device("cpu"), torch.float32)
            model = load_model(Path(folder), self.family, spec, context, progress=False)
        tokens = self._tokens(23)
        found = self._run(model, [tokens], [(0, 23)])[0]
        self._near(found, theirs.logits(tokens), "a checkpoint of transformers, compared with it")

    def test_logits_match_the_reference(self) -> None:
        if type(self).reference is None:
            if self.config.get("model_type"):
                not_for_it("transformers is the reference")
            skip("no reference implementation is given (`reference`)")
        model, tokens = self._model(), self._tokens(23)
        wanted = type(self).reference(model, tokens)  # type: ignore[misc]
        self._near(self._run(model, [tokens], [(0, 23)])[0], wanted, "compared with `reference`")

    # -------------------------------------------------------------- details

    def _spec(self) -> ModelSpec:
        if not self.config:
            skip("no small model's config is given (`config`)")
        spec = self.family.spec(self.config)
        return spec if spec.config else replace(spec, config=self.config)

    def _tokens(self, length: int, seed: int = 1) -> list[int]:
        vocabulary = self._spec().vocab_size
        return [(seed * 7919 + 31 * i * i) % vocabulary for i in range(length)]

    def _model(self) -> nn.Module:
        """A model with random weights."""
        import torch

        spec = self._spec()
        model = self.family.build(spec).requires_grad_(False).float()
        generator = torch.Generator().manual_seed(3)
        for parameter in model.parameters():
            scale = parameter.shape[-1] ** -0.5 if parameter.dim() > 1 else 0.2
            drawn = torch.randn(parameter.shape, generator=generator) * scale
            parameter.copy_(drawn + (1.0 if parameter.dim() == 1 else 0.0))
        return model

    def _run(self, model: nn.Module, sequences: Sequence[list[int]], split: Split) -> list[Tensor]:
        """The logits of each sequence, [tokens, vocab_size], computed in the pieces of `split`."""
        import torch

        spec = self._spec()
        if spec.encoder or not spec.generates:
            not_for_it("its models have no `logits`")
        done = [0] * len(sequences)
        found: list[list[Tensor]] = [[] for _ in sequences]
        memory = _Memory(spec)
        for batch in _batches(split):
            tokens, positions = list[int](), list[int]()
            for number, count in batch:
                tokens += sequences[number][done[number] : done[number] + count]
                positions += range(done[number], done[number] + count)
                done[number] += count
            memory.batch = batch
            with torch.inference_mode():
                hidden = model(torch.tensor(tokens), torch.tensor(positions), memory)
                logits = model.logits(hidden)  # type: ignore[operator]  # nn.Module's methods are untyped
            for (number, _), piece in zip(
                batch, torch.split(logits, [count for _, count in batch]), strict=True
            ):
                found[number].append(piece)
        return [torch.cat(pieces) for pieces in found]

    def _near(self, found: Tensor, wanted: Tensor, what: str) -> None:
        off = (found - wanted).abs().max().item()
        most = self.tolerance * max(1.0, wanted.abs().max().item())
        assert off <= most, f"{what}: logits are off by {off:g}; expected at most {most:g} (`tolerance`)"


def _batches(split: Split) -> list[list[tuple[int, int]]]:
    """Consecutive pieces that may share a batch: a sequence is in a batch once."""
    batches: list[list[tuple[int, int]]] = []
    for piece in split:
        if not batches or any(piece[0] == number for number, _ in batches[-1]):
            batches.append([])
        batches[-1].append(piece)
    return batches


class _Memory:
    """Attention by the rules of `spec`, over all keys and values that each sequence has written so far."""

    def __init__(self, spec: ModelSpec) -> None:
        self.batch: list[tuple[int, int]] = []
        self._rules = spec.layer_attention()
        self._written: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}

    def __call__(
        self, layer: int, q: Tensor, k: Tensor | None, v: Tensor | None, sinks: Tensor | None = None
    ) -> Tensor:
        import torch

        from turnout.models.transformers_adapter.exchange.dense import attended

        assert 0 <= layer < len(self._rules), (
            f"the model attends in layer {layer}; expected 0 to {len(self._rules) - 1}, as `spec` has layers"
        )
        rule = self._rules[layer]
        _check_shapes(layer, rule, q, k, v, sinks)
        counts, found = [count for _, count in self.batch], []
        for place, (number, _) in enumerate(self.batch):
            if k is not None:
                keys = torch.split(k, counts)[place]
                values = keys[..., : rule.value_dim] if v is None else torch.split(v, counts)[place]
                self._write((layer, number), keys, values)
            source = layer if rule.kv_from is None else rule.kv_from
            found.append(attended(torch.split(q, counts)[place], *self._written[source, number], rule, sinks))
        return torch.cat(found)

    def _write(self, place: tuple[int, int], keys: Tensor, values: Tensor) -> None:
        import torch

        if place in self._written:
            before = self._written[place]
            keys, values = torch.cat([before[0], keys]), torch.cat([before[1], values])
        self._written[place] = keys, values


def _check_shapes(
    layer: int,
    rule: LayerAttention,
    q: Tensor,
    k: Tensor | None,
    v: Tensor | None,
    sinks: Tensor | None,
) -> None:
    """KV memory is built for what `spec` says."""
    own = rule.kv_from is None
    for name, given, expected in (
        ("queries", q, (rule.heads, rule.key_dim)),
        ("keys", k, (rule.kv_heads, rule.key_dim) if own else None),
        ("values", v, (rule.kv_heads, rule.value_dim) if own and not rule.values_in_keys else None),
        ("sinks", sinks, (rule.heads,) if rule.sinks else None),
    ):
        found = None if given is None else tuple(given.shape) if name == "sinks" else tuple(given.shape[1:])
        assert found == expected, (
            f"the model attends in layer {layer} with {name} of {found}; expected {expected}, as `spec` says"
        )
