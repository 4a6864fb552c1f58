"""Files of keys: their forms, and messages that tell no key."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from turnout.config import ServerConfig
from turnout.core.errors import ConfigError
from turnout.server.http.access.key_file import KeyEntry, read_key_file
from turnout.server.http.access.keys import (
    ADMIN_KEY_VARIABLE,
    API_KEY_VARIABLE,
    LOOK_SECONDS,
    Keys,
    check_keys,
)
from turnout.server.http.errors import ApiError


def written(folder: Path, text: str) -> str:
    path = folder / "keys"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("secret\n", [KeyEntry(key="secret")]),
        ("# mine\n12345\n\nab: c\n", [KeyEntry(key="12345"), KeyEntry(key="ab: c")]),
        ("- one\n- {key: two, name: b}\n", [KeyEntry(key="one"), KeyEntry(key="two", name="b")]),
        ('[{"key": "x", "tokens-per-minute": 5}]', [KeyEntry(key="x", tokens_per_minute=5)]),
        ("- key: y\n  requests_in_flight: 2\n", [KeyEntry(key="y", requests_in_flight=2)]),
        ("\ufeffsecret\n", [KeyEntry(key="secret")]),
        ("- ' one '\n", [KeyEntry(key="one")]),
        ("-a: {\n[x\n", [KeyEntry(key="-a: {"), KeyEntry(key="[x")]),
    ],
)
def test_a_file_has_lines_or_a_list(tmp_path: Path, text: str, entries: list[KeyEntry]) -> None:
    assert read_key_file(written(tmp_path, text)) == entries


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no key"),
        ("# nothing\n", "has no key"),
        ("team: {key: hidden}\n", "is a mapping; expected is a list"),
        ("- {key: hidden, tokens-per-day: 5}\n", "key 1: unknown field 'tokens_per_day'; known: key, name"),
        ("- one\n- {name: b}\n", "key 2: key: Field required"),
        ("- {key: hidden, name: b, tokens-per-minute: many}\n", "key 1: tokens-per-minute: Input should be"),
        ("- [hidden]\n", "key 1: expected is text, or a mapping"),
        ("- {key: 12345}\n", "key 1: key: Input should be a valid string"),
        ('[\n  {"key": "hidden"},\n  {"key": "hid', "begins as a list, and is no YAML or JSON"),
        ("# mine\n- name: a\n  key: hidden\n- {name: b, key: 12345\n", "line 5: begins as a list"),
        ("---\n- {key: hidden\n", "begins as a list"),
        ("one\nhid\tden12345\n", "key 2) has '\\t' as character 4 of 12"),
        ('- "hid\\nden12345"\n', "key 1) has '\\n' as character 4 of 12"),
        ("- ' '\n", "key 1) is empty"),
    ],
)
def test_a_wrong_file_is_refused_without_telling_a_key(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_key_file(written(tmp_path, text))
    assert message in str(refused.value)
    assert "hidden" not in str(refused.value) and "12345" not in str(refused.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read the key file .*: No such file"):
        read_key_file(str(tmp_path / "none"))


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("secret\nsecret\n", "a key of API or admin keys"),
        ("- {key: b, name: b}\n- {key: one, name: a}\n- {key: two, name: a}\n", "the name 'a' of API or"),
        ("- {key: secret, name: a}\n- {key: secret, name: b}\n", "the key of 'a' and 'b' is given"),
        ("- {key: secret}\n- {key: secret, name: b}\n", "the key of 'b' is given"),
    ],
)
def test_each_key_and_name_is_given_once(tmp_path: Path, text: str, what: str) -> None:
    """The message names what is given twice, and never tells the key."""
    with pytest.raises(ConfigError, match="is given twice in") as refused:
        Keys.for_api(ServerConfig(api_key_file=written(tmp_path, text)))
    assert str(refused.value).startswith(what) and "secret" not in str(refused.value)


def test_the_environment_counts_where_nothing_else_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(API_KEY_VARIABLE, "of the environment")
    assert Keys.for_api(ServerConfig()).find(b"of the environment")
    assert not Keys.for_api(ServerConfig(api_key="flag")).find(b"of the environment")
    monkeypatch.setenv(API_KEY_VARIABLE, "")
    assert not Keys.for_api(ServerConfig())


def rewritten(keys: Keys, path: str, text: str) -> None:
    """The file has another text, and the server has looked."""
    Path(path).write_text(text)
    keys._looked -= LOOK_SECONDS
    keys.refresh()


def test_a_list_that_is_half_written_changes_no_key(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Its lines became keys: a bracket was one, and those of the clients were none any more."""
    whole = '[\n  {"name": "a", "key": "hidden"}\n]\n'
    path = written(tmp_path, whole)
    keys = Keys.for_api(ServerConfig(api_key_file=path))
    rewritten(keys, path, whole[:-8])
    assert keys.find(b"hidden") and not keys.find(b"[")
    assert "the keys stay as they were" in caplog.text and "hidden" not in caplog.text


