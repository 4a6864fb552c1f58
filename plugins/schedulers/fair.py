"""A fair share of service for each client."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Annotated

from pydantic import Field

from turnout.core.errors import ConfigError
from turnout.core.interfaces.scheduling import SchedulingPolicy
from turnout.core.scheduling.order import Order, Stretch
from turnout.core.types.request import RequestView
from turnout.core.types.views import View
from turnout.plugins.schedulers.client_lines import ClientLines
from turnout.plugins.schedulers.fair_shares import FairShares
from turnout.plugins.schedulers.ranking import non_negative

__all__ = ["Fair"]

LEAST_REMEMBERED = 16
"""Idle users that a client keeps in any case."""


class Fair(SchedulingPolicy):
    """Admits the next request of the client that got the least service; no request overtakes it.

    The virtual token counter of Sheng et al., "Fairness in Serving Large Language Models", OSDI 2024.
    Service is counted for each client, in tokens divided by the client's weight: `input_weight` for each
    token of a prompt, when its request is first admitted, and `output_weight` for each token produced. When
    a client queues a request and had none waiting, its counter is raised to the least counter among the
    waiting clients, or, if there are none, to that of the client that left the queue last: a client gains
    nothing by being idle. The requests of a client go in order of arrival, preempted ones first; ties go to
    the client whose next request is ahead in that order. Running requests are served first, and none is
    preempted for a waiting one.

    A client that names users (`RequestView.user`) has its share divided among them in the same way. So a
    client gets no more by naming many.

    Bound, as proven there: the service of two clients that have requests waiting all the time differs, over
    any interval, by ``2 * max(input_weight * longest prompt, output_weight * M)`` at most, where M tokens
    fit in KV memory. With weights, the bound holds for service divided by weight, and is divided by the
    lesser weight of the two.

    Requests that name no client share one counter.
    """

    head_of_line = True

    def __init__(
        self,
        input_weight: Annotated[float, Field(description="What a token of a prompt counts.")] = 1.0,
        output_weight: Annotated[float, Field(description="What a token of output counts.")] = 2.0,
        weights: Annotated[
            dict[str, float] | None,
            Field(description='Weights of clients and of users, such as {"batch": 0.5}; 1 for all others.'),
        ] = None,
        remember: Annotated[
            int,
            Field(description="Idle clients and users that keep their counters; the others start anew."),
        ] = 10_000,
    ) -> None:
        for client, weight in (weights or {}).items():
            if not 0 < weight < math.inf:
                raise ConfigError(f"weights: {client!r} must have a weight above 0, not {weight}")
        self._input = non_negative("input_weight", input_weight)
        self._output = non_negative("output_weight", output_weight)
        self._remember = int(non_negative("remember", remember))
        self._weights = dict(weights or {})
        self._clients = FairShares(self._weights)
        self._users: dict[str, FairShares] = {}
        """The users of each client that names some."""
        self._paid: set[RequestView] = set()
        """The requests whose prompt was charged."""
        self._lines = ClientLines()
        """The requests that waited in the last step."""

    def order(self, view: View) -> Order:
        for request in view.running:
            if request not in self._paid:
                self._charge_prompt(request)
        lines = self._lines
        lines.update(view, self._lift_returning, self._weighed_price)
        if self._users:
            ordered = self._by_service(view.waiting)
            last = ordered[-1].client if ordered else ""
            self._keep_users(view.running, ordered)
            admission: Iterable[RequestView] = ordered
        else:
            counters = {client: self._clients.counters[client] for client in lines.by_client}
            admission, last = lines.by_counter(counters), lines.last(counters)
        self._keep_track(view, last)
        return Order([*view.running, Stretch(admission)])

    def observe(self, request: RequestView, tokens: int, now: float) -> None:
        if request not in self._paid:
            self._charge_prompt(request)
        self._charge(request, self._output * tokens)

    def why(self, request: RequestView) -> str:
        service = self._clients.counters[request.client]
        return (
            f"client {request.client or 'unnamed'}: service {service:.0f}; the client with the least is next"
        )

    def _charge_prompt(self, request: RequestView) -> None:
        self._paid.add(request)
        self._charge(request, self._input * request.prompt_tokens)

    def _charge(self, request: RequestView, service: float) -> None:
        self._clients.counters.charge(request.client, service)
        if self._users and (users := self._users.get(request.client)) is not None:
            users.counters.charge(request.user, service)

    def _lift_returning(self, fresh: Sequence[RequestView]) -> None:
        """Raises the counters of clients and users that have a request waiting now and had none before."""
        self._clients.lift_returning((request.client for request in fresh), self._lines.by_client)
        for request in fresh:
            if request.user and request.client not in self._users:
                self._users[request.client] = FairShares(self._weights)
        if not self._users:
            return
        stayed = self._lines.jobs
        for client, users in self._users.items():
            back = [request.user for request in fresh if request.client == client]
            if back:
                users.lift_returning(back, {other.user: None for other in stayed if other.client == client})

    def _by_service(self, waiting: tuple[RequestView, ...]) -> list[RequestView]:
        """Orders the waiting requests as if they were admitted one by one, each charged to its client.

        The client with the least counter is next. A request is ranked by its client's counter after the
        client's requests before it were charged.
        """
        jobs = self._lines.jobs
        heads: dict[str, float] = {}
        turns: dict[RequestView, float] = {}
        for request in self._by_users(waiting):
            client, price = request.client, jobs[request].price
            if client not in heads:
                heads[client] = self._clients.counters[client]
            turns[request] = turn = heads[client]
            heads[client] = turn + price
        return sorted(waiting, key=turns.__getitem__)

    def _by_users(self, waiting: tuple[RequestView, ...]) -> list[RequestView]:
        """Orders the requests of each client by its users' service; among clients the order says nothing."""
        heads: dict[tuple[str, str], float] = {}
        turns: dict[RequestView, float] = {}
        for request in waiting:
            users = self._users.get(request.client)
            if users is None:
                turns[request] = 0.0
                continue
            named = request.client, request.user
            if named not in heads:
                heads[named] = users.counters[request.user]
            turns[request] = heads[named]
            heads[named] += self._price(request) / self._weights.get(request.user, 1.0)
        return sorted(waiting, key=turns.__getitem__)

    def _weighed_price(self, request: RequestView) -> float:
        return self._price(request) / self._weights.get(request.client, 1.0)

    def _price(self, request: RequestView) -> float:
        """What a request's prompt will be charged."""
        return 0 if request in self._paid else self._input * request.prompt_tokens

    def _keep_track(self, view: View, last: str) -> None:
        """last: the client whose request is last in the queue; empty if none waits."""
        waiting = self._lines.jobs
        if len(self._paid) > len(view.running):  # all running requests have been charged, and others
            running = set(view.running)
            self._paid = {request for request in self._paid if request in running or request in waiting}
        if waiting:
            self._clients.last = last
        counters = self._clients.counters
        limit = self._remember + len(view.running) + len(waiting)
        if len(counters) > limit:
            clients = {request.client for request in view.running}
            counters.forget(clients.union(self._lines.by_client), limit)

    def _keep_users(self, running: Iterable[RequestView], ordered: Iterable[RequestView]) -> None:
        named: dict[str, set[str]] = {}
        for request in (*running, *ordered):
            if request.client in self._users:
                named.setdefault(request.client, set()).add(request.user)
        for request in ordered:
            if request.client in self._users:
                self._users[request.client].last = request.user
        most = max(LEAST_REMEMBERED, self._remember // len(self._users))
        for client, users in named.items():
            self._users[client].counters.forget(users, most + len(users))
        if len(self._users) > self._remember + len(named):
            idle = next(client for client in self._users if client not in named)
            del self._users[idle]
