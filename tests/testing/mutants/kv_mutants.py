"""Our KV backends, each with one mistake in its host half."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from turnout.core.interfaces.attention import AttentionBackend
from turnout.core.interfaces.compute import ComputeContext
from turnout.core.interfaces.eviction import EvictionPolicy
from turnout.core.interfaces.kv import KVBackend, KVCache, PoolSize, Span
from turnout.core.types.layer_attention import LayerAttention
from turnout.core.types.model_spec import ModelSpec
from turnout.core.types.plan import Move
from turnout.core.types.request import Sequence as TokenSequence
from turnout.plugins.kv_backends.contiguous.backend import Contiguous
from turnout.plugins.kv_backends.paged.backend import Paged

__all__ = ["MUTANTS"]

Break = Callable[[Any], None]
"""Spoils a host half before it is used."""


def leaked_block(kv: Any) -> None:
    """A block that is never given back."""
    release = kv.release

    def forget(sequences: Iterable[TokenSequence], *, swap_out: bool = False) -> None:
        sequences = list(sequences)
        for sequence in sequences:
            if not swap_out and len(kv.tables.get(sequence.id, ())) > 2:
                kv.tables[sequence.id].pop()
        release(sequences, swap_out=swap_out)

    kv.release = forget


def missed_copy_on_write(kv: Any) -> None:
    """Who writes to what it shares writes in place."""
    kv._tables._copy_shared = lambda span, moves: None


def lost_move(kv: Any) -> None:
    """The copy that copy-on-write needs is not handed out."""
    drain = kv.drain
    kv.drain = lambda: [move for move in drain() if move.way != "copy"]


def short_copy(kv: Any) -> None:
    """Copies one position too few."""
    drain = kv.drain

    def shorter() -> list[Move]:
        return [move._replace(length=max(1, move.length - 1)) for move in drain()]

    kv.drain = shorter


def late_moves(kv: Any) -> None:
    """Moves are handed out a step too late."""
    drain, late = kv.drain, [list[Move]()]

    def later() -> list[Move]:
        moves, late[0] = late[0], drain()
        return moves

    kv.drain = later


def ignored_salt(kv: Any) -> None:
    """Prefixes shared between salts."""
    from turnout.plugins.kv_backends.paged.host.block_hashes import extend_hashes

    def extend(sequence: TokenSequence, blocks: int) -> list[bytes]:
        chain = kv._attacher.hashes.setdefault(sequence.id, [])
        return extend_hashes(chain, sequence.tokens, "", kv.block_size, blocks)

    kv._attacher.extend_hashes = extend


def shared_too_early(kv: Any) -> None:
    """Blocks are found before they are computed."""
    reserve = kv.reserve

    def hasty(spans: Sequence[Span]) -> bool:
        done: bool = reserve(spans)
        for sequence, _, upto in spans if done else ():
            kv.commit(sequence, upto)
        return done

    kv.reserve = hasty


def everything_cached(kv: Any) -> None:
    """A prefix that is found leaves nothing to compute."""
    cached = kv.cached
    kv.cached = lambda sequence: min(len(sequence.tokens), cached(sequence) + 1)


def optimistic_fits(kv: Any) -> None:
    """Promises room that is not there."""
    kv.fits = lambda spans: True


def half_done_refusal(kv: Any) -> None:
    """A refusal that keeps what it had taken already."""
    reserve = kv.reserve

    def greedy(spans: Sequence[Span]) -> bool:
        if reserve(spans):
            return True
        first = spans[0]._replace(upto=spans[0].start + 1)
        if kv.fits([first]):
            reserve([first])
        return False

    kv.reserve = greedy


def boastful_holds(kv: Any) -> None:
    """Says that it holds twice what it does."""
    holds = kv.holds
    kv.holds = lambda length, sequences: holds(length // 2, sequences)


def swapped_out_and_lost(kv: Any) -> None:
    """What is swapped out is never taken from host memory again."""
    kv._swap.forget = lambda number: None


def wrong_free(kv: Any) -> None:
    """The snapshot counts a position twice."""
    snapshot = kv.snapshot

    def boast() -> Any:
        import msgspec

        taken = snapshot()
        return msgspec.structs.replace(taken, held=taken.held + (taken.held > 0))

    kv.snapshot = boast


def leaked_slab(kv: Any) -> None:
    """The slabs of a request with several choices are never given back."""
    give_back = kv._give_back_if_unused

    def forget(request: Any) -> None:
        if request.width > 1 and not kv._holdings[request].sequences:
            del kv._holdings[request]
        else:
            give_back(request)

    kv._give_back_if_unused = forget


def shared_slab(kv: Any) -> None:
    """Siblings write to one slab."""
    assign_slab = kv._assign_slab

    def in_place(span: Span) -> None:
        slab = kv.slabs.get(span.sequence.id)
        if slab is None or slab.readers == 1:
            assign_slab(span)

    kv._assign_slab = in_place


class _BrokenPaged(Paged):
    broken: Break

    def cache(self, size: PoolSize, eviction: EvictionPolicy) -> KVCache:
        kv = super().cache(size, eviction)
        type(self).broken(kv)
        return kv


class _BrokenContiguous(Contiguous):
    broken: Break

    def cache(self, size: PoolSize, eviction: EvictionPolicy) -> KVCache:
        kv = super().cache(size, eviction)
        type(self).broken(kv)
        return kv


def _paged(mistake: Break) -> Callable[[], KVBackend]:
    kind = type(mistake.__name__, (_BrokenPaged,), {"broken": staticmethod(mistake)})
    return lambda: kind(block_size=4)


def _contiguous(mistake: Break) -> Callable[[], KVBackend]:
    return type(mistake.__name__, (_BrokenContiguous,), {"broken": staticmethod(mistake)})


Change = Callable[[LayerAttention], LayerAttention]
"""What a backend takes the rule of a layer for."""


class _Misunderstood(Paged):
    change: Change

    def attention(self, spec: ModelSpec, cache: KVCache, context: ComputeContext) -> AttentionBackend:
        rules = tuple(type(self).change(rule) for rule in spec.attention)
        return super().attention(replace(spec, attention=rules), cache, context)


class IgnoresSinks(Paged):
    """The softmax is over positions alone."""

    def attention(self, spec: ModelSpec, cache: KVCache, context: ComputeContext) -> AttentionBackend:
        made: Any = super().attention(spec, cache, context)
        kind = type(made)
        without = type("Without", (kind,), {"__call__": lambda self, *given: kind.__call__(self, *given[:4])})
        made.__class__ = without
        return made  # type: ignore[no-any-return]


def _misunderstood(change: Change) -> Callable[[], KVBackend]:
    kind = type("Misunderstood", (_Misunderstood,), {"change": staticmethod(change)})
    return lambda: kind(block_size=4)


RULES: dict[str, Change] = {
    "window_ignored": lambda rule: replace(rule, window=None),
    "window_too_long": lambda rule: replace(rule, window=rule.window and rule.window + 1),
    "scale_ignored": lambda rule: replace(rule, scale=None),
    "softcap_ignored": lambda rule: replace(rule, softcap=None),
    "first_layer_for_all": lambda rule: replace(rule, kv_from=rule.kv_from and 0),
}
PAGED = [
    leaked_block,
    missed_copy_on_write,
    lost_move,
    short_copy,
    late_moves,
    ignored_salt,
    shared_too_early,
    everything_cached,
    optimistic_fits,
    half_done_refusal,
    boastful_holds,
    swapped_out_and_lost,
    wrong_free,
]
MUTANTS: dict[str, Callable[[], KVBackend]] = {
    **{mistake.__name__: _paged(mistake) for mistake in PAGED},
    **{mistake.__name__: _contiguous(mistake) for mistake in (leaked_slab, shared_slab)},
    **{name: _misunderstood(change) for name, change in RULES.items()},
    "sinks_ignored": IgnoresSinks,
    "rounded_in_secret": lambda: Paged(block_size=4, dtype="int8"),
}