def test_the_file_is_read_again_when_it_has_changed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    path = written(tmp_path, "- {key: stays, name: a, tokens-per-minute: 10}\n- goes\n")
    keys = Keys.for_api(ServerConfig(api_key_file=path))
    keys.refresh()
    kept = keys.find(b"stays")
    assert kept is not None
    kept.usage.spend(10)
    rewritten(keys, path, "- {key: stays, name: b, tokens-per-minute: 10}\n- comes\n- comes too\n")
    now = keys.find(b"stays")
    assert now is not None and now.name == "b" and now.usage is kept.usage
    with pytest.raises(ApiError), now.usage.request():
        pass
    assert keys.find(b"comes") and not keys.find(b"goes")
    assert "was read again: 3 keys, 2 new, 1 gone" in caplog.text
    rewritten(keys, path, "- {key: stays, tokens-per-minute: 1000}\n")
    with now.usage.request():
        pass


@pytest.mark.parametrize("text", ["", "- {key: hidden, nonsense: 5}\n", "- hidden\n- hidden\n", None])
def test_a_file_that_cannot_be_used_changes_no_key(
    tmp_path: Path, text: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    path = written(tmp_path, "- here\n")
    keys = Keys.for_api(ServerConfig(api_key_file=path))
    if text is None:
        Path(path).rename(tmp_path / "elsewhere")
        keys._looked -= LOOK_SECONDS
        keys.refresh()
    else:
        rewritten(keys, path, text)
    assert keys.find(b"here")
    assert "the keys stay as they were" in caplog.text and "hidden" not in caplog.text
    rewritten(keys, path, "- there\n")
    assert keys.find(b"there") and not keys.find(b"here")


def test_a_key_may_be_any_text() -> None:
    keys = Keys.for_api(ServerConfig(api_key=("sécret", "b,c")))
    assert keys.find("sécret".encode()) and keys.find(b"b,c")
    assert not keys.find(b"b") and not keys.find(b"")


def test_whitespace_around_a_key_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients cannot send it, so no client had the key."""
    assert Keys.for_api(ServerConfig(api_key=(" a ", "b\n"))).find(b"b")
    monkeypatch.setenv(API_KEY_VARIABLE, "of a file\n")
    assert Keys.for_api(ServerConfig()).find(b"of a file")


def test_keys_that_every_user_can_read_are_told(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing was said of them."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "the keys")
        path.write_text("secret\n")
        for file_mode, folder_mode, told in (
            (0o644, 0o755, True),
            (0o600, 0o755, False),
            (0o640, 0o755, False),
            (0o644, 0o700, False),
        ):
            path.chmod(file_mode)
            path.parent.chmod(folder_mode)
            caplog.clear()
            check_keys(ServerConfig(api_key_file=str(path), admin_key_file=str(path)))
            words = f"every user of this machine can read the keys in {path}; "
            assert caplog.messages == [f"{words}keep them out: chmod 600 '{path}'"] * told


@pytest.mark.parametrize("key", ["hid\nden", "hid\tden", "\ufeffhidden", "hid\x00den", " \n"])
def test_a_key_that_no_client_can_send_is_refused_by_its_option(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server started, and answered 401 to all."""
    with pytest.raises(ConfigError, match=r"the key \(--api-key\) (has|is)") as refused:
        check_keys(ServerConfig(api_key=("fine", key)))
    assert "hid" not in str(refused.value)
    with pytest.raises(ConfigError, match=r"the key \(--admin-key\) (has|is)"):
        check_keys(ServerConfig(admin_key=key))
    for variable in {key, "hidden\udcff"} - {"hid\x00den"}:
        monkeypatch.setenv(ADMIN_KEY_VARIABLE, variable)
        with pytest.raises(ConfigError, match=r"the key \(TURNOUT_ADMIN_KEY\) (has|is)"):
            check_keys(ServerConfig())
