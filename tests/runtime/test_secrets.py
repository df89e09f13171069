"""Secrets are found behind cheap looks as the patterns alone find them."""

from functools import partial

import pytest
from helpers import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from real_texts import TEXTS

from mnemo.runtime import secrets
from mnemo.runtime.secrets import Kind, without_secrets


def _instead(kind: Kind) -> str:
    return f"[{kind}]"


def _by_patterns_alone(text: str) -> str:
    for _, _, pattern, kind in secrets._RULES:
        text = pattern.sub(partial(secrets._hide, _instead, kind), text)
    text = secrets._RANDOM.sub(lambda found: _instead("key"), text)
    return secrets._CARD.sub(partial(secrets._hide_card, _instead), text)


def test_real_texts_lose_the_same_secrets_behind_the_looks():
    """Dialogue, tool output and credentials of every kind come out the same."""
    hidden = 0
    for text in TEXTS:
        assert without_secrets(text, _instead) == _by_patterns_alone(text), text
        hidden += without_secrets(text, _instead) != text
    assert hidden > 100


@pytest.mark.parametrize("blanks", ["  ", " \t", "\u2028\u3000", "\x1f\x85 "])
@pytest.mark.parametrize(
    "name", ["passphrase:", "The passphrase is", "password =", "PIN:", "token"]
)
def test_a_name_with_nothing_but_blanks_behind_it_is_left(name, blanks):
    """There is no secret yet; what is in the next line is another sentence."""
    for text in (
        f"{name}{blanks}",
        f"{name}{blanks}\n",
        f"{name}{blanks}\nbo likes tea, not milk.",
    ):
        assert without_secrets(text, _instead) == text
    assert "lea sails" not in without_secrets(f"passphrase:{blanks}lea sails", _instead)


_PARTS = """
password passphrase passcode pwd PIN pin code token secret api_key api-key access key credentials
is was are now will be changed to set 's : = := => " ' ` “ ” Bearer Basic sk-abc123 pk_live_abcdef99
ghp_0123456789abcdef01 github_pat_0123456789abcdef0123 glpat-0123456789ab xoxb-12345678 hf_
AKIAIOSFODNN7EXAMPLE ASIA AIza0123456789abcdefghij SG.0123456789ab ya29.0123456789 npm_ pypi-
eyJhbGci.eyJz https://ana:pw1@host -----BEGIN PRIVATE KEY----- -----END hunter2 4111 1111-1111
1111111111111111 aB3aB3aB3aB3aB3aB3aB3aB3aB3aB3 key blue42 strong
""".split()  # noqa: SIM905


@pytest.mark.slow
@settings(max_examples=examples(500))
@given(
    st.lists(
        st.tuples(
            st.sampled_from(_PARTS) | st.text(st.characters(exclude_characters="ſıİ"), max_size=4),
            st.sampled_from(["", " ", " ", "\n"]),
        ),
        max_size=24,
    )
)
def test_any_mixture_loses_the_same_secrets_behind_the_looks(parts):
    """Names, links and values in any order and case come out the same."""
    text = "".join(part + gap for part, gap in parts)
    for spelled in (text, text.upper(), text.lower()):
        assert without_secrets(spelled, _instead) == _by_patterns_alone(spelled)


def test_each_hint_passes_the_first_look():
    """What any pattern is looked for by is a part of what all are looked for by."""
    hints = [hint for hints, _, _, _ in secrets._RULES for hint in hints]
    assert [hint for hint in hints if not any(part in hint for part in secrets._GATE)] == []
