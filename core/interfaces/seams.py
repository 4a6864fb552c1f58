"""The seams: what a plugin implements and what the mechanism promises it in return.

Nothing here imports torch; tensors appear in annotations alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from turnout.core.errors import ModelError

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from turnout.core.interfaces.eviction import EvictionPolicy
    from turnout.core.interfaces.resources import Resources
    from turnout.core.types.decision import Chosen, Completion, Continuation
    from turnout.core.types.messages import KVSnapshot, PinnedPrefix
    from turnout.core.types.model_spec import ModelSpec
    from turnout.core.types.plan import Logits, Move, Plan, StepShape
    from turnout.core.types.request import Request
    from turnout.core.types.request import Sequence as TokenSequence
    from turnout.core.types.sampling_params import SamplingParams
    from turnout.kernels import Kernels

__all__ = [
    "Adopter",
    "Attend",
    "AttentionBackend",
    "CapturableAttention",
    "Decoding",
    "KVBackend",
    "KVCache",
    "ModelFamily",
    "PoolSize",
    "PrefixPins",
    "Quantizer",
    "RotatingAttend",
    "Runner",
    "Span",
]

# ------------------------------------------------------------------ KV memory


class Span(NamedTuple):
    """Positions of a sequence that a step computes: its KV memory must reach to `upto`."""

    sequence: TokenSequence
    start: int
    """What is computed, attached or cached already; the first position to be written."""
    upto: int

    @property
    def tokens(self) -> int:
        return self.upto - self.start


@dataclass(frozen=True)
class PoolSize:
    """What a KV backend may use, in token positions."""

    tokens: int
    """In the pool, on the device."""
    parking: int = 0
    """In host memory, where preempted requests are parked; 0: nothing ever is."""


class KVCache(Protocol):
    """Host half of a KV backend: who holds which memory, in integers.

    A query changes nothing; a transition is all or nothing.
    """

    @property
    def free(self) -> int:
        """Token positions that could be reserved now."""
        ...

    @property
    def capacity(self) -> int:
        """Token positions in the whole pool."""
        ...

    def cached(self, sequence: TokenSequence) -> int:
        """How many leading tokens of a sequence that holds nothing would need no compute.

        Because others computed them, or because they are parked in host memory.
        """
        ...

    def parkable(self, sequences: Sequence[TokenSequence]) -> int:
        """Positions that `release` would copy to host memory to keep them; 0: there is no room there."""
        ...

    def holds(self, length: int, sequences: int) -> bool:
        """Could an empty pool hold that many sequences of that many tokens, sharing nothing?"""
        ...

    def fits(self, spans: Sequence[Span]) -> bool:
        """Would `reserve` succeed?"""
        ...

    def reserve(self, spans: Sequence[Span]) -> bool:
        """Take memory for all of `spans`, or change nothing and return False.

        A sequence that holds nothing attaches to the prefix that `cached` reported, as far as its span's
        start, and what is parked of it is restored. Memory shared with another sequence is copied here
        before it is written to. What that takes is queued as `Move`s.
        """
        ...

    def commit(self, sequence: TokenSequence, upto: int) -> None:
        """Positions below `upto` are final and may be shared from now on. Frees nothing."""
        ...

    def fork(self, parent: TokenSequence, child: TokenSequence) -> None:
        """`child` shares all that `parent` holds; what was committed of it is final for both. Cannot fail."""
        ...

    def release(self, sequences: Iterable[TokenSequence], *, keep: bool = False) -> None:
        """Give back what they hold, in the pool and in host memory; one that holds nothing is fine.

        `keep`: park what is computed of them in host memory, all of it or, where there is no room, nothing.
        """
        ...

    def drain(self) -> list[Move]:
        """The moves queued since the last call, to be carried out in this order before the step."""
        ...

    def snapshot(self) -> KVSnapshot:
        """How the pool stands; cheap enough to be asked every second."""
        ...

    @property
    def prefixes(self) -> PrefixPins | None:
        """Where prefixes can be pinned; None: this backend keeps none."""
        ...


class PrefixPins(Protocol):
    """Prefixes whose cached memory is given up last, when a running request needs it.

    Pinned by their tokens: computed or not, whoever computes them keeps them.
    """

    def pin(self, name: str, tokens: Sequence[int], salt: str) -> PinnedPrefix:
        """Keep this prefix, replacing what had the same name.

        Raises ConfigError when the pool is too small for it, or it is too short to be kept.
        """
        ...

    def unpin(self, name: str) -> bool:
        """False: no prefix has that name."""
        ...

    def pinned(self) -> list[PinnedPrefix]: ...


class Attend(Protocol):
    """What a model sees of attention."""

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Write this step's `k`, `v` and attend with `q`, causally, each sequence to itself.

        q: [tokens, heads, head_dim]; k, v: [tokens, kv_heads, head_dim], rotated already.
        Returns [tokens, heads, head_dim], in q's dtype.
        """
        ...


