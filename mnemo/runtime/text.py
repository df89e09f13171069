"""Text normalisation shared by all comparisons: cleaning, counts, folding, stop words, stems."""

from __future__ import annotations

import math
import re
import threading
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

# Articles, auxiliaries, pronouns, prepositions, conjunctions and question words of English.
STOP_WORDS = frozenset(
    """
    a about above after again against all also am an and any are aren't as at be because been
    before being below between both but by can can't cannot could couldn't did didn't do does
    doesn't doing don't down during each few for from further had hadn't has hasn't have
    haven't having he he'd he'll he's her here hers herself him himself his how i i'd i'll i'm
    i've if in into is isn't it it's its itself just let's me more most my myself no nor not of
    off on once only or other our ours ourselves out over own same shall she she'd she'll she's
    should shouldn't so some such than that that's the their theirs them themselves then there
    there's these they they'd they'll they're they've this those through to too under until up
    us very was wasn't we we'd we'll we're we've were weren't what what's when where which
    while who whom whose why will with won't would wouldn't you you'd you'll you're you've your
    yours yourself yourselves
    """.split()  # noqa: SIM905
)

_WORD = re.compile(r"[^\W_]+(?:['’.][^\W_]+)*")
# Han, kana, Hangul, Thai, Lao, Khmer, Myanmar: no blanks between words, or particles attached.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3040-\u30ff\u3130-\u318f"
    "\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uff9f"
    "\U00020000-\U0003ffff]+"
)
# A word as the full text cuts it; marks it folds away are inside, all others between words.
_MARKS = "\u0300-\u0304\u0306-\u030c\u030f\u0311\u031b\u0323-\u0328\u032d\u032e\u0330\u0331"
_INDEXED = re.compile(f"[^\\W_]+(?:[{_MARKS}]+[^\\W_]*)*")
_ASCII = "".join(chr(c).lower() if chr(c).isalnum() else " " for c in range(128))
"""Each character as it is in a word, or a blank; for ASCII, four times as fast as the pattern."""
_MEASURED = re.compile("[aeiou][^aeiou]|[^aeiou]y[^aeiouy]")
# In bytes, as the full text has it.
_SHORTEST_STEMMED, _LONGEST_STEMMED = 3, 64
_BLANK = re.compile(r"\s")
SLICE = 65_536
"""Characters that are looked through in one call, or a few more."""
_SURROGATES = re.compile("[\ud800-\udfff]")
# Controls but tab and line end; format characters; selectors behind another, or of no script.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]|\r(?!\n)"
    "|[\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]"
    "|(?<=[\ufe00-\ufe0f])[\ufe00-\ufe0f]"
    # A flag such as Scotland's is one match, which stays; a tag elsewhere is hidden text.
    "|\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{3,6}\U000e007f"
    "|[\U000e0000-\U000e0fff]"
)
_RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
_JOINERS, _DIRECTION_MARKS = frozenset("\u200c\u200d"), frozenset("\u061c\u200e\u200f")
_LETTER_KINDS = frozenset(("L", "M", "So", "Sk"))


def clean(text: str) -> str:
    """Make *text* storable in any store: U+0000 and lone surrogates become U+FFFD."""
    if "\0" in text:
        text = text.replace("\0", "\ufffd")
    if text.isascii():
        return text
    try:
        text.encode()  # far cheaper than the pattern, and fails at a lone surrogate only
    except UnicodeEncodeError:
        return _SURROGATES.sub("\ufffd", text)
    return text


def visible(text: str, spelled: Callable[[str], str] | None = None) -> str:
    """
    Spell what nobody sees in *text*, and what steers a terminal, as ``\\u202e``; one rule for
    prompts, terminals and answers of tools. Stored text keeps it.

    That is: controls but tab and line end, embeddings, overrides and isolates of direction,
    zero-width and other format characters, tag characters. What scripts and emoji need stays:
    joiners (U+200C, U+200D) beside a letter, mark or emoji outside ASCII, a zero-width space
    beside a script without blanks, single direction marks in a text of a right-to-left script,
    and the tags of flags.

    Args:
        spelled: Spells one character; default: ``\\u`` and four digits, or ``\\U`` and eight.
    """
    if text.isascii() and text.isprintable():
        return text
    marks = not text.isascii() and _RIGHT_TO_LEFT.search(text) is not None
    spell = spelled or _spelled

    def shown(found: re.Match[str]) -> str:
        one = found.group()
        return one if _is_needed(text, found.start(), one, marks=marks) else spell(one)

    return _HIDDEN.sub(shown, text)


