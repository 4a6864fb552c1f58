"""Guards an eviction policy: checks its answers, and evicts by age from its first fault on."""

from __future__ import annotations

import logging
from array import array
from collections import OrderedDict
from itertools import repeat

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
        self._released = array("q")
        """By block, its number among all releases, from 1 on; 0 for one that the policy may not choose."""
        self._releases = 0
        """How many blocks were released so far."""
        self._count = 0
        """How many blocks the policy may choose among."""
        self._by_age: OrderedDict[int, None] = OrderedDict()
        """Once the policy has failed: the blocks in the order in which they were released."""
        self._plugin_faults = PluginFaults("kv_eviction", logger)

    def __len__(self) -> int:
        return self._count

    def add(self, block: CachedBlock) -> None:
        number = block.block
        self._count += 1
        self._releases += 1
        if self.failed:
            self._by_age[number] = None
            return
        if number >= len(self._released):
            self._released.extend(repeat(0, number + 1))
        self._released[number] = self._releases
        try:
            self.policy.add(block)
        except plugin_errors() as error:
            self._fault("add", error)

    def remove(self, block: int) -> None:
        if self.failed:
            del self._by_age[block]
            self._count -= 1
            return
        if not self._released[block]:
            raise KeyError(block)
        self._released[block] = 0
        self._count -= 1
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
        self._count -= 1
        return self._by_age.popitem(last=False)[0]

    def _chosen(self) -> int:
        """The block that the policy evicts. Raises PolicyError for one that it was not given."""
        block, released = self.policy.pop(), self._released
        if type(block) is not int or not (0 <= block < len(released) and released[block]):
            raise PolicyError(
                f"chose {block!r}; expected one of the {self._count} blocks that it was given by "
                "add() and that were not taken back by remove()"
            )
        released[block] = 0
        self._count -= 1
        return block

    def _fault(self, method: str, error: BaseException) -> None:
        if self.strict:
            raise PolicyError(fault_message(title_of(self.policy, "kv_eviction"), method, error)) from error
        self.failed = True
        given = [block for block, release in enumerate(self._released) if release]
        self._by_age = OrderedDict.fromkeys(sorted(given, key=self._released.__getitem__))
        self._released = array("q")
        self._plugin_faults.report(self.policy, method, error)
