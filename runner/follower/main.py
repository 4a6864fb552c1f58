"""A follower's process: ``python -m turnout.runner.follower.main``, started by `Ranks`.

It has its share of the weights, KV memory of its own and a runner, and repeats what frames say. It builds no
policy but the KV backend, whose bookkeeping is the same on all ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from torch import Tensor

from turnout.core.interfaces.kv import PoolSize
from turnout.core.process import freeze_garbage
from turnout.core.registry.registry import Registry
from turnout.core.types.logprobs import TokenLogprobs
from turnout.core.types.plan import Chunk
from turnout.core.types.request import Sequence as TokenSequence
from turnout.runner.checkpoint import open_checkpoint
from turnout.runner.compute_setup import ComputeSetup
from turnout.runner.execution.model_runner import ModelRunner
from turnout.runner.execution.prompt_logprobs import Head, scored_rows
from turnout.runner.fingerprint import checkpoint_digest
from turnout.runner.kv_memory import KVHalves
from turnout.runner.memory.budget import weight_bytes
from turnout.runner.policies import build_kv, kv_for_model
from turnout.runner.ranks.follower_channel import FollowerChannel, follower_channel
from turnout.runner.ranks.measuring import Measuring, follow_measuring
from turnout.runner.ranks.rank_zero import Loaded
from turnout.runner.ranks.replay import Follower, followed_eviction
from turnout.runner.ranks.rooms import room_of_rank
from turnout.runner.ranks.share import RankShare
from turnout.runner.weights import load_weights

__all__ = ["follow", "main"]


def main() -> None:
    """Follow rank 0 until it closes the channel."""
    with follower_channel() as channel:
        follow(channel)


def follow(channel: FollowerChannel) -> None:
    """Loads this rank's share, then takes frame by frame."""
    config, registry = channel.config, Registry.of(channel.config)
    checkpoint = open_checkpoint(
        registry,
        config.model,
        config.revision,
        config.model_impl,
        trust_remote_code=config.trust_remote_code,
        overrides=config.hf_overrides,
    )
    setup = ComputeSetup.chosen(config, checkpoint.spec)
    shards = RankShare.of(config, channel.meetings, channel.rank, checkpoint.family, checkpoint.spec).shards
    kv = kv_for_model(build_kv(registry, config), shards.spec)
    model = load_weights(
        registry, checkpoint, config.quantization, setup.context, progress=False, shards=shards
    )
    halves = KVHalves(kv, shards.kv_spec, setup.context)
    loaded = Loaded(
        weight_bytes(model),
        checkpoint_digest(checkpoint),
        room_of_rank(config, kv, shards.kv_spec, setup.context),
    )
    channel.say(msgspec.msgpack.encode(loaded))
    frames = channel.frames()
    first = next(frames, None)
    if (asked := Measuring.of(first)) is not None:
        room = halves.cache(PoolSize(asked.room, asked.room), followed_eviction()[0])
        follow_measuring(ModelRunner(model, halves.attention(room), setup.device), room, asked, frames)
        del room
        first = next(frames, None)
    if first is None:
        return  # rank 0 could not go on
    eviction, victims = followed_eviction()
    cache = halves.cache(PoolSize(*msgspec.msgpack.decode(first)), eviction)
    runner = ModelRunner(
        model,
        halves.attention(cache),
        setup.device,
        setup.capture,
        score_prompts=_add_to_scores,
    )
    follower = Follower(cache, victims, runner)
    with freeze_garbage():
        for frame in frames:
            follower.take(frame)


def _add_to_scores(
    chunks: Sequence[Chunk], hidden: Tensor, logits: Head
) -> Mapping[TokenSequence, list[TokenLogprobs]]:
    """Computes this rank's part of the logits that rank 0 scores prompts by, in the same pieces."""
    for _, rows in scored_rows(chunks, hidden):
        for piece in rows:
            logits(piece)
    return {}


if __name__ == "__main__":
    main()
