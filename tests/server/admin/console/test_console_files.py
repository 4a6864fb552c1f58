"""The console's files: served to all whom the server answers, small, whole, and under a strict policy."""

from __future__ import annotations

import gzip
import re

from turnout.server.admin.console.files import ASSETS, HEADERS, console_file

LIMIT = 300_000
"""Bytes of all files, compressed."""


def names() -> list[str]:
    return [path.relative_to(ASSETS).as_posix() for path in ASSETS.rglob("*") if path.is_file()]


def test_all_files_together_are_small() -> None:
    assert sum(len(gzip.compress((ASSETS / name).read_bytes())) for name in names()) < LIMIT


def test_only_its_files_can_be_asked_for() -> None:
    assert console_file("") == console_file("index.html")
    for path in ("../page.py", "lib/../main.js", "/etc/passwd", "nothing.js", "lib"):
        assert console_file(path) is None


def test_the_page_loads_nothing_from_elsewhere_and_has_no_inline_script_or_style() -> None:
    for name in names():
        text = (ASSETS / name).read_text(encoding="utf-8")
        elsewhere = re.findall(r"(?:https?:)?//[a-z][\w.-]+\.[a-z]{2,}", re.sub(r"(?m)^\s*//.*$", "", text))
        assert not [url for url in elsewhere if "www.w3.org" not in url], name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", text), name
    page = (ASSETS / "index.html").read_text(encoding="utf-8")
    assert not re.search(r"<style|style=|\son\w+=|<script(?![^>]* src=)", page)


def test_every_module_that_is_imported_is_there() -> None:
    for name in names():
        if not name.endswith(".js"):
            continue
        for wanted in re.findall(r'from "(\.[^"]+)"', (ASSETS / name).read_text(encoding="utf-8")):
            assert ((ASSETS / name).parent / wanted).is_file(), f"{name} imports {wanted}"


def test_a_server_sends_it_compressed_and_under_its_policy(server) -> None:
    for path, kind in (
        ("/console", "text/html"),
        ("/console/", "text/html"),
        ("/console/main.js", "text/javascript"),
    ):
        answer = server.http.get(path)
        assert answer.status_code == 200 and answer.headers["content-type"].startswith(kind)
        assert all(answer.headers[name] == value for name, value in HEADERS.items())
        assert answer.headers["content-encoding"] == "gzip"
    assert "script-src 'self'" in answer.headers["content-security-policy"]
    again = server.http.get("/console/main.js", headers={"if-none-match": answer.headers["etag"]})
    assert again.status_code == 304 and not again.content
    assert server.http.get("/console/none.js").status_code == 404


def test_it_needs_no_key_and_other_sites_get_nothing(server, start) -> None:
    keyed = start(api_key=["k"], admin_key=["a"])
    for path in ("/console", "/console/main.js"):
        assert server.http.get(path, headers={"origin": "https://elsewhere.example"}).status_code == 403
        assert server.http.get(path, headers={"host": "elsewhere.example"}).status_code == 403
        assert keyed.http.get(path).status_code == 200
    assert keyed.http.get("/admin/kv").status_code == 401
