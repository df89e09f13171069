"""What may be quoted of a server's words."""

from __future__ import annotations

import json
from typing import Any

import pytest
from http_doubles import KEY, status
from pydantic import SecretStr

from mnemo.models.endpoint import Endpoint
from mnemo.models.failures import ErrorTranslator, Scrubber
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
def test_secrets_are_hidden_whole_in_part_and_masked(said: str, shown: str) -> None:
    """Anything else is left as it is, a mask without the key's ends included."""
    assert SCRUBBER.hide(said) == shown


def test_a_short_key_is_hidden_as_it_is() -> None:
    """Local servers take any key."""
    assert Scrubber([SecretStr("none")]).hide("key none refused") == "key *** refused"


def test_a_quote_is_one_short_line() -> None:
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
def test_only_an_errors_message_is_quoted(body: Any, said: str | None) -> None:
    """A server that sends back the request it refuses does not put memories into errors."""
    teller = ErrorTranslator(Endpoint.parse("http://x/v1"), SCRUBBER, has_key=True)
    raw = json.dumps(body).encode()
    failure = teller.status(
        400, status(400).headers, raw, path="/x", model="m", now=ManualClock().now()
    )
    wanted = "http://x/v1 refused the request (400)"
    assert str(failure) == (f"{wanted}; it said: {said}" if said else wanted)
