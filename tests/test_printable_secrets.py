"""Secrets in what is said: keys in each encoding in which a host may quote them, and words that are none."""

import base64
import html
import json
import random
import urllib.parse

import pytest

from sentcli import printable as redaction
from sentcli.errors import one_line
from sentcli.printable import value_without_secrets, without_secrets

KEYS = {
    "plain": "sk-proj-0123456789abcdefghijklmnopqrs",
    "signs": "Ab+/c=\"d\\e&<x>9z_Q!'~.01%23",
    "letters": "schlüssel-für-zürich-漢字",
}
ENCODINGS = {
    "raw": str,
    "percent": lambda key: urllib.parse.quote(key, safe=""),
    "percent of a path": urllib.parse.quote,
    "percent of a form": urllib.parse.quote_plus,
    "percent in small letters": lambda key: "".join(f"%{byte:02x}" for byte in key.encode()),
    "percent twice": lambda key: urllib.parse.quote(urllib.parse.quote(key, safe=""), safe=""),
    "JSON": lambda key: json.dumps(key)[1:-1],
    "JSON in JSON": lambda key: json.dumps(json.dumps(key))[3:-3],
    "JSON of numbers": lambda key: "".join(f"\\u{ord(sign):04X}" for sign in key),
    "Python": lambda key: repr(key)[1:-1],
    "HTML": html.escape,
    "HTML of numbers": lambda key: "".join(f"&#{ord(sign)};" for sign in key),
    "header": lambda key: f"Authorization: Bearer {key}",
    "header read as Latin-1": lambda key: f"Authorization: Bearer {key.encode().decode('latin-1')}",
    "base64": lambda key: base64.b64encode(key.encode()).decode(),
    "base64 of user:password": lambda key: base64.b64encode(f"me:{key}".encode()).decode(),
    "base64 of a longer user": lambda key: base64.b64encode(f"some:{key}".encode()).decode(),
    "base64 of a header": lambda key: base64.b64encode(f"Bearer {key}\r\n".encode()).decode(),
    "base64 of URLs": lambda key: base64.urlsafe_b64encode(f"x{key}".encode()).decode(),
    "base64 in percent": lambda key: urllib.parse.quote(base64.b64encode(f"me:{key}".encode()).decode(), safe=""),
    "hex": lambda key: key.encode().hex(),
}


@pytest.fixture(autouse=True)
def nothing_sent(monkeypatch):
    monkeypatch.setattr(redaction, "_sent", set())


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_a_secret_is_taken_out_in_every_encoding(key, encoding, monkeypatch):
    monkeypatch.setenv("MY_API_KEY", key)
    quoted = ENCODINGS[encoding](key)
    said = without_secrets(f"before <{quoted}> after")
    assert said.startswith("before <") and said.endswith("> after") and "..." in said
    coded = quoted.removeprefix("Authorization: Bearer ")
    assert not any(coded[place : place + 8] in said for place in range(8, len(coded) - 12))


def test_what_a_key_is_cut_to_is_taken_out():
    key = KEYS["plain"]
    redaction.remember(key)
    for length in range(8, len(key) + 1):
        assert without_secrets(f"wrong key: {key[:length]}") == "wrong key: ..."
    assert without_secrets(f"{key[:20]}[cut], see the page") == "...[cut], see the page"
    assert without_secrets(f"{key[:8]} is how keys begin") == f"{key[:8]} is how keys begin"


def test_messages_of_libraries_are_cut_after_that(monkeypatch):
    monkeypatch.setenv("MY_API_KEY", KEYS["plain"])
    for start in range(250, 301):
        said = one_line(ValueError("x" * start + KEYS["plain"]))
        assert "sk-proj" not in said.removeprefix("x" * start) and len(said) <= 300


def test_short_keys_are_words_unless_they_were_sent(monkeypatch):
    monkeypatch.setenv("MY_API_KEY", "cat")
    text = 'a cat, "cat", catalogue; Y2F0'
    assert without_secrets(text, of_host=True) == text
    redaction.remember("cat")
    assert without_secrets(text) == text
    assert without_secrets(text, of_host=True) == 'a ..., "...", catalogue; ...'


def test_names_of_files_and_settings_are_no_secrets(monkeypatch):
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "/var/run/secrets/token")
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    assert without_secrets("/var/run/secrets/token is false") == "/var/run/secrets/token is false"


@pytest.mark.parametrize(
    ("variable", "value", "secret"),
    [
        ("HTTPS_PROXY", "http://me:the-password@proxy:3128", "the-password"),
        ("HTTPS_PROXY", "http://me:the-password@proxy:3128", base64.b64encode(b"me:the-password").decode()),
        (
            "AZURE_STORAGE_CONNECTION_STRING",
            "AccountName=a;AccountKey=c2VjcmV0LXNlY3JldA==",
            "c2VjcmV0LXNlY3JldA==",
        ),
        ("MY_SAS", "sv=2022&sig=abcdefghijkl%3D&se=1", "abcdefghijkl%3D"),
    ],
)
def test_secrets_inside_variables_are_known(variable, value, secret, monkeypatch):
    monkeypatch.setenv(variable, value)
    assert secret not in without_secrets(f"it was {secret}.")


def test_the_users_and_signatures_of_addresses_are_known():
    from sentcli.io.places import Address

    Address("https://me:pass%2Fword-1@host/a.txt?name=a-long-name&X-Amz-Signature=0123456789abcdef")
    said = without_secrets(f"pass/word-1 {base64.b64encode(b'me:pass/word-1').decode()} 0123456789abcdef a-long-name")
    assert said == "... ... ... a-long-name"


def test_values_of_json_have_none(monkeypatch):
    monkeypatch.setenv("MY_API_KEY", KEYS["plain"])
    value = {KEYS["plain"]: [1, None, {"a": (f"x {KEYS['plain']}", 0.5)}], "vector": [0.5, 1.5]}
    assert value_without_secrets(value) == {"...": [1, None, {"a": ["x ...", 0.5]}], "vector": [0.5, 1.5]}


@pytest.mark.slow
def test_long_texts_take_no_time(monkeypatch):
    import time

    for number, key in enumerate(KEYS.values()):
        monkeypatch.setenv(f"MY_API_KEY_{number}", key)
        redaction.remember(key)
    signs = random.Random(0).choices("sk-proj01\\%&+/= abc", k=100_000)
    texts = ["".join(signs), "\\" * 100_000, "%25" * 30_000, "sk-proj-" * 12_000 + "!", "&#0" * 30_000]
    without_secrets("")
    for text in texts:
        began = time.process_time()
        without_secrets(text)
        assert time.process_time() - began < 2, text[:20]