class RotatingAttend(ABC):
    """An attention backend that rotates queries and keys itself, in the pass that writes keys and values.

    Models whose kernels are fused ask for that; others call it as any `Attend`.
    """

    @abstractmethod
    def rotating(self, layer: int, q: Tensor, k: Tensor, v: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """As `Attend`, but q and k are not rotated yet; q is overwritten.

        cos, sin: [tokens, 1, head_dim], the same in both halves of a head.
        """


class PicksRows(ABC):
    """A model that computes what follows its last attention for those rows alone that somebody wants.

    Of a prompt that is usually its last token. Other models are called without `rows`.
    """

    @abstractmethod
    def forward(
        self, tokens: Tensor, positions: Tensor, attend: Attend, rows: Tensor | None = None
    ) -> Tensor:
        """As `ModelFamily.build` says, but hidden [rows, hidden_size] where `rows` says which: int64
        [rows], ascending. None: all."""


class AttentionBackend(Attend, Protocol):
    """Device half of a KV backend: owns the KV tensors, the only reader of block tables."""

    def move(self, moves: Sequence[Move]) -> None:
        """Carry the host half's copies out, in order."""
        ...

    def bind(self, plan: Plan) -> None:
        """Build what the step's attention calls need, once for all layers."""
        ...

    def shape(self, plan: Plan) -> Hashable | None:
        """Asked only of a `CapturableAttention`, which says what it means; None for all others."""
        ...


class CapturableAttention(ABC):
    """An attention backend whose steps may be captured in a graph and replayed."""

    @abstractmethod
    def shape(self, plan: Plan) -> StepShape | None:
        """Steps of equal shape may replay one captured graph; None: this one is not captured.

        Tokens of a chunk lie where they would in a step that is not padded.
        """

    @abstractmethod
    def bind_to(self, plan: Plan, shape: StepShape) -> Attend:
        """In place of `bind`, for a plan of this shape: what attends, the same object for equal shapes.

        It reads of the plan only what is in device memory, which stays in place from one call to the next:
        that is what a graph replays. Tokens beyond those of the plan are nobody's, and written nowhere.
        """


class KVBackend(ABC):
    """The plugin: a matching pair of halves and its arithmetic."""

    def bytes_per_token(self, spec: ModelSpec, itemsize: int) -> int:
        """Bytes of KV memory a token position costs over all layers."""
        return 2 * spec.layers * spec.kv_heads * spec.head_dim * itemsize

    unit: int = 1
    """Token positions that it gives out at a time: the size of its blocks, if it has blocks."""
    grows_at: int | None = None
    """A sequence that grows by a token a step, alone of its request, takes memory and shares what it has only
    at multiples of so many positions; 0: never. None: nobody knows. A simulation passes over what is
    between."""
    kernels: Kernels | None = None
    """Compiled kernels to compute with on a CPU, set before `attention` is called; None: there are none."""
    evicts: bool = False
    """It keeps memory that nobody holds, and asks an `EvictionPolicy` what to give up first."""
    approximation: str = ""
    """What it makes of keys and values where that changes what a model says, such as the dtype that they are
    rounded to, or how many are kept. Backends with the same one are expected to say the same; empty: all is
    read as it was written."""

    @abstractmethod
    def cache(self, size: PoolSize, eviction: EvictionPolicy) -> KVCache:
        """The host half, for a pool of at most that many positions."""

    @abstractmethod
    def attention(
        self, spec: ModelSpec, cache: KVCache, device: torch.device, dtype: torch.dtype
    ) -> AttentionBackend:
        """The device half that reads the tables of `cache`."""


# ------------------------------------------------------------------ decoding


class Decoding(ABC):
    """Turns logits into decisions. Knows sequences, never KV memory."""

    streams: ClassVar[bool] = True
    """False: sequences may be dropped or forked late, so clients see only finished ones, whole."""

    wraps: ClassVar[bool] = False
    """True: it serves what others would, so it is on offer only where it is asked for by name."""

    def start(self, resources: Resources) -> None:  # noqa: B027
        """Called once, before the first request; may load a model of its own."""

    @property
    def defaults(self) -> Mapping[str, Any]:
        """Sampling parameters that `--decoding` with this strategy gives to requests that set none."""
        return {}

    @abstractmethod
    def accepts(self, params: SamplingParams) -> bool:
        """Does a request with these parameters ask for this strategy?"""

    def width(self, params: SamplingParams) -> int:
        """How many sequences such a request keeps alive at most."""
        return params.n

    @property
    def rows(self) -> int:
        """Rows of logits that a sequence may have in a step: one, and one more for each guess."""
        return 1

    def draft(self, sequences: Sequence[TokenSequence]) -> Iterable[tuple[TokenSequence, list[int]]]:
        """Guess ahead for some of `sequences`, all one token away from their next logits.

        Guessed tokens are computed in the same step as the last real one, and get logits rows too.
        """
        return ()

    @abstractmethod
    def decide(
        self, requests: Sequence[Request], logits: Logits
    ) -> Iterable[Continuation | Completion] | Chosen:
        """Continue the live sequences of each of `requests`, or complete it.

        Called once a step for all requests of this strategy whose sequences all have logits. A
        sequence named as a parent once continues in place; named again it forks; not named it is
        dropped. Tokens are cut at the first stop by the engine. A `Completion` ends the request with
        choices that the strategy kept itself, in `Request.state`; fewer than `n` are the request's error.

        `Chosen` where it is enough to know that a token was chosen for each: the next step need not wait.
        """

    def forget(self, sequences: Sequence[TokenSequence]) -> None:  # noqa: B027
        """Sequences that ended, however they did, or were dropped: give up what is kept of them."""

    def counters(self) -> Mapping[str, float]:
        """Totals since the start, by name, as the engine's `Stats` report them."""
        return {}


# ------------------------------------------------------------------ models and quantization


class ModelFamily(ABC):
    """A model architecture: how to read its config, build it and name its weights."""

    architectures: ClassVar[tuple[str, ...]]
    """The values of ``architectures`` in ``config.json`` that this family builds."""

    @abstractmethod
    def spec(self, config: Mapping[str, Any]) -> ModelSpec:
        """Read ``config.json``; raises ModelError for what the family does not support."""

    @abstractmethod
    def build(self, spec: ModelSpec) -> nn.Module:
        """The module, built on whatever device and dtype the caller made current.

        ``forward(tokens, positions, attend) -> hidden``: tokens and positions int64 [tokens], hidden
        [tokens, hidden_size] after the final norm; ``logits(hidden) -> [rows, vocab_size]``.
        """

    def rename(self, key: str) -> str | None:
        """A checkpoint's tensor name to the module's; None: skip the tensor."""
        return key


class Quantizer(ABC):
    """Replaces linear layers as their weights stream in."""

    reads_only: ClassVar[bool] = False
    """It cannot quantize: it reads checkpoints of its name, and nobody chooses it."""
    kernels: Kernels | None = None
    """Compiled kernels to compute with on a CPU, set before a layer is converted; None: there are none."""

    @abstractmethod
    def wants(self, name: str, linear: nn.Linear) -> bool:
        """Should the layer of this dotted name be converted?"""

    @abstractmethod
    def convert(self, linear: nn.Linear) -> nn.Module:
        """The layer that takes its place; `linear` holds its weights, on the target device."""

    def convert_named(self, name: str, linear: nn.Linear) -> nn.Module:
        """As `convert`, for those who care which layer it is: what is called."""
        return self.convert(linear)

    def wants_embedding(self, name: str) -> bool:
        """Should the embedding of this dotted name be converted?

        One that is tied to a converted head reads the head's weights then, where these are packed for
        compiled kernels.
        """
        return False

    def convert_embedding(self, embedding: nn.Embedding) -> nn.Module:
        """What takes its place: called only where `wants_embedding` said yes."""
        return embedding

    def adopter(self, config: Mapping[str, Any]) -> Adopter:
        """What reads a checkpoint whose ``quantization_config``, which is `config`, names this quantizer.

        Raises ModelError, naming the key, for what it does not read.
        """
        raise ModelError(
            f"config.json: quantization_config: quant_method = {config.get('quant_method')!r} is not a "
            "format that can be read"
        )


class Adopter(ABC):
    """Builds the layers of a checkpoint that was quantized beforehand."""

    kernels: Kernels | None = None
    """As a `Quantizer`'s, set before a layer is adopted."""

    @abstractmethod
    def adopt(self, name: str, tensors: Mapping[str, Tensor], like: nn.Linear) -> nn.Module:
        """The layer of that dotted name, from all that the checkpoint has for it.

        tensors: on the target device, by the last part of their names, such as ``weight_scale``; a bias in
        the dtype that is computed in, the others as they are stored. like: the layer it stands for, without
        values. Called only for layers with tensors that an `nn.Linear` does not have. Raises ModelError,
        naming the tensor.
        """


# ------------------------------------------------------------------ execution


class Runner(Protocol):
    """Executes plans: on a device, or by a cost model."""

    def run(self, plan: Plan) -> Logits:
        """Carry out the plan's moves, compute its chunks, return the logits rows they want."""
        ...
