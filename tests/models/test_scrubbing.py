"""What may be quoted of a server's words."""

import json
from base64 import b64encode, urlsafe_b64encode
from urllib.parse import quote, quote_plus

import pytest
from http_doubles import KEY, status
from pydantic import SecretStr

from mnemo.models.failures import Endpoint, ErrorTranslator, Scrubber
from mnemo.testing import ManualClock

SCRUBBER = Scrubber([SecretStr(KEY), SecretStr("")])


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("nothing to hide", "nothing to hide"),
        (f"key {KEY}!", "key ***!"),
        (f"key={KEY},", "key=***,"),
        (f'{{"key": "{KEY[3:14]}"}}', '{"key": "***"}'),
        (f"{KEY[:7]}*****{KEY[-4:]}", "***"),
        (f"{KEY[:4]}….{KEY[-4:]}", f"{KEY[:4]}….{KEY[-4:]}"),
        (f"{KEY[:4]}………{KEY[-4:]}", "***"),
        ("a line of *** stars ****", "a line of *** stars ****"),
        ("proxy http://me:secret@host/x", "proxy http://host/x"),
    ],
)
def test_secrets_are_hidden_whole_in_part_and_masked(said, shown):
    """Anything else is left as it is, a mask without the key's ends included."""
    assert SCRUBBER.hide(said) == shown


LIVELY = "k-/+?&=~ü9z-Q/1+"


@pytest.mark.parametrize("encode", [b64encode, urlsafe_b64encode])
@pytest.mark.parametrize("around", [("", ""), (":", ""), ("", ":"), ("me:", ""), ("user:", "\n")])
@pytest.mark.parametrize("key", [KEY, LIVELY])
def test_a_key_is_hidden_in_base64(key, around, encode):
    """Alone, or as user or password of a Basic header; also the part of it that is quoted."""
    said = encode(f"{around[0]}{key}{around[1]}".encode()).decode()
    scrubber = Scrubber([SecretStr(key)])
    assert scrubber.hide(f"got Authorization: Basic {said}") == "got Authorization: Basic ***"
    assert scrubber.hide(f"got {said[4:18]}… instead") == "got *** instead"
    assert scrubber.hide(said.rstrip("=")) == "***"


@pytest.mark.parametrize("safe", ["", "/"])
def test_a_key_is_hidden_in_a_url(safe):
    """Escaped by a browser or a server, once or twice, in upper or lower case."""
    scrubber = Scrubber([SecretStr(LIVELY)])
    once = quote(LIVELY, safe=safe)
    for said in (once, once.lower(), quote(once, safe=safe), quote_plus(LIVELY)):
        assert scrubber.hide(f"GET /v1?key={said} failed") == "GET *** failed"


def test_the_password_of_a_basic_header_is_hidden():
    """A header's value is a secret, and so is what it stands for."""
    header = f"Basic {b64encode(b'ada:hunter2hunter2').decode()}"
    scrubber = Scrubber([SecretStr(header)])
    assert scrubber.hide("no user ada with hunter2hunter2") == "no user ada with ***"


def test_words_that_look_encoded_stay():
    """Ids and paths of a server are what its message is about."""
    said = "request req_bG9yZW0gaXBzdW0gZG9sb3I= to /v1/a%20b%2Fc failed"
    assert SCRUBBER.hide(said) == said


def test_a_short_key_is_hidden_as_it_is():
    """Local servers take any key."""
    assert Scrubber([SecretStr("none")]).hide("key none refused") == "key *** refused"


def test_a_quote_is_one_short_line():
    """Whatever a server sends, a log keeps one line of it."""
    quoted = SCRUBBER.quote("a\n\tb " * 1_000, limit=10)
    assert quoted == "a b a b a …"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"error": {"message": "no such model"}}, "no such model"),
        ({"error": "overloaded"}, "overloaded"),
        ({"message": "too long", "type": "x"}, "too long"),
        ({"detail": [{"loc": ["body"], "msg": "extra field", "input": "a memory"}]}, "extra field"),
        ({"error": {"code": 7}, "detail": "see manual"}, "see manual"),
        ({"request": {"messages": ["a memory"]}}, None),
        ([["deep"]], "deep"),
        (7, None),
    ],
)
def test_only_an_errors_message_is_quoted(body, said):
    """A server that sends back the request it refuses does not put memories into errors."""
    teller = ErrorTranslator(Endpoint.parse("http://x/v1"), SCRUBBER, has_key=True)
    raw = json.dumps(body).encode()
    failure = teller.status(
        400, status(400).headers, raw, path="/x", model="m", now=ManualClock().now()
    )
    wanted = "http://x/v1 refused the request (400)"
    assert str(failure) == (f"{wanted}; it said: {said}" if said else wanted)
