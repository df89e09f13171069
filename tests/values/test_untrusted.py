"""Wrapping: no text can close its tag."""

import html
import json
import re

from hypothesis import given
from hypothesis import strategies as some

from mnemo.runtime.text import visible
from mnemo.values.untrusted import json_line, untrusted, without_marks


@given(some.text(), some.text())
def test_exactly_one_tag_opens_and_one_closes(text, value):
    """Whatever text and attributes say, and nothing of them is lost."""
    wrapped = untrusted("summary", text, {"of": value})
    assert wrapped.count("<") == wrapped.count(">") == 2
    assert wrapped.count("</summary>") == 1
    matched = re.fullmatch(
        r'<summary of="([^"]*)" trusted="false">\n(.*)\n</summary>', wrapped, re.DOTALL
    )
    assert matched is not None
    assert html.unescape(matched[2]) == html.unescape(visible(text)) or "&" in text


def test_attributes_stand_before_the_verdict():
    """They are given in order, as text."""
    assert untrusted("m", "a<b", {"from": 1, "to": 2}) == (
        '<m from="1" to="2" trusted="false">\na&lt;b\n</m>'
    )


def test_what_nobody_sees_is_spelled_in_every_form():
    """Escape sequences, overrides of direction and tags reach neither a prompt nor a terminal."""
    hidden = "a\x1b[2J\x9b\u202eb\u200bc\U000e0041"
    spelled = "a\\u001b[2J\\u009b\\u202eb\\u200bc\\U000e0041"
    assert without_marks(hidden) == spelled
    assert spelled in untrusted("m", hidden)
    line = json_line({"text": hidden})
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line) == {"text": hidden}
