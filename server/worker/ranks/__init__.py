"""Ranks of an engine whose rank 0 is on another machine.

::

    rank 0 ── sockets ── proxy ── DEALER ═══ CURVE, TCP ═══ ROUTER ── host ── sockets ── follower
"""
