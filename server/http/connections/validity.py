"""From when to when a certificate is valid, which Python's `ssl` tells only of a peer's."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, Self

__all__ = ["Validity"]

BEGINS, ENDS = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
SOON, SHARE = timedelta(days=7), 10
"""A certificate is to be replaced so long before its end; one of few days, when a tenth of them is left."""
VERSION, UTC_TIME = 0xA0, 0x17
"""Tags of DER."""


class Validity(NamedTuple):
    """When a certificate begins and ends to be valid."""

    begins: datetime
    ends: datetime

    @classmethod
    def of(cls, pem: str) -> Self:
        """Of the first certificate. Raises ValueError or IndexError where that cannot be told."""
        begin = pem.index(BEGINS)
        der = ssl.PEM_cert_to_DER_cert(pem[begin : pem.index(ENDS, begin) + len(ENDS)])
        certificate = _inside(der, 0)
        at = _inside(der, certificate)
        # RFC 5280, 4.1: an optional version, the serial number, the algorithm, the issuer, the validity.
        for _ in range(4 if der[at] == VERSION else 3):
            at = _end(der, at)
        begins = _inside(der, at)
        return cls(_time(der, begins), _time(der, _end(der, begins)))

    def fault(self, now: datetime) -> str:
        """What an operator should know; empty: nothing."""
        if now < self.begins:
            return f"is not valid before {self.begins:%Y-%m-%d %H:%M} UTC; until then, clients refuse it"
        if now > self.ends:
            return f"expired at {self.ends:%Y-%m-%d %H:%M} UTC, so that clients refuse it; replace it"
        if self.ends - now < min(SOON, (self.ends - self.begins) / SHARE):
            return f"expires at {self.ends:%Y-%m-%d %H:%M} UTC; replace it before"
        return ""


def _bounds(der: bytes, at: int) -> tuple[int, int]:
    """Where the content of the element at this position begins and ends."""
    size, begin = der[at + 1], at + 2
    if size & 0x80:  # then as many bytes hold it
        begin += size & 0x7F
        size = int.from_bytes(der[at + 2 : begin])
    return begin, begin + size


def _inside(der: bytes, at: int) -> int:
    return _bounds(der, at)[0]


def _end(der: bytes, at: int) -> int:
    return _bounds(der, at)[1]


def _time(der: bytes, at: int) -> datetime:
    begin, end = _bounds(der, at)
    text = der[begin:end].decode("ascii")
    if der[at] == UTC_TIME:  # two digits for the year, from 1950 on
        text = ("19" if text >= "50" else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
