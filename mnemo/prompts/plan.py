"""``plan``: what to look for in the memory, beside the question's own words."""

from __future__ import annotations

from mnemo.prompts.asked import Asked
from mnemo.prompts.data import DATA_RULE
from mnemo.prompts.profiles import Profile, instructed
from mnemo.prompts.question import Question, schema_of
from mnemo.prompts.tags import TagsReply, read_tags

__all__ = ["MAX_TAGS", "plan_question"]

MAX_TAGS = 12
"""Tags of a plan that are used."""

STANDING = f"""\
An agent asks its long-term memory a question. The memory is searched with the question's own \
words in any case; you name what else to look for. You do not answer the question.

A tag is one to four words that the sought memory is likely to contain or to be filed under:
- names, numbers and terms of the question, spelt out in full;
- other words for the same thing: what a speaker or a note would have called it;
- days that the question means by "yesterday" or "last spring", written as dates;
- the concept that the answer belongs to.

Nothing vague ("information", "details", "user"), nothing that contradicts the question, no \
guessed answers. The most telling tag comes first. Where the asker's goal and last steps are \
given, use them to understand what the question means; the question leads.

Answer with one JSON object: {{"tags"}}, a list of at most {MAX_TAGS}. A few good ones are better.

{DATA_RULE}"""


def plan_question(asked: Asked, profile: Profile | None) -> Question[tuple[str, ...]]:
    """Ask what to look for to answer *asked*."""
    return Question(
        purpose="plan",
        system=instructed(STANDING, "plan", profile),
        user=f"{asked.blocks}\n\nGive the tags to look for.",
        schema=schema_of(TagsReply, tags=MAX_TAGS),
        read=lambda value: read_tags(value, at_most=MAX_TAGS, query=asked.query),
    )
