"""Addresses of workers: names that have IPv4, IPv6 or nothing, and what is no address."""

from __future__ import annotations

import socket
from typing import Any

import pytest
import zmq
from running_server import eventually

from turnout.plugins.launchers import addresses
from turnout.plugins.launchers.addresses import is_address, resolved
from turnout.server.engine.remote.link import made_pair, secured
from turnout.server.worker.door import Door

NAMES = {
    ("four", socket.AF_INET): "127.0.0.1",
    ("both", socket.AF_INET): "127.0.0.1",
    ("both", socket.AF_INET6): "::1",
    ("six", socket.AF_INET6): "::1",
}


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> None:
    def getaddrinfo(host: str, port: None, family: socket.AddressFamily) -> list[Any]:
        if (host, family) not in NAMES:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(family, None, None, "", (NAMES[host, family], 0))]

    monkeypatch.setattr(addresses.socket, "getaddrinfo", getaddrinfo)


def test_a_name_that_has_ipv6_alone_gives_way_to_its_address(names: None) -> None:
    """ZeroMQ does not look for IPv6 by itself; where there is IPv4, workers may listen at that alone."""
    assert resolved("tcp://six:7000") == "tcp://[::1]:7000"
    for kept in ("tcp://four:7000", "tcp://both:7000", "tcp://[::1]:7000", "tcp://*:7000"):
        assert resolved(kept) == kept
    with pytest.raises(OSError, match="Name or service not known"):
        resolved("tcp://nothing:7000")


@pytest.mark.parametrize("name", ["a..b", "a" * 64 + ".b"])
def test_what_is_no_name_of_a_machine_has_no_address(name: str) -> None:
    with pytest.raises(OSError, match="it is no name of a machine"):
        resolved(f"tcp://{name}:7000")


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_a_worker_listens_at_a_name_that_has_ipv6_alone(names: None) -> None:
    """Previously: no such device."""
    public, secret = made_pair()
    door = Door("tcp://six:*", public, secret, public)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        url = resolved(door.url.replace("[::1]", "six"))
        server = secured(context.socket(zmq.DEALER), url)
        server.curve_serverkey = server.curve_publickey = public.encode()
        server.curve_secretkey = secret.encode()
        server.connect(url)
        server.send_multipart([b"kind", b"content"])
        found: list[tuple[bytes, bytes, bytes]] = []
        eventually(lambda: found.extend(door.messages()) or found)
        assert found[0][1:] == (b"kind", b"content")
    finally:
        context.destroy(linger=0)
        door.close()


@pytest.mark.parametrize("listen", ["tcp://127.0.0.1:*", "tcp://0.0.0.0:*", "tcp://*:*", "tcp://lo:*"])
def test_a_worker_listens_at_an_address_at_all_of_them_and_at_an_interface(listen: str) -> None:
    public, secret = made_pair()
    door = Door(listen, public, secret, public)
    assert is_address(door.url)
    door.close()


def test_a_port_is_one_to_65535() -> None:
    assert all(map(is_address, ("tcp://a:1", "tcp://10.0.0.2:65535", "tcp://[fd00::2]:7000")))
    assert not any(map(is_address, ("tcp://a:0", "tcp://a:65536", "tcp://a:99999", "tcp://a", "a:7000")))
