"""Wrapping: no text can close its tag."""

from __future__ import annotations

import html
import re

from hypothesis import given
from hypothesis import strategies as some

from mnemo.values.untrusted import untrusted


@given(some.text(), some.text())
def test_exactly_one_tag_opens_and_one_closes(text: str, value: str) -> None:
    """Whatever text and attributes say, and nothing of them is lost."""
    wrapped = untrusted("summary", text, {"of": value})
    assert wrapped.count("<") == wrapped.count(">") == 2
    assert wrapped.count("</summary>") == 1
    matched = re.fullmatch(
        r'<summary of="([^"]*)" trusted="false">\n(.*)\n</summary>', wrapped, re.DOTALL
    )
    assert matched is not None
    assert html.unescape(matched[2]) == html.unescape(text) or "&" in text


def test_attributes_stand_before_the_verdict() -> None:
    """They are given in order, as text."""
    assert untrusted("m", "a<b", {"from": 1, "to": 2}) == (
        '<m from="1" to="2" trusted="false">\na&lt;b\n</m>'
    )
