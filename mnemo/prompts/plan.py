"""``mode``, ``plan``, ``refine``: what kind of memory answers a question, and what to look for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Literal, TypeAlias, get_args

from pydantic import Field

from mnemo.prompts.profiles import Profile
from mnemo.prompts.question import DATA_RULE, AskedQuestion, Question, Reply, block, question
from mnemo.runtime.text import fold, one_line

Mode: TypeAlias = Literal["semantic", "procedural", "episodic", "mixed"]
MODES: tuple[Mode, ...] = get_args(Mode)
MAX_TAGS = 12
"""Tags of a plan that are used."""
MAX_TAG_CHARACTERS = 100
"""Characters of one tag; a longer one is a text, not something to look for (S)."""

# ── The mode ─────────────────────────────────────────────────────────────────────────

MODE_STANDING = f"""\
An agent asks its long-term memory a question. The memory keeps facts, instructions, and a log \
of all that was said and done. You do not answer the question; you say what kind of memory \
answers it best.

semantic: something that holds or held: who somebody is, what they own, like, plan or decided, \
what a thing is called, how much it costs.
procedural: how something is done: which steps to take, what to do in a situation, what to avoid.
episodic: what happened: when, in which order, who said what to whom, how an earlier attempt went.
mixed: more than one of these is needed, or you cannot tell.

Judge by what the answer must contain, not by single words of the question. Where the asker's \
goal and last steps are given, they only help to understand what is meant.

Answer with one JSON object: {{"mode"}}, one of {", ".join(MODES)}.

{DATA_RULE}"""


class ModeReply(Reply):
    """The shape of the reply; its case and blanks are forgiven."""

    mode: Annotated[str, Field(json_schema_extra={"enum": list(MODES)})]


def mode_question(asked: AskedQuestion, profile: Profile | None) -> Question[Mode]:
    """Ask what kind of memory answers *asked*."""
    return question(
        "mode",
        MODE_STANDING,
        profile,
        [asked.blocks, "Give the mode of this question."],
        ModeReply,
        _read_mode,
    )


def _read_mode(reply: ModeReply) -> Mode:
    said = one_line(fold(reply.mode))
    for mode in MODES:
        if said == mode:
            return mode
    raise ValueError(f"the mode is none of {', '.join(MODES)}")


# ── The tags ─────────────────────────────────────────────────────────────────────────

PLAN_STANDING = f"""\
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


def plan_question(asked: AskedQuestion, profile: Profile | None) -> Question[tuple[str, ...]]:
    """Ask what to look for to answer *asked*."""
    parts = [asked.blocks, "Give the tags to look for."]
    return question(
        "plan", PLAN_STANDING, profile, parts, TagsReply, _reads(asked, MAX_TAGS), tags=MAX_TAGS
    )


class TagsReply(Reply):
    """The shape of the reply."""

    tags: tuple[str, ...]


def _reads(asked: AskedQuestion, most: int) -> Callable[[TagsReply], tuple[str, ...]]:
    """What reads the first *most* distinct tags, one line each; the question is none."""

    def read(reply: TagsReply) -> tuple[str, ...]:
        found = {_key(asked.query): ""}
        for tag in reply.tags:
            if line := one_line(tag)[:MAX_TAG_CHARACTERS].rstrip():
                found.setdefault(_key(line), line)
        return tuple(filter(None, found.values()))[:most]

    return read


def _key(text: str) -> str:
    return one_line(fold(text)).strip(" ?!.")


# ── What to look for next ───────────────────────────────────────────────────────────────


FOUND = "FOUND SO FAR"
"""The block of the best texts found."""
MAX_REFINED_TAGS = 5
"""Tags of a refinement that are used."""
SHOWN_TEXTS = 20
"""Best texts that the model is shown."""
SHOWN_CHARACTERS = 200
"""Characters of each of them."""

REFINE_STANDING = f"""\
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
    """Ask what a second search should look for, shown the best texts *found* in short."""
    rows = [{"text": one_line(text)[:SHOWN_CHARACTERS]} for text in found]
    return question(
        "refine",
        REFINE_STANDING,
        profile,
        [asked.blocks, block(FOUND, rows[:SHOWN_TEXTS]), "Give the tags to look for next."],
        TagsReply,
        _reads(asked, MAX_REFINED_TAGS),
        tags=MAX_REFINED_TAGS,
    )
