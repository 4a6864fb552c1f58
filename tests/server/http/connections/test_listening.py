"""TLS, Unix sockets and prefixes: servers that stand behind others, and clients that reach them."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import subprocess
import time
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import pytest
from click.testing import CliRunner
from running_server import RunningServer, Start, eventually

from turnout.cli.chat import client as chat_client
from turnout.cli.main import cli
from turnout.config import ServerConfig
from turnout.core.errors import ConfigError, TurnoutError
from turnout.server.http.connections import accepting, tls
from turnout.server.http.connections.listening import listening
from turnout.server.http.connections.tls import Certificates, certificates
from turnout.server.http.connections.validity import Validity

HI = [{"role": "user", "content": "abc"}]
CHAT = "/v1/chat/completions"
PASSWORD = "open sesame"
GETADDRINFO = socket.getaddrinfo


def openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for this machine that signs itself, its key, and the key under a password."""
    folder = tmp_path_factory.mktemp("pem")
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    made = ["-newkey", "rsa:2048", "-nodes", "-days", "2"]
    for name in ("own", "other"):
        files = ["-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.crt")]
        openssl("req", "-x509", *made, *names, *files)
    locked = ["-passout", f"pass:{PASSWORD}", "-out", str(folder / "locked.key")]
    openssl("rsa", "-aes256", "-in", str(folder / "own.key"), *locked)
    both = (folder / "own.crt").read_text() + (folder / "own.key").read_text()
    (folder / "both.pem").write_text(both)
    mixed = (folder / "own.crt").read_text() + (folder / "other.key").read_text()
    (folder / "mixed.pem").write_text(mixed)
    (folder / "text.pem").write_text("hello")
    return folder


def files(pem: Path, **names: str) -> dict[str, Any]:
    return {f"ssl_{field}": str(pem / name) for field, name in names.items()}


# ------------------------------------------------------------------ TLS


def test_a_server_speaks_tls(start: Start, pem: Path) -> None:
    server = start(**files(pem, certfile="own.crt", keyfile="own.key"), max_body_size=2**20)
    trusted = ssl.create_default_context(cafile=str(pem / "own.crt"))
    assert server.url.startswith("https://")
    with httpx.Client(base_url=server.url, verify=trusted) as client:
        answer = client.post(CHAT, json={"messages": HI, "max_tokens": 3})
        assert answer.json()["choices"][0]["message"]["content"] == "abc"
        with client.stream("POST", CHAT, json={"messages": HI, "max_tokens": 3, "stream": True}) as stream:
            assert list(stream.iter_lines())[-2] == "data: [DONE]"
        too_large = client.post(CHAT, content=b"{" + b" " * 2**25)
        assert too_large.status_code == 413
    with pytest.raises(httpx.ConnectError), httpx.Client(base_url=server.url) as stranger:
        stranger.get("/health")
    with pytest.raises(httpx.HTTPError), httpx.Client(base_url=server.url.replace("https", "http")) as plain:
        plain.get("/health")
    with httpx.Client(base_url=server.url, verify=trusted) as client:
        assert client.get("/health").status_code == 200, "a client that speaks no TLS harms nobody"


