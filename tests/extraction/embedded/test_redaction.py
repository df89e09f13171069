"""What looks like a secret is hidden, everyday words are not."""

import pytest

from mnemo.extraction.scene import redact


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ('{"api_key": "sk-…"}', "sk-"),
        ("export AWS_SECRET_ACCESS_KEY=abcd/efgh", "abcd"),
        ("password: hunter22!", "hunter22"),
        ("my password is hunter22.", "hunter22"),
        ("remember my password, it is hunter2", "hunter2"),
        ("Here is my PIN code. It's 8812!", "8812"),
        ("the wifi password for the office: that is blue42", "blue42"),
        ("the deploy key is dk-29fj-22, use it", "dk-29fj"),
        ("the token for the staging server is qwe123", "qwe123"),
        ("Authorization: Bearer abcdefgh12345", "abcdefgh"),
        ("postgres://app:pa55@db/x", "pa55"),
        ("ghp_abcdefghijklmnopqrstuvwxyz0123456789", "ghp_"),
        ("AKIAABCDEFGHIJKLMNOP", "AKIA"),
        ("eyJhbGciOi.eyJzdWIiOi.c2lnbmF0dXJl", "eyJ"),
        ("blob Zm9vYmFyQmF6MTIzNDU2Nzg5MHF1dXg4", "Zm9v"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIabc\n-----END RSA PRIVATE KEY-----", "MIIabc"),
    ],
)
def test_secrets_are_hidden(text, secret):
    """Keys, tokens and passwords of known and unknown kinds leave the text."""
    assert secret not in redact(text)


@pytest.mark.parametrize(
    "text",
    [
        "The token limit is 5",
        "The password is wrong",
        "The key is patience",
        "Remember the password, it is important.",
        "I changed my password. It is time to go",
        "max_tokens: 4096",
        "Her secret is that she sings",
        "src/extraction/embedded/annotator_of_steps.py",
        "I lost my keys yesterday",
    ],
)
def test_everyday_words_stay(text):
    """A text without a secret is left as it is."""
    assert redact(text) == text
