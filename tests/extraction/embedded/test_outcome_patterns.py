"""The patterns behind gates find what one pattern that ignores case finds."""

import re
import sys

import pytest
from helpers import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from real_texts import TEXTS

from mnemo.extraction import scene
from mnemo.extraction.scene import OutcomeVerdict, verdict

_PLAIN = re.compile(
    r"(?P<exit>\b(?:exit(?:ed)?(?: with)?(?:[ _](?:code|status))|exitcode|returncode|exit_code)"
    r"[\"']?\s{0,2}[:=]?\s{0,2}(?P<code>-?\d{1,5})\b)"
    r"|(?P<http>\b(?:HTTP/\d(?:\.\d)?|status(?:[ _]?code)?)[\"']?\s{0,2}[:=]?\s{0,2}"
    r"(?P<status>[1-5]\d\d)\b)"
    r"|(?P<bad>(?<![\w])(?:error|errors|exception|exceptions|traceback|failed|failure|failures"
    r"|fails"
    r"|failing|denied|not found|timeout|timed out|time out|wrong|crashed|crashes|fatal|panic"
    r"|no such file|refused|unable to|could not|couldn['’]t|cannot|broke|broken|npm err!"
    r"|(?:does|did|do|is|are)(?:n['’]t| not)(?: \w+)? work(?:ing)?|not working)(?![\w-])"
    r"|\b\w{1,60}(?:Error|Exception)\b)"
    r"|(?P<polite>\bthanks\b|\bthank you\b|\bperfect(?:ly)?\b)"
    r"|(?P<good>\bpassed\b|\bpasses\b|\bpassing\b|\bdone\b|\bfixed\b|\bcreated\b|\bsucceeded\b"
    r"|\bsuccess(?:ful(?:ly)?)?\b|\bcompleted\b|\bresolved\b|\bsolved\b|\bworked\b"
    r"|\bworks\b(?!\s+(?:at|for|as|in|with|from|of)\b)|\bworking (?:now|again|fine)\b|✓|✅)",
    re.IGNORECASE,
)


def _straightforward(text: str) -> OutcomeVerdict:
    good = bad = polite = False
    for count, cue in enumerate(_PLAIN.finditer(text)):
        said_good, said_bad = scene._judge(cue, text)
        polite = polite or (said_good and cue["polite"] is not None)
        good = good or (said_good and cue["polite"] is None)
        bad = bad or said_bad
        if (good and bad) or count >= scene._ENOUGH:
            break
    return OutcomeVerdict(good or polite, bad, polite and not good)


def test_verdicts_of_real_texts_are_those_of_the_plain_pattern():
    """Dialogue, tool output and code, whole and by lines, give the same verdict."""
    for text in [*TEXTS, *(line for whole in TEXTS for line in whole.split("\n"))]:
        assert verdict(text) == _straightforward(text), text


_SIGNS = """
error Errors EXCEPTION ValueError xerror error_ -error errors-free traceback failed fails FAILING
denied not found timeout timed out time wrong crashed fatal panic no such file refused unable to
could couldn't couldn’t cannot broke broken npm err! ERR! does did isn't is are not work working
works worked at for now again fine thanks thank you perfect perfectly passed passes done fixed
created success succeeded successfully completed resolved solved ✓ ✅ exit exited code: status=
returncode HTTP/1.1 200 404 0 -1 1 fınıshed faİled ſolved worKed no never without gone 0.
""".split()  # noqa: SIM905
_PIECES = st.sampled_from([*_SIGNS, *" \n_-.'x", "  "]) | st.text(max_size=4)


@pytest.mark.slow
@settings(max_examples=examples(500))
@given(st.lists(st.tuples(_PIECES, st.sampled_from(["", " ", "\n"])), max_size=24))
def test_any_mixture_of_signs_gives_the_verdict_of_the_plain_pattern(
    parts,
):
    """Signs in any case and neighbourhood, negated or not, are judged the same."""
    text = "".join(piece + gap for piece, gap in parts)
    for spelled in (text, text.upper(), text.title()):
        assert verdict(spelled) == _straightforward(spelled)


@pytest.mark.slow
def test_case_is_folded_as_a_pattern_that_ignores_it_does():
    """Of all characters the same ones stand for each letter, and the same ones are in words."""
    letter, word = re.compile("[a-z]", re.IGNORECASE), re.compile(r"\w")
    for character in map(chr, range(sys.maxunicode + 1)):
        folded = scene._folded(character)
        assert len(folded) == 1
        assert ("a" <= folded <= "z") == (letter.match(character) is not None), character
        assert (word.match(folded) is None) == (word.match(character) is None), character
