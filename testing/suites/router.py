"""The conformance suite of routers."""

from __future__ import annotations

import random
from collections import Counter
from typing import ClassVar

from turnout.core.interfaces.router import Replica, Routable, Router
from turnout.testing.suites.suite import Suite, not_for_it

__all__ = ["RouterSuite"]

REQUESTS = 200


class RouterSuite(Suite[Router]):
    """The router always returns an existing replica, and the same one for the same requests."""

    kind = "router"
    light = True

    spreads: ClassVar[bool] = True
    """Of a few equal replicas, each gets some of the requests, which come from many sessions."""

    def test_it_returns_an_existing_replica(self) -> None:
        for seed in range(self.trials):
            rng, router = random.Random(seed), self.make()
            for number in range(40):
                # Replicas come and go.
                replicas = _replicas(rng, rng.randint(1, 6))
                chosen = router.route(_request(rng, number), replicas)
                assert isinstance(chosen, int), f"`route` returned {chosen!r}; expected an index, an int"
                assert 0 <= chosen < len(replicas), (
                    f"`route` returned {chosen} for {len(replicas)} replicas; expected 0 to "
                    f"{len(replicas) - 1}"
                )

    def test_the_same_requests_are_routed_the_same_way(self) -> None:
        for seed in range(self.trials):
            ways = [ways_of(self.make(), seed) for _ in range(2)]
            assert ways[0] == ways[1], (
                f"two routers that got the same requests (seed {seed}) chose differently; `route` must "
                "depend only on its arguments and on earlier calls"
            )

    def test_routes_do_not_depend_on_the_hashes_of_strings(self) -> None:
        """A server that is started again, or another one beside it, sends a session to the same replica."""
        self.same_elsewhere(
            ways_of,
            range(min(8, self.trials)),
            "`route` must not depend on `hash` of a string, but may on `hashlib`",
        )

    def test_the_load_is_ignored_unless_the_router_watches_it(self) -> None:
        if self.make().watches:
            not_for_it("the router watches the load (`watches`)")
        busy, idle = self.make(), self.make()
        rng = random.Random(0)
        names = [replica.name for replica in _replicas(rng, 5)]
        for number in range(REQUESTS):
            request = _request(rng, number)
            stand = [Replica(name, rng.randrange(90), rng.randrange(9000)) for name in names]
            chosen = busy.route(request, stand), idle.route(request, [Replica(name, 0, 0) for name in names])
            assert chosen[0] == chosen[1], (
                "`watches` is False, but `route` chose by the requests and tokens that replicas have; set "
                "`watches`, or ignore them"
            )

    def test_every_replica_gets_requests(self) -> None:
        if not self.spreads:
            not_for_it("the router does not claim it (`spreads`)")
        router, rng = self.make(), random.Random(0)
        replicas = [Replica(f"replica-{number}", 0, 0) for number in range(4)]
        counts = Counter(self._sent(router, replicas, rng))
        assert len(counts) == len(replicas), (
            f"of {REQUESTS} requests the replicas got {dict(counts)}; expected some for each of "
            f"{len(replicas)}, or `spreads = False` for a router that means to differ"
        )

    # -------------------------------------------------------------- details

    def _sent(self, router: Router, replicas: list[Replica], rng: random.Random) -> list[int]:
        """Where requests go while each replica keeps the requests that it got."""
        ways = []
        for number in range(REQUESTS):
            request = _request(rng, number)
            chosen = router.route(request, replicas)
            chosen_one, size = replicas[chosen], len(request.prompt) + request.max_tokens
            replicas[chosen] = chosen_one._replace(
                requests=chosen_one.requests + 1, tokens=chosen_one.tokens + size
            )
            ways.append(chosen)
        return ways


def ways_of(router: Router, seed: int) -> list[int]:
    """Where a router that has routed nothing yet sends random requests."""
    rng = random.Random(seed)
    return [router.route(_request(rng, number), _replicas(rng, 4)) for number in range(40)]


def _replicas(rng: random.Random, count: int) -> list[Replica]:
    names = sorted(rng.sample(range(10), count))
    return [Replica(f"replica-{name}", rng.randrange(20), rng.randrange(5000)) for name in names]


def _request(rng: random.Random, number: int) -> Routable:
    prompt = [rng.randrange(1000) for _ in range(rng.choice([3, 40, 700]))]
    session = rng.choice(["", f"session-{rng.randrange(50)}"])
    most = rng.choice([0, rng.randrange(1, 300)])  # none where the client sets no limit, or wants no text
    return Routable(f"r{number}", prompt, most, session, f"client-{rng.randrange(5)}")
