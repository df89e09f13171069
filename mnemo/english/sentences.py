"""Sentence splitting: abbreviations, decimals, versions and quotations do not end a sentence."""

from __future__ import annotations

import re

from mnemo.english.words import word_set

_ABBREVIATIONS = word_set(
    """
    dr mr mrs ms mx prof st sr jr vs etc e.g i.e eg ie cf approx dept est fig inc ltd co corp gen
    gov hon rev sgt capt lt col no nos vol pp ed al ave blvd rd mt ft jan feb mar apr jun jul aug
    sep sept oct nov dec mon tue tues wed thu thur thurs fri sat sun a.m p.m u.s u.k ph.d b.a m.a
    """
)
# Abbreviations that may well stand at the end of a sentence: they end it before a capital.
_MAY_END = frozenset(("etc", "inc", "ltd", "co", "corp", "a.m", "p.m", "u.s", "u.k", "no", "sun"))

_LIST_MARK = re.compile(r"^[ \t]*(?:[-*+•–]|\d{1,3}[.)]|\[[ xX]\]|#{1,6}|>)[ \t]+")
# "Decision: …" on a line of its own does not go on with the line before.
_LABEL = re.compile(r"[A-Z][\w-]*(?: [a-z-]+){0,2}:\s+\S")
_MARKUP = re.compile(r"\*\*|__(?=\w)|(?<=\w)__")
# A mark that may end a sentence, its closing quotes and brackets, then a blank or the end.
_END = re.compile(
    r"(?:[.!?…]+|[。！？]+)[\"'”’)\]»]*(?=\s|$)|[。！？]+[”’」』)]*|(?<=\S)\s(?=\[[a-z]+s\s)"
)
_QUESTION_END = re.compile(r"\?[\"'”’)\]!?]*$")
_INITIALS = re.compile(r"(?:[a-z]\.)+[a-z]")
_LAST_WORD = re.compile(r"[\w.]+$")
_CUT = re.compile(r"[.!?…]+[\"'”’»)\]]*(?=\s|\Z)|[。！？]+[」』”’）]*|(?<=\S)(?=\s*\n)")
_EMOJI_END = re.compile(r"[\U0001F300-\U0001FAFF\u2600-\u27BF\uFE0F\u200D]+\s*")
_QUOTES = {"“": "”", "«": "»", "「": "」"}


def sentences(text: str) -> list[str]:
    """Split *text* into sentences, in order, trimmed, none blank; each list item is one."""
    found: list[str] = []
    for block in _blocks(text):
        found.extend(_split_block(block))
    return found


def sentence_ends(text: str) -> list[int]:
    """Ends of sentences and lines at which *text* may be cut, ascending; by marks alone."""
    return [end.end() for end in _CUT.finditer(text)]


def ends_as_question(sentence: str) -> bool:
    """Whether *sentence* ends in a question mark, closing quotes and brackets aside."""
    return _QUESTION_END.search(sentence) is not None


_BARE_CONTRACTION = re.compile(
    r"\b(?:(do|does|did|is|are|was|were|ca|could|would|should|have|has|had|wo)nt"
    r"|(?:(?<![\w.])([Ii])(m|ve)|(you|they)re|(we|you|they)ve)(?=\s))\b",
    re.IGNORECASE,
)


def with_apostrophes(text: str) -> str:
    """Restore left-out apostrophes: "dont", "im", "theyre"."""
    return _BARE_CONTRACTION.sub(_contracted, text)


def _contracted(match: re.Match[str]) -> str:
    word = match.group()
    for tail in ("nt", "re", "ve", "m"):
        if word.lower().endswith(tail):
            cut = len(word) - len(tail) + (tail == "nt")
            return f"{word[:cut]}'{word[cut:]}"
    return word


def _blocks(text: str) -> list[str]:
    if "\n" not in text:
        return [_unmarked(_LIST_MARK.sub("", text))]
    blocks: list[str] = []
    open_block = False
    for line in text.split("\n"):
        item = _LIST_MARK.match(line)
        bare = _unmarked(line[item.end() :] if item else line)
        if not bare:
            open_block = False
        elif open_block and not item and _goes_on(blocks[-1], bare):
            blocks[-1] += " " + bare
        else:
            blocks.append(bare)
            open_block = True
    return blocks


def _goes_on(block: str, line: str) -> bool:
    """Whether *line* continues *block*, which a wrapped line does and a new note does not."""
    if block.endswith((":", ".", "!", "?")) or _LABEL.match(line):
        return False
    return not (_LABEL.match(block) and line[0].isupper())


def _unmarked(line: str) -> str:
    return _MARKUP.sub("", line).strip()


def _split_block(block: str) -> list[str]:
    found: list[str] = []
    start = 0
    for end in _END.finditer(block):
        if _ends_here(block, start, end):
            _keep(found, block[start : end.end()])
            start = end.end()
    _keep(found, block[start:])
    return found


def _keep(found: list[str], piece: str) -> None:
    piece = piece.strip() if piece.isascii() else _EMOJI_END.sub(" ", piece).strip()
    if piece and any(c.isalnum() for c in piece):
        found.append(piece)


def _ends_here(block: str, start: int, end: re.Match[str]) -> bool:
    mark = end.group()
    following = block[end.end() :].lstrip()
    if _inside_quotes(block, start, end.end()):
        return False
    if mark.startswith(("…", "..")):
        return not following or following[0].isupper()
    if mark[0] != ".":
        # '"Really?" she asked' goes on in lower case behind a closing quote.
        return not (len(mark) > 1 and mark[-1] in "\"”’'" and following[:1].islower())
    return not _is_abbreviation(block, start, end.start(), following)


def _is_abbreviation(block: str, start: int, point: int, following: str) -> bool:
    last = _LAST_WORD.search(block[max(start, point - 24) : point])
    if last is None or not following:
        return False
    word = last.group().lower()
    if word in _ABBREVIATIONS:
        return not (word in _MAY_END and following[0].isupper())
    head = block[max(start, point - 24) : point][: last.start()]
    initial = len(word.replace(".", "")) == 1 and word != "i" and not head.endswith(("'", "’"))
    if initial or _INITIALS.fullmatch(word):
        return True
    return following[0].islower() and not following.startswith(("i ", "i'"))


def _inside_quotes(block: str, start: int, end: int) -> bool:
    piece = block[start:end]
    # A quotation may span sentences, but an unclosed mark must not swallow the rest.
    if piece.count('"') % 2 and '"' in block[end : end + 600]:
        return True
    return any(
        opening in piece
        and piece.count(opening) > piece.count(closing)
        and closing in block[end : end + 600]
        for opening, closing in _QUOTES.items()
    )
