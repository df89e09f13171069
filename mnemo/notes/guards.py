"""Guards of what may be stored in a note: redact secrets, refuse prompt injection."""

from __future__ import annotations

import re
import unicodedata

from mnemo.errors import InvalidNote
from mnemo.runtime.secrets import without_secrets
from mnemo.runtime.text import clean, fold

REDACTED = re.compile(r"\[redacted:[a-z-]+\]")
MOSTLY = 0.5
"""Share of a body's words that are redactions, from which nothing of worth is left."""

# Folded texts: lower case, accents gone, straight quotes.
_ORDERS = (
    # To ignore or override what an agent was told.
    r"\b(?:ignore|disregard|forget|override|bypass|overrule|do not follow|don't follow)\b"
    r"(?=.{0,30}\b(?:all|any|your|my|previous|prior|earlier|above|these|those|system|safety|other)\b)"
    r".{0,50}\b(?:instructions?|prompts?|rules?|guidelines?|directions?|messages?|polic(?:y|ies)"
    r"|constraints?|restrictions?|training)\b",
    r"\b(?:ignore|disregard|forget) (?:all |everything |anything )?"
    r"(?:of )?(?:the |what )?(?:above|previous|prior|earlier|before|was said)"
    r"(?=\s*(?:$|[^\w\s]|and\b|text\b|context\b|conversation\b|content\b))",
    r"\b(?:ignore|disregard|forget)\b.{0,20}\bwhat(?:ever)? you (?:were|have been|are) told\b",
    r"\b(?:do not|don't|never) follow\b.{0,20}\b(?:rules|instructions|orders)\b.{0,20}\bgiven\b",
    r"\b(?:new|updated|real|actual) (?:system )?(?:instructions?|prompt)\b ?:",
    r"\byou are now\b|\bfrom now on,? you (?:are(?! to\b)|must act|will act)\b"
    r"|\bpretend (?:to be|you are)\b|\b(?:developer|dan|jailbreak|god) mode\b",
    r"\breveal\b.{0,30}\b(?:system prompt|instructions)\b",
    # Marks of roles and tool calls.
    r"^\s*(?:[-*>] ?)?(?:<\|?|\[|#{1,6} ?)?(?:system|assistant|developer|tool|human)"
    r"(?:\|?>|\])?\s*:(?!//)",
    r"<\|[a-z_]+\|>|<\/?(?:system|assistant|user|tool_call|function_call|tool_use|invoke"
    r"|function_calls|antml)\b[^>]*>|\[/?inst\]|<</?sys>>|<(?:start|end)_of_turn>",
    r'"(?:tool_calls?|function_call)"\s*:',
    # To hide something from the user.
    r"\b(?:do not|don't|never|without)\b.{0,20}\b(?:tell(?:ing)?|inform(?:ing)?"
    r"|mention(?:ing)?|reveal(?:ing)?|show(?:ing)?|alert(?:ing)?|notify(?:ing)?)\b.{0,30}"
    r"\b(?:the )?(?:user|human|owner|customer|operator)\b",
    r"\b(?:user|human|owner)\b.{0,20}\b(?:must|should|may|need) (?:not|never)\b.{0,10}"
    r"\b(?:know|see|learn|notice|find out|be told)\b|\bwithout the (?:user|human|owner)(?:'s)?"
    r" (?:know|notic)",
    r"\b(?:hide|conceal|keep)\b.{0,40}\b(?:secret )?from (?:the )?"
    r"(?:user|human|owner|customer|operator)\b",
    # To send content to an address.
    r"\b(?:send|forward|post|upload|e-?mail|exfiltrate|transmit|leak|submit|copy)\b.{0,80}\bto\b"
    r".{0,40}(?:https?://|www\.|[\w.+-]+@[\w-]+\.[a-z])",
    r"\b(?:fetch|curl|wget|open|visit|call|load)\b.{0,20}https?://\S*[?&=]\S*\{",
)
_ORDER = re.compile("|".join(f"(?:{order})" for order in _ORDERS))


# Letters of other scripts that look like Latin ones, folded.
_LOOKALIKES = str.maketrans(
    "авсеԁһіјкӏмопԛрѕтυѵԝхуαεικνορτχγıɩɡ",
    "abcedhijklmonqpstuvwxyaeikvoptxyiig",
)
_EMPHASIS = re.compile(r"[*~`]+")
_UNSEEN = re.compile("[\u115f\u1160\u2800\u3164\uffa0]")


def _forms(line: str) -> tuple[str, str]:
    """Fold *line*, look-alike letters included; with Markdown emphasis, and without."""
    wide = unicodedata.normalize("NFKD", line)
    shown = "".join(c for c in wide if unicodedata.category(c) not in ("Cf", "Mn", "Me"))
    seen = fold(_UNSEEN.sub(" ", shown)).translate(_LOOKALIKES)
    return seen, _EMPHASIS.sub("", seen).replace("_", " ")


def redact(text: str) -> str:
    """Replace every secret in *text* by ``[redacted:<kind>]``."""
    return without_secrets(text, lambda kind: f"[redacted:{kind}]")


def said_of(error: BaseException | None) -> str | None:
    """Class and message of *error*, redacted."""
    if error is None:
        return None
    try:
        said = str(error)
    except Exception:
        said = "(it cannot be shown)"
    return redact(clean(f"{type(error).__name__}: {said}"))[:1000]


def check_redacted(topic: str, body: str) -> None:
    """*Raises* ``InvalidNote``, ``secret``: the topic holds one, or the body is mostly such."""
    if redact(topic.replace("-", " ")) != topic.replace("-", " ") or redact(topic) != topic:
        raise InvalidNote("secret", "a topic must not hold a key, token or password")
    hidden = len(REDACTED.findall(body))
    rest = [word for word in REDACTED.sub(" ", body).split() if any(map(str.isalnum, word))]
    if hidden and hidden >= MOSTLY * (hidden + len(rest)):
        raise InvalidNote("secret", "nothing of worth is left once the secrets are taken out")


def check_screen(text: str, known: str = "") -> None:
    """
    Screen a text for prompt injection: orders to the agent that may read it.

    Args:
        known: What the note says already; its lines are not looked at again.

    Raises:
        InvalidNote: ``instruction_like``.
    """
    old = {line.strip() for line in known.splitlines()}
    fresh = [line for line in text.splitlines() if line.strip() and line.strip() not in old]
    for line in (*fresh, " ".join(fresh) if len(fresh) > 1 else ""):
        if any(_ORDER.search(form) for form in _forms(line)):
            message = "a note states facts and preferences; this reads like an order to an agent"
            raise InvalidNote("instruction_like", message)
