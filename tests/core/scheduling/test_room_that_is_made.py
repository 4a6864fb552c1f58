"""Which requests may have the memory that another gave up."""

from __future__ import annotations

from toy import toy_engine, toy_kv, toy_request

from turnout.core.interfaces.scheduling import SchedulingPolicy


class AdmitsAny(SchedulingPolicy):
    """Any waiting request may be admitted, even if earlier ones are not."""

    head_of_line = False

    def order(self, view):
        return [*view.running, *view.waiting]


def test_no_request_is_admitted_into_what_was_freed_for_a_running_request():
    engine = toy_engine(AdmitsAny(), toy_kv(8, 4))
    engine.add(toy_request("old", [1, 2, 3] * 4, "greedy", 12))
    engine.add(toy_request("young", [3, 2, 1] * 4, "greedy", 12))
    while engine.stats().kv_free:
        engine.step()
    engine.add(toy_request("small", [5], "greedy", 2))
    while not engine.stats().preemptions:
        assert engine.stats().running == 2
        engine.step()
    assert engine.stats().kv_free > 0
    assert [request.id for request in engine.scheduler.queues.running] == ["old"]
    engine.step()
    assert [request.id for request in engine.scheduler.queues.running] == ["old", "small"]
