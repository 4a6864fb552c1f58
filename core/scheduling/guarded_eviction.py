"""Guards an eviction policy: checks its answers, and evicts by age from its first fault on."""

from __future__ import annotations

import logging
from collections import OrderedDict

from turnout.core.errors import PolicyError
from turnout.core.interfaces.eviction import CachedBlock, EvictionPolicy
from turnout.core.plugin_faults import PluginFaults, fault_message, plugin_errors, title_of

__all__ = ["GuardedEviction"]

logger = logging.getLogger(__name__)


class GuardedEviction(EvictionPolicy):
    """Asks an eviction policy until it fails; then evicts the block that was released longest ago.

    A policy that failed once is not asked again: what it knows of the blocks is wrong from then on. Raises
    PolicyError for its faults instead if `strict`.
    """

    def __init__(self, policy: EvictionPolicy, *, strict: bool = False) -> None:
        self.policy = policy
        self.failed = False
        self.strict = strict
        self._given: dict[int, None] = {}
        """Blocks to choose among, in the order in which they were released; of a policy that failed an
        `OrderedDict`, from which the first can be taken quickly."""
        self._plugin_faults = PluginFaults("kv_eviction", logger)

    def __len__(self) -> int:
        return len(self._given)

    def add(self, block: CachedBlock) -> None:
        self._given[block.block] = None
        if self.failed:
            return
        try:
            self.policy.add(block)
        except plugin_errors() as error:
            self._fault("add", error)

    def remove(self, block: int) -> None:
        del self._given[block]
        if self.failed:
            return
        try:
            self.policy.remove(block)
        except plugin_errors() as error:
            self._fault("remove", error)

    def pop(self) -> int:
        if not self.failed:
            try:
                return self._chosen()
            except plugin_errors() as error:
                self._fault("pop", error)
        oldest = next(iter(self._given))
        del self._given[oldest]
        return oldest

    def _chosen(self) -> int:
        """The block that the policy evicts. Raises PolicyError for one that it was not given."""
        block = self.policy.pop()
        if type(block) is not int or block not in self._given:
            raise PolicyError(
                f"chose {block!r}; expected one of the {len(self._given)} blocks that it was given by "
                "add() and that were not taken back by remove()"
            )
        del self._given[block]
        return block

    def _fault(self, method: str, error: BaseException) -> None:
        if self.strict:
            raise PolicyError(fault_message(title_of(self.policy, "kv_eviction"), method, error)) from error
        self.failed = True
        self._given = OrderedDict(self._given)
        self._plugin_faults.report(self.policy, method, error)