def _spelled(one: str) -> str:
    code = ord(one)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _is_needed(text: str, at: int, one: str, *, marks: bool) -> bool:
    """Whether the script around it needs *one*; *marks*: marks of direction may stand."""
    before, after = text[max(at - 1, 0) : at], text[at + 1 : at + 2]
    if one in _JOINERS:
        return _joins(before) or _joins(after)
    if one in _DIRECTION_MARKS:
        return marks and before not in _DIRECTION_MARKS
    if one == "\u200b":
        return has_unspaced(before) or has_unspaced(after)
    if "\U000e0100" <= one <= "\U000e01ef":  # a variant of a Han character
        return has_unspaced(before)
    return len(one) > 1


def _joins(one: str) -> bool:
    """Whether *one* is a letter, mark or emoji outside ASCII; of nothing it is false."""
    if not one or one.isascii():
        return False
    kind = unicodedata.category(one)
    return kind in _LETTER_KINDS or kind[0] in _LETTER_KINDS


def composed(text: str) -> str:
    """Compose *text* (NFC), as queries are: a letter and its marks as one character."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def is_blank(text: str | None) -> bool:
    """Whether there is nothing in *text* but white space of any script, or it is ``None``."""
    return text is None or not text or text.isspace()


_FINAL_MARKS = ".。!！"


def plain(text: str) -> str:
    """Normalise *text*: blanks squeezed, case folded, the final point removed."""
    squeezed = one_line(unicodedata.normalize("NFC", text)).casefold()
    return squeezed.rstrip(_FINAL_MARKS).rstrip() or squeezed


def one_line(text: str) -> str:
    """Collapse every run of white space in *text*, line breaks included, to one blank."""
    return " ".join(text.split())


def count_tokens(text: str | None) -> int:
    """
    The service's token count: ``ceil(utf8_bytes / 4)``; ``None`` and ``""`` count 0.

    An estimate on purpose (no model's tokenizer is the right one); bytes, not
    characters, so that 4,000 CJK characters count 3,000.
    """
    if not text:
        return 0
    return math.ceil(len(text.encode("utf-8", "replace")) / 4)


def fold(text: str) -> str:
    """Case and accents folded: what makes ``Café`` and ``CAFE`` the same word."""
    if text.isascii():
        return text.lower()
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    folded = "".join(c for c in decomposed if not unicodedata.combining(c))
    return unicodedata.normalize("NFC", folded).replace("’", "'")


def has_unspaced(text: str) -> bool:
    """Whether *text* holds a character of a script written without blanks."""
    return not text.isascii() and _UNSPACED.search(text) is not None


def unspaced_runs(text: str) -> list[tuple[int, int]]:
    """Start and end of each run of such characters, in order."""
    return [found.span() for found in _UNSPACED.finditer(text)]


def words(text: str) -> list[str]:
    """The words of *text*, folded, in order; an apostrophe or point inside a word is part of it."""
    if len(text) <= SLICE:
        return _WORD.findall(fold(text))
    return [word for part in slices(text) for word in _WORD.findall(fold(part))]


def slices(text: str) -> Iterator[str]:
    """Split *text* at white space: one call on all of it would hold the interpreter."""
    start = 0
    while start < len(text):
        found = _BLANK.search(text, start + SLICE)
        end = found.end() if found else len(text)
        yield text[start:end]
        start = end


def content_words(text: str) -> list[str]:
    """The words of *text* without stop words, folded, in order, repeats kept."""
    return [w for w in words(text) if w not in STOP_WORDS]


class _Stemmers(threading.local):
    """A stemmer for each thread: it keeps the word it works on in itself."""

    def __init__(self) -> None:
        import snowballstemmer

        self.english: Any = snowballstemmer.stemmer("english")
        self.porter: Any = snowballstemmer.stemmer("porter")


@lru_cache(maxsize=1)
def _stemmers() -> _Stemmers:
    return _Stemmers()


@lru_cache(maxsize=2_048)
def stem(word: str) -> str:
    """The English stem of a folded word (Snowball); words with digits or marks are kept."""
    if not word.isascii() or not word.isalpha():
        return word.removesuffix("'s")
    return str(_stemmers().english.stemWord(word))


def index_words(text: str) -> Iterator[tuple[str, int, int]]:
    """The words of *text* as the full text knows them, each with its start and end."""
    for found in _INDEXED.finditer(text):
        yield index_stem(composed(found.group())), found.start(), found.end()


def index_stems(text: str, *, ascii: bool | None = None) -> list[str]:
    """The words of *text* as the full text knows them; *ascii*: Whether it is, if that is known."""
    if ascii is None:
        ascii = text.isascii()
    found = text.translate(_ASCII).split() if ascii else _INDEXED.findall(text)
    return list(map(index_stem, found))


@lru_cache(maxsize=4_096)
def index_stem(word: str) -> str:
    """A word as the full text knows it: folded, then stemmed as Porter first described it."""
    ascii = word.isascii()
    folded = word.lower() if ascii else "".join(map(_index_fold, word))
    if ascii and not word[_SHORTEST_STEMMED - 1 :]:
        return folded
    size = len(folded if ascii else folded.encode())
    if not _SHORTEST_STEMMED <= size <= _LONGEST_STEMMED:
        return folded
    if folded.endswith("bly") and _MEASURED.search(folded, 0, len(folded) - 3):
        # As in "possible" and "assemble": an ending that the published algorithm forgot.
        folded = folded[:-1] + "e"
    return str(_stemmers().porter.stemWord(folded))


def _index_fold(character: str) -> str:
    """Lower case; accents of the Latin alphabet, and marks of their own, go."""
    if "\u0300" <= character <= "\u0331":
        return ""
    base = unicodedata.normalize("NFD", character)[0]
    if base.isascii():
        return base.lower()
    return lower_each(character)


def lower_each(text: str) -> str:
    """Lower *text* character by character, so that no index moves."""
    lowered = text.lower()
    if len(lowered) == len(text):
        return lowered
    return "".join(low if len(low := c.lower()) == 1 else c for c in text)


def terms(text: str) -> Iterator[str]:
    """
    The index terms of *text*: folded, stop words dropped, stemmed, repeats kept.

    A run in a script written without blanks gives its character pairs (a run of
    one gives itself), so that a query from the middle of a text can meet it.
    """
    return terms_of(words(text))


def terms_of(folded: Iterable[str]) -> Iterator[str]:
    """The index terms of words that ``words`` gave; see ``terms``."""
    return chain.from_iterable(map(_terms_of_word, folded))


@lru_cache(maxsize=4_096)
def _terms_of_word(word: str) -> tuple[str, ...]:
    if not word.isascii():
        return tuple(_mixed_terms(word))
    return () if word in STOP_WORDS else (stem(word),)


def _mixed_terms(word: str) -> Iterator[str]:
    at = 0
    for run in _UNSPACED.finditer(word):
        if run.start() > at:
            yield word[at : run.start()]
        characters = run.group()
        if len(characters) == 1:
            yield characters
        for i in range(len(characters) - 1):
            yield characters[i : i + 2]
        at = run.end()
    if at < len(word):
        yield word[at:]


SHOWN = 60
"""Characters of a text in a repr."""
_READ = 1_000
"""Characters of it that are looked at."""


def shown(text: str) -> str:
    """The beginning of *text* on one line, at most ``SHOWN`` characters."""
    line = one_line(text[:_READ])
    return line if len(line) <= SHOWN else f"{line[: SHOWN - 1]}…"


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """Give "1 step", "2 steps"; *plural* where it is not *noun* with an s."""
    return f"{count} {noun if count == 1 else plural or noun + 's'}"


def html_table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table for ``_repr_html_``; every text is escaped, so that none of it is markup."""
    from html import escape  # wanted in notebooks alone

    def row(cell: str, texts: Iterable[str]) -> str:
        cells = "".join(f"<{cell}>{escape(text)}</{cell}>" for text in texts)
        return f"<tr>{cells}</tr>"

    head, body = row("th", heads), "".join(row("td", texts) for texts in rows)
    named = f"<caption>{escape(caption)}</caption>"
    return f"<table>{named}<thead>{head}</thead><tbody>{body}</tbody></table>"
