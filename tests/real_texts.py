"""Texts as agents meet them, for tests that compare a fast way with the straightforward one."""

import random

__all__ = ["TEXTS"]

_SPEECH = """
Hey Mel! Good to see you! How have you been?
Wow, that's cool, Caroline! What happened that was so awesome? Did you hear any stories?
I went to the harbour yesterday and it was so powerful. [shares a photo of a dog]
My sister's flight was cancelled; nobody told us why… we couldn’t rebook until 9 p.m.
Thanks, that works now! No errors any more, all 14 tests passed ✅
The build still doesn't work. It failed again with a timeout, nothing is fixed.
Could you please check the order #4711 for €1,299.50? My PIN: 4711, thank you.
the password is hunter2, and the password is stored in the vault
By the way, let's move on: what is the wifi key? The key is "blue42harbour".
Not working at all. I never had success with it, but 0 errors is perfect, perfectly done!
She works at the bakery, he worked as a nurse; the fix didn't work and wasn't completed.
I’m unable to log in: access token = abcdef123456, secret: "two words here".
Call me at +49 170 1234567 or pay with 4111 1111 1111 1111, not 4111-1111-1111-1112.
नमस्ते दुनिया, मेरा नाम आशा है। 今日は東京へ行きました。駅で友達に会った！
Привет! Как дела? Всё работает, ошибок нет. Ça va très bien, merci beaucoup 😊🎉
İSTANBUL'da ERROR ve ſuccess ﬁxed KELVIN K; straße STRASSE Ǆ ǆ
ok
?
""".strip().split("\n")

_TOOLS = [
    "collected 14 items\n\ntests/test_a.py ....F.........\n\nE   AssertionError: 3 != 4\n"
    "FAILED tests/test_a.py::test_x - AssertionError\n1 failed, 13 passed in 0.42s",
    'Traceback (most recent call last):\n  File "app.py", line 3, in <module>\n    main()\n'
    "ValueError: could not convert string to float: 'x'\nexit code: 1",
    "2024-03-01 12:00:01 INFO  server started\n2024-03-01 12:00:02 ERROR no such file: a.toml\n"
    "2024-03-01 12:00:03 WARN  0 failures, retrying; status=503\nHTTP/1.1 200 OK",
    '{"status": 200, "errors": [], "error": null, "items": [{"id": 1, "ok": true}]}',
    '{"exit_code": 0, "stdout": "created 3 files", "stderr": ""}',
    "$ git push\nTo github.com:me/x.git\n ! [rejected] main -> main (fetch first)\n"
    "error: failed to push some refs\nfatal: unable to access: Permission denied (publickey).",
    "export OPENAI_API_KEY=sk-abc123DEF456ghi789\ncurl -H 'Authorization: Bearer abcDEF123.456-x'",
    "postgres://admin:s3cr3t!@db.example.com:5432/app?sslmode=require",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA7\n-----END RSA PRIVATE KEY-----",
    "AKIAIOSFODNN7EXAMPLE wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY0 ghp_16charsormore1234",
    "eyJhbGciOi.eyJzdWIiOiIx.SflKx npm_abcdefghijklmnopqrst12 hf_ABCDEFGHIJKLMNOPQR",
    "def main(args: list[str]) -> int:\n    for  a in args:\n\tprint(a)  # done\n    return 0\n",
    "\n\n   \t indented   with   runs of    blanks \r\n and a tail  ",
    "| name | passed | failed |\n|------|--------|--------|\n| a    | 12     | 0      |",
]

_CALLS = [
    'search_flights("Oslo", "Lisbon", date="2024-05-01")',
    "pytest -x tests/",
    '{"tool": "read_file", "arguments": {"path": "src/app.py"}}',
    "I checked the logs and fixed the timeout. Do you want me to deploy it? Or wait?",
    "",
]


def _mixed(count: int) -> list[str]:
    """Parts of the texts above, joined, cut, and in other cases; the same each time."""
    pick = random.Random(20240301)
    parts = [*_SPEECH, *_TOOLS, *_CALLS]
    words = [word for part in parts for word in part.split()]
    texts = []
    for _ in range(count):
        text = pick.choice([" ", "\n", ". ", "\n\n"]).join(pick.choices(parts, k=2))
        shuffled = " ".join(pick.choices(words, k=pick.randint(1, 40)))
        start = pick.randint(0, len(text))
        texts += [text, shuffled, text[start:], pick.choice([str.upper, str.title])(text[:start])]
    return texts


TEXTS = [*_SPEECH, *_TOOLS, *_CALLS, *_mixed(150), "long " * 1_500, "x" * 5_000, "a\nb" * 900]
"""Speech, tool output, calls, secrets and other scripts: some 650, and mixtures of them."""