def test_chat_says_that_a_certificate_is_not_trusted_and_what_helps(start: Start, pem: Path) -> None:
    """It said that no server answers, and how to start one."""
    server = start(**files(pem, certfile="both.pem"))
    asked = ["chat", "--url", server.url]
    refused = CliRunner().invoke(cli, asked, input="abc\n")
    assert "is not trusted" in refused.output and "SSL_CERT_FILE" in refused.output
    assert "start one" not in refused.output


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
def test_chat_says_that_a_server_may_require_a_certificate(
    start: Start, pem: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    """It said that the answer was broken off in the middle, or by TLS 1.2 that no server answers."""
    trusted = ssl.create_default_context(cafile=str(pem / "own.crt"))
    trusted.maximum_version = ssl.TLSVersion[version]
    monkeypatch.setattr(chat_client, "connector", lambda url: aiohttp.TCPConnector(ssl=trusted))
    server = start(**files(pem, certfile="both.pem", ca_certs="other.crt"))
    refused = CliRunner().invoke(cli, ["chat", "--url", server.url], input="abc\n")
    assert "without an answer; if it requires a certificate of its clients" in refused.output
    assert "middle" not in refused.output and "start one" not in refused.output


def test_chat_says_that_a_server_speaks_tls_or_does_not(start: Start, pem: Path) -> None:
    encrypted, plain = start(**files(pem, certfile="both.pem")).url, start().url
    refused = CliRunner().invoke(cli, ["chat", "--url", encrypted.replace("https:", "http:")], input="a\n")
    assert "without an answer; if it speaks TLS, write https://" in refused.output
    refused = CliRunner().invoke(cli, ["chat", "--url", plain.replace("http:", "https:")], input="a\n")
    assert "TLS with https://" in refused.output and "write http://" in refused.output
    assert "start one" not in refused.output


def test_clients_may_need_a_certificate(start: Start, pem: Path) -> None:
    server = start(**files(pem, certfile="both.pem", ca_certs="other.crt"))
    for name, served in (("other", True), ("own", False), ("", False)):
        context = ssl.create_default_context(cafile=str(pem / "own.crt"))
        if name:
            context.load_cert_chain(pem / f"{name}.crt", pem / f"{name}.key")
        with httpx.Client(base_url=server.url, verify=context) as client:
            if served:
                assert client.get("/health").status_code == 200
            else:
                with pytest.raises(httpx.TransportError):
                    client.get("/health")


def test_refused_handshakes_are_logged(start: Start, pem: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing told the operator why a client could not connect."""
    caplog.set_level("INFO")
    server = start(**files(pem, certfile="both.pem", ca_certs="other.crt"))
    trusted = ssl.create_default_context(cafile=str(pem / "own.crt"))
    for url, why in (
        (server.url, "did not return a certificate"),
        (server.url.replace("s:", ":"), "http request"),
    ):
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{url}/health", verify=trusted)
        eventually(lambda: why in caplog.text)  # noqa: B023
    assert caplog.text.count("a TLS handshake with 127.0.0.1 port ") == 2


def test_handshakes_that_are_never_begun_make_room(
    start: Start, pem: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So many of them as there may be connections kept all others out."""
    monkeypatch.setattr(accepting, "HANDSHAKE_SECONDS", 600)
    server = start(**files(pem, certfile="both.pem"), max_connections=8)
    trusted = ssl.create_default_context(cafile=str(pem / "own.crt"))
    port = httpx.URL(server.url).port
    with ExitStack() as stack:
        for _ in range(24):
            stack.enter_context(socket.create_connection(("127.0.0.1", port or 0), timeout=60))
        for _ in range(3):
            assert httpx.get(f"{server.url}/health", verify=trusted, timeout=120).status_code == 200


def test_a_key_may_have_a_password(pem: Path) -> None:
    names = files(pem, certfile="own.crt", keyfile="locked.key")
    assert certificates(ServerConfig(**names, ssl_keyfile_password=PASSWORD)) is not None


def served_certificate(server: RunningServer) -> str:
    return ssl.get_server_certificate(("127.0.0.1", httpx.URL(server.url).port or 0))


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_certificates_that_are_replaced_are_used_without_a_restart(
    start: Start, pem: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    """It went on with the one that it had read at the start, until that had expired. Streams go on."""
    monkeypatch.setattr(tls, "CHECK_SECONDS", 0.05)
    own, other = ((pem / f"{name}.crt").read_text() for name in ("own", "other"))
    shutil.copy(pem / "own.crt", tmp_path / "a.crt")
    shutil.copy(pem / "own.key", tmp_path / "a.key")
    server = start(**files(tmp_path, certfile="a.crt", keyfile="a.key"), api_workers=workers)
    trusted = ssl.create_default_context(cafile=str(pem / "own.crt"))
    asked = {"messages": HI, "max_tokens": 500, "ignore_eos": True, "stream": True}
    with (
        httpx.Client(base_url=server.url, verify=trusted, timeout=60) as client,
        client.stream("POST", CHAT, json=asked) as stream,
    ):
        lines = stream.iter_lines()
        next(lines)
        assert served_certificate(server) == own
        shutil.copy(pem / "other.crt", tmp_path / "a.crt")
        shutil.copy(pem / "other.key", tmp_path / "a.key")
        eventually(lambda: {served_certificate(server) for _ in range(8)} == {other}, 30)
        assert list(lines)[-2] == "data: [DONE]"


def test_certificates_are_read_again_after_one_that_could_not_be(
    pem: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A file that went while it was read ended the looking for good, and the certificate ran out."""
    monkeypatch.setattr(tls, "CHECK_SECONDS", 0.001)
    read, turns = certificates(ServerConfig(ssl_certfile=pem / "own.crt", ssl_keyfile=pem / "own.key")), []
    assert read is not None

    def renew() -> None:
        turns.append(len(turns))
        if len(turns) == 1:
            raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(read, "renew", renew)

    async def look() -> None:
        looking = asyncio.create_task(read.keep_current())
        while len(turns) < 3 and not looking.done():
            await asyncio.sleep(0.001)
        assert not looking.done()
        looking.cancel()

    asyncio.run(look())
    assert "the certificate could not be read again" in caplog.text


def test_a_certificate_stays_until_another_and_its_key_are_there(
    pem: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for kind in ("crt", "key"):
        shutil.copy(pem / f"own.{kind}", tmp_path / f"a.{kind}")
    read = certificates(ServerConfig(**files(tmp_path, certfile="a.crt", keyfile="a.key")))
    assert read is not None
    before = read.context
    read.renew()
    assert read.context is before, "no file has changed"
    shutil.copy(pem / "other.crt", tmp_path / "a.crt")
    read.renew()
    read.renew()
    assert read.context is before
    (warning,) = caplog.messages
    assert "is kept" in warning and "is not that of the first certificate" in warning
    shutil.copy(pem / "other.key", tmp_path / "a.key")
    read.renew()
    assert read.context is not before


@pytest.mark.parametrize(
    ("days", "told"),
    [(-1, "is not valid before "), (0.1, ""), (1.9, "expires at "), (3, "expired at ")],
)
def test_a_certificate_that_clients_refuse_or_soon_will_is_told(
    pem: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, days: float, told: str
) -> None:
    """The server started without a word, and clients could not connect. The certificate is for two days."""
    now = time.time() + days * 86_400
    monkeypatch.setattr(tls, "Certificates", partial(Certificates, wall=lambda: now))
    with listening(ServerConfig(port=0, **files(pem, certfile="both.pem"))):
        pass
    assert [told in message for message in caplog.messages] == [True] * bool(told)
    assert f"the certificate in {pem / 'both.pem'} {told}" in caplog.text or not told


def test_a_certificate_that_comes_to_its_end_is_told_once(
    pem: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copy(pem / "both.pem", tmp_path / "a.pem")
    now = begun = time.time()
    read = Certificates(ServerConfig(ssl_certfile=str(tmp_path / "a.pem")), wall=lambda: now)
    for days, told in ((0, 0), (1.9, 1), (1.95, 1), (2.1, 2), (2.2, 2)):
        now = begun + days * 86_400
        read.renew()
        assert len(caplog.messages) == told
    assert "expires at" in caplog.messages[0] and "expired at" in caplog.messages[1]
    shutil.copy(pem / "both.pem", tmp_path / "b.pem")  # it is replaced by one that is no better
    (tmp_path / "b.pem").rename(tmp_path / "a.pem")
    read.renew()
    assert len(caplog.messages) == 3 and "expired at" in caplog.messages[2]
    now = begun
    read.renew()
    assert len(caplog.messages) == 3


@pytest.mark.parametrize("year", ["20490101000000Z", "20510101000000Z"])
def test_validity_is_read_as_openssl_writes_it(tmp_path: Path, year: str) -> None:
    """Years from 2050 on have four digits."""
    key, request, signed = (str(tmp_path / name) for name in ("a.key", "a.csr", "a.crt"))
    openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=a", "-keyout", key, "-out", request)
    (tmp_path / "index").touch()
    (tmp_path / "ca.cnf").write_text(
        f"[ca]\ndefault_ca=a\n[a]\ndatabase={tmp_path}/index\nnew_certs_dir={tmp_path}\n"
        "default_md=sha256\nrand_serial=yes\npolicy=p\n[p]\ncommonName=supplied\n"
    )
    times = ["-startdate", "19990203040506Z", "-enddate", year]
    made = ["-selfsign", "-batch", "-config", str(tmp_path / "ca.cnf"), "-keyfile", key, "-notext"]
    openssl("ca", *made, *times, "-in", request, "-out", signed)
    found = Validity.of("behind a comment\n" + Path(signed).read_text())
    assert found.begins == datetime(1999, 2, 3, 4, 5, 6, tzinfo=UTC)
    assert found.ends == datetime(int(year[:4]), 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("names", "more", "why"),
    [
        ({"certfile": "none.crt"}, {}, "none.crt cannot be read: No such file"),
        ({"certfile": "own.crt", "keyfile": "none.key"}, {}, "none.key cannot be read: No such file"),
        ({"certfile": "own.crt"}, {}, "its key (or give --ssl-keyfile)"),
        ({"certfile": "text.pem", "keyfile": "own.key"}, {}, "TLS needs a certificate in"),
        ({"certfile": "own.crt", "keyfile": "text.pem"}, {}, "both as PEM"),
        ({"certfile": "own.crt", "keyfile": "other.key"}, {}, "is not that of the first certificate"),
        ({"certfile": "mixed.pem"}, {}, "mixed.pem is not that of the first certificate in"),
        ({"certfile": "own.crt", "keyfile": "locked.key"}, {}, "is encrypted; give --ssl-keyfile-password"),
        (
            {"certfile": "own.crt", "keyfile": "locked.key"},
            {"ssl_keyfile_password": "sesame"},
            "--ssl-keyfile-password does not open the key",
        ),
        (
            {"certfile": "own.crt", "keyfile": "locked.key"},
            {"ssl_keyfile_password": "s" * 1025},
            "--ssl-keyfile-password does not open the key",
        ),
        ({"certfile": "both.pem", "ca_certs": "text.pem"}, {}, "holds no certificates"),
        ({"certfile": "."}, {}, "cannot be read: Is a directory"),
        ({"keyfile": "own.key"}, {}, "--ssl-keyfile needs --ssl-certfile"),
        ({"ca_certs": "own.crt"}, {}, "--ssl-ca-certs needs --ssl-certfile"),
    ],
)
def test_bad_files_are_told_at_the_start(
    pem: Path, names: dict[str, str], more: dict[str, Any], why: str
) -> None:
    with (
        pytest.raises(ConfigError) as refused,
        listening(ServerConfig(port=0, **files(pem, **names), **more)),
    ):
        pass
    assert why in str(refused.value)


# ------------------------------------------------------------------ all interfaces


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_all_interfaces_by_ipv6_are_those_by_ipv4_too(start: Start) -> None:
    """A client by IPv4 was refused. It is known by its own address, so it is of this machine."""
    port = httpx.URL(start(host="::").url).port
    for address in ("127.0.0.1", "[::1]"):
        assert httpx.get(f"http://{address}:{port}/health").status_code == 200
        assert httpx.get(f"http://{address}:{port}/admin/kv").status_code == 200


def resolve(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    """Have the name `both.test` lead to addresses."""

    def found(host: str, port: int, **more: Any) -> list[Any]:
        return [each for name in addresses for each in GETADDRINFO(name, port, **more)]

    monkeypatch.setattr(socket, "getaddrinfo", found)


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_name_of_several_addresses_is_served_at_each(
    start: Start, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    """`--host localhost` was served by IPv6 alone, where the name has that first."""
    with monkeypatch.context() as patch:
        resolve(patch, "::1", "127.0.0.1", "127.0.0.1")
        url = httpx.URL(start(host="both.test", api_workers=workers).url)
    assert url.host == "both.test"
    for address in ("127.0.0.1", "[::1]"):
        assert httpx.get(f"http://{address}:{url.port}/health").status_code == 200


def test_addresses_that_this_machine_lacks_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """`--host localhost` was refused where it has an address by IPv6, which is switched off."""
    resolve(monkeypatch, "198.51.100.1", "127.0.0.1")
    with listening(ServerConfig(host="both.test", port=0)) as listener:
        assert [each.getsockname()[0] for each in listener.sockets] == ["127.0.0.1"]
    resolve(monkeypatch, "198.51.100.1", "198.51.100.2")
    with (
        pytest.raises(
            TurnoutError, match=r"cannot listen on both.test port 0: .*; choose another with --host"
        ),
        listening(ServerConfig(host="both.test", port=0)),
    ):
        pass


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_turnouts_own_clients_reach_the_url_that_is_printed(
    start: Start, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    """`/admin` took the address of all interfaces for another machine's, and `chat` asked a proxy for it."""
    if ":" in host and not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    url = start(host=host).url
    shown = CliRunner().invoke(cli, ["top", "--once", "--url", url])
    assert shown.exit_code == 0, shown.output
    answered = CliRunner().invoke(cli, ["chat", "--max-tokens", "3", "--url", url], input="abc\n")
    assert answered.exit_code == 0 and answered.output.startswith("abc\n"), answered.output


def test_an_address_by_ipv6_may_have_the_brackets_of_a_url() -> None:
    """The name was not known."""
    assert [ServerConfig(host=host).host for host in ("[::1]", "::1", "[::]")] == ["::1", "::1", "::"]


# ------------------------------------------------------------------ Unix sockets


def test_a_server_listens_on_a_unix_socket(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "turnout.sock"
    server = start(uds=str(path))
    assert server.url == f"unix:{path}"
    assert server.post(CHAT, messages=HI, max_tokens=3).json()["choices"][0]["message"]["content"] == "abc"
    named = server.http.get("/v1/models", headers={"Host": "llm.example"})
    assert named.status_code == 200, "no web page reaches a Unix socket, so any host may be named"
    assert server.http.get("/v1/models", headers={"Origin": "http://evil.example"}).status_code == 403
    refused = server.http.get("/admin/kv")
    assert refused.status_code == 403 and "--admin-key" in refused.json()["error"]["message"]


def test_turnouts_own_clients_reach_a_unix_socket(start: Start, tmp_path: Path) -> None:
    server = start(uds=str(tmp_path / "turnout.sock"))
    chat = CliRunner().invoke(cli, ["chat", "--url", server.url, "--max-tokens", "3"], input="abc\n")
    assert chat.stdout == "abc\n", chat.output
    work = ["--workload", "poisson:rate=50,requests=2,prompt=4,output=2"]
    bench = CliRunner().invoke(cli, ["bench", "serve", "--url", server.url, "--prompts", "text", *work])
    assert bench.exit_code == 0, bench.output


def test_the_socket_of_a_dead_server_is_replaced_and_goes_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "turnout.sock"
    config = ServerConfig(uds=path)
    with listening(config) as dead:
        left = path.with_suffix(".left")
        path.rename(left)
        dead.close()
    left.rename(path)
    with listening(config):
        with pytest.raises(TurnoutError, match="another server listens there"), listening(config):
            pass
        assert path.is_socket()
    assert not path.exists()


def test_a_server_that_hangs_holds_up_no_other_that_would_listen_at_its_socket(tmp_path: Path) -> None:
    """Its queue is full, and to connect to it waited for ever."""
    path = tmp_path / "a.sock"
    with socket.socket(socket.AF_UNIX) as hung, ExitStack() as clients:
        hung.bind(str(path))
        hung.listen(0)
        for _ in range(2):
            client = clients.enter_context(socket.socket(socket.AF_UNIX))
            client.setblocking(False)
            with suppress(BlockingIOError):
                client.connect(str(path))
        told = pytest.raises(TurnoutError, match="another server listens there")
        with told, listening(ServerConfig(uds=path)):
            pass


def test_a_path_that_cannot_be_listened_on_is_told(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("precious")
    for path, why in (
        (file, "it is a file, and no socket"),
        (tmp_path / "nowhere" / "a.sock", "No such file"),
        (tmp_path / ("a" * 200), "too long"),
    ):
        with pytest.raises(TurnoutError, match=why), listening(ServerConfig(uds=path)):
            pass
    assert file.read_text() == "precious"


# ------------------------------------------------------------------ prefixes


def test_paths_may_have_a_prefix(start: Start) -> None:
    server = start(root_path="/llm", api_key="secret", admin_key="admin")
    key, admin = {"Authorization": "Bearer secret"}, {"Authorization": "Bearer admin"}
    for prefix in ("/llm", ""):
        assert server.http.get(f"{prefix}/v1/models", headers=key).status_code == 200
        assert server.http.get(f"{prefix}/health").status_code == 200
        assert server.http.get(f"{prefix}/v1/models").status_code == 401
        assert server.http.get(f"{prefix}/admin/kv", headers=key).status_code == 401, "admin's key is another"
        assert server.http.get(f"{prefix}/admin/kv", headers=admin).status_code == 200
    assert server.http.get("/llm", headers=key).json()["health"] == "/health"
    assert server.http.get("/llms/v1/models", headers=key).status_code == 404
    assert server.http.get("/llm/llm/v1/models", headers=key).status_code == 404
    error = server.http.post("/llm/api/chat", json={}, headers=key).json()
    assert error.keys() == {"error"} and isinstance(error["error"], str)
    for prefix in ("/llm", ""):
        assert server.http.get(f"{prefix}/openapi.json").json()["servers"] == [{"url": "/llm"}]


@pytest.mark.parametrize("prefix", ["llm", "/llm/", "/a b", "/", "http://a"])
def test_a_prefix_is_a_path(prefix: str) -> None:
    with pytest.raises(ConfigError, match="root_path"):
        ServerConfig(root_path=prefix)
