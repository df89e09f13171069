"""What the annotator reads of a step once is what each of its questions would read alone."""

import random
import re
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from helpers import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from real_texts import TEXTS
from world import a_step

from mnemo.config import Config
from mnemo.english.words import content_count, topics
from mnemo.extraction import annotator
from mnemo.extraction.annotator import _last_question, _Seen
from mnemo.extraction.scene import Kind, Parties, call_name, excerpt, kind_of
from mnemo.protocols import AnnotationRequest
from mnemo.runtime.text import one_line
from mnemo.values.steps import Step

_QUESTION = re.compile(r"[^.!?\n]{2,300}\?+(?=[\s\"'”’)*\]]|$)")


def _plainly_last_question(text: str) -> str | None:
    questions = _QUESTION.findall(text[-annotator._ASKED :])
    return re.sub(r"\s+", " ", questions[-1]).strip() if questions else None


def test_the_last_question_of_real_texts_is_the_last_of_all():
    """From the end the same question is found as by finding all of them."""
    for text in [*TEXTS, "why " * 500 + "?", "x" * 301 + "?", "?", "a?", "ab?c de?"]:
        assert _last_question(text) == _plainly_last_question(text), text


@pytest.mark.slow
@settings(max_examples=examples(500))
@given(st.text(st.sampled_from("ab?.!\n \"')x\u2028é"), max_size=40), st.integers(0, 2))
def test_the_last_question_of_any_text_is_the_last_of_all(text, long):
    """Marks in any order, and questions longer than is kept, give the same."""
    text = text.replace("x", "x" * (1 + 299 * long))
    assert _last_question(text) == _plainly_last_question(text)


@pytest.mark.slow
@given(st.text() | st.text(st.sampled_from(" \t\r\n\x0b\x1c\x85\u2028\u3000a")))
def test_one_line_makes_every_run_of_white_space_a_blank(text):
    """All white space of Unicode is taken for such, as a pattern takes it."""
    assert one_line(text) == re.sub(r"\s+", " ", text).strip()


def _steps(count: int) -> list[Step]:
    pick = random.Random(7)
    at = datetime(2024, 3, 1, tzinfo=UTC)
    steps = []
    for index in range(count):
        at += timedelta(minutes=pick.choice([0, 1, 29, 30, 31]))
        observation, action = (pick.choice(["", *pick.choices(TEXTS, k=4)])[:2_000] for _ in "oa")
        actor = pick.choice(["user", "Ana Silva", "tool"])
        steps.append(a_step(index, observation, action, at=at, actor=actor))
    return steps


def _looked_at(steps: list[Step]) -> list[_Seen]:
    request = AnnotationRequest(goal="g", before=(), fresh=tuple(steps), closing=False)
    window, _ = annotator._look(request, Parties.of(Config()))
    return window


def test_what_is_seen_of_a_step_is_what_each_reader_finds():
    """Topics, words, kind and call agree with the readers of whole texts."""
    for seen in _looked_at(_steps(120)):
        observation, action = excerpt(seen.step.observation), excerpt(seen.step.action)
        assert (seen.observation, seen.action) == (observation, action)
        assert seen.topics == topics(f"{observation[:600]}\n{action[:200]}")
        assert seen.words == content_count(observation[:600] or action[:600])
        assert seen.question == (_last_question(action) or _last_question(observation))
        by_form = kind_of(observation, said=True) is Kind.TOOL
        assert seen.tool == (seen.step.actor == "tool" or by_form)
        assert seen.call == call_name(action)


def test_recent_steps_reach_back_to_the_last_break():
    """At most three steps before, the one that begins after a break being the first."""
    window = _looked_at(_steps(120))
    assert any(seen.breaks for seen in window)
    for at in range(len(window)):
        recent: list[_Seen] = []
        for back in range(at - 1, max(-1, at - 1 - annotator.WINDOW), -1):
            recent.insert(0, window[back])
            if back and annotator._breaks(
                window[back - 1].step, recent[0].step, recent[0].observation, recent[0].action
            ):
                break
        assert annotator._recent(window, at) == recent


@pytest.mark.parametrize("count", [1, 2, 3])
def test_nearness_to_recent_steps_is_the_cosine_with_their_mean(count):
    """The same bits decide as with the library's mean and norm."""
    rows = np.random.default_rng(3).normal(size=(400, count + 1, 24)).astype(np.float32)
    rows[:, count] += 0.5 * rows[:, :count].sum(axis=1)
    near = 0
    for vectors in rows:
        mean = np.mean(list(vectors[:count]), axis=0)
        cosine = float(vectors[count] @ mean) / float(np.linalg.norm(mean))
        found = annotator._is_near(dict(enumerate(vectors)), range(count), count)
        assert found == (cosine >= annotator.CLOSE)
        near += found
    assert 0 < near < 400


def test_nothing_is_near_to_steps_that_cancel_out():
    """A mean of no length has no direction to be close to."""
    vectors = {0: np.float32([1, 0]), 1: np.float32([-1, 0]), 2: np.float32([0, 1])}
    assert not annotator._is_near(vectors, range(2), 2)
