"""``refine``: which tags a second search should look for, given what was found."""

from __future__ import annotations

from collections.abc import Iterable

from mnemo.prompts.data import DATA_RULE, AskedQuestion, block
from mnemo.prompts.plan import TagsReply, read_tags
from mnemo.prompts.profiles import Profile, instructed
from mnemo.prompts.question import Question, schema_of
from mnemo.runtime.text import one_line

FOUND = "FOUND SO FAR"
"""The block of the best texts found."""
MAX_REFINED_TAGS = 5
"""Tags of a refinement that are used."""
SHOWN_TEXTS = 20
"""Best texts that the model is shown."""
SHOWN_CHARACTERS = 200
"""Characters of each of them."""

STANDING = f"""\
An agent has asked its long-term memory a question, and a first search has found some texts, \
best first, each cut short. You say what a second search should look for. You do not answer \
the question.

Find what is still missing for an answer. Often a found text names the very thing that the \
question only describes, or the person, place or project through which the rest hangs together: \
that name is a good tag. A tag is one to four words that the missing memory is likely to \
contain. Repeat nothing that the first search has plainly looked for already, and guess no answers.

Answer with one JSON object: {{"tags"}}, a list of at most {MAX_REFINED_TAGS}. An empty list is \
a good answer where what was found is enough, or leads no further.

{DATA_RULE}"""


def refine_question(
    asked: AskedQuestion, found: Iterable[str], profile: Profile | None
) -> Question[tuple[str, ...]]:
    """
    Ask what a second search should look for.

    Args:
        found: Texts of the candidates so far, best first; 20 are shown, cut to 200 characters.
    """
    rows = [{"text": one_line(text)[:SHOWN_CHARACTERS]} for text in found]
    return Question(
        purpose="refine",
        system=instructed(STANDING, "refine", profile),
        user="\n\n".join(
            (asked.blocks, block(FOUND, rows[:SHOWN_TEXTS]), "Give the tags to look for next.")
        ),
        schema=schema_of(TagsReply, tags=MAX_REFINED_TAGS),
        read=lambda value: read_tags(value, at_most=MAX_REFINED_TAGS, query=asked.query),
    )
