"""
Count how many replies of the local model fit what was asked, by purpose.

The questions are mnemo's own, asked as a session asks them: over HTTP by
``OpenAIChatModel``, each reply validated, one correction. The model is greedy
(temperature 0); still, counts may differ by one or two between runs, since its server
reuses what it has computed for the last prompt.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import anyio
from local_model import MODEL_NAME
from local_model_questions import QUESTIONS, questions

from mnemo.errors import InvalidReply, ModelError
from mnemo.models import OpenAIChatModel
from mnemo.prompts.calling import Asker
from mnemo.prompts.question import Question, what_is_wrong
from mnemo.prompts.usage import UsageMeter

TIMEOUT_S = 600.0
"""Seconds per call: how busy the machine is must not change the counts."""


@dataclass
class Count:
    """What became of the questions of one purpose."""

    at_once: int = 0
    corrected: int = 0
    never: int = 0
    failed: int = 0
    seconds: list[float] = field(default_factory=list)
    input_tokens: int = 0
    output_tokens: int = 0
    calls: int = 0
    wrong: Counter[str] = field(default_factory=Counter)

    def add(self, error: ModelError | None, meter: UsageMeter, seconds: float) -> None:
        """Count one question; its second call was the correction."""
        used = meter.total
        self.calls += used.calls
        self.input_tokens += used.input_tokens
        self.output_tokens += used.output_tokens
        self.seconds.append(seconds)
        if error is None and used.calls == 1:
            self.at_once += 1
        elif error is None:
            self.corrected += 1
        elif isinstance(error, InvalidReply):
            self.never += 1
        else:
            self.failed += 1
        if error is not None:
            self.wrong[_why(error)] += 1

    def row(self, purpose: str) -> str:
        """The line of the table."""
        cells = (
            purpose, self.at_once, self.corrected, self.never, self.failed,
            f"{median(self.seconds):.1f} s",
            round(self.input_tokens / self.calls), round(self.output_tokens / self.calls),
            "; ".join(f"{what} ({n})" for what, n in self.wrong.most_common(1)),
        )  # fmt: skip
        return "| " + " | ".join(map(str, cells)) + " |"


def _why(error: ModelError) -> str:
    """In one line, without what it is about."""
    cause = error.__cause__
    return what_is_wrong(cause) if isinstance(cause, ValueError) else str(error)


@contextmanager
def served() -> Iterator[str]:
    """The base URL of a server of our own."""
    command = [sys.executable, str(Path(__file__).with_name("local_model.py"))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            url = server.stdout.readline().strip() if server.stdout else ""
            if not url:
                sys.exit("scripts/local_model: the server did not start")
            yield url
        finally:
            server.terminate()


async def ask(model: OpenAIChatModel, question: Question[Any], count: Count) -> None:
    """Ask one question and count what became of it."""
    meter, began, failure = UsageMeter(), perf_counter(), None
    try:
        await Asker(model, meter=meter, timeout_s=TIMEOUT_S).ask(question)
    except ModelError as error:
        failure = error
    count.add(failure, meter, perf_counter() - began)


async def validate(url: str, rounds: int, max_output_tokens: int) -> None:
    """Ask *rounds* questions of every purpose, and print a table."""
    print(f"{MODEL_NAME}, {rounds} questions per purpose, at most {max_output_tokens} tokens each")
    print("| purpose | at once | corrected | never | failed | median | in | out | mostly wrong |")
    print("|---|---|---|---|---|---|---|---|---|")
    model = OpenAIChatModel(
        url, MODEL_NAME, max_concurrency=1, max_retries=0, max_output_tokens=max_output_tokens
    )
    async with model:
        for purpose in QUESTIONS:
            count = Count()
            for question in questions(purpose, rounds):
                await ask(model, question, count)
            print(count.row(purpose), flush=True)


def main() -> None:
    """Read the command line, serve, ask and count."""
    parser = argparse.ArgumentParser(prog="scripts/local_model")
    parser.add_argument("--validate", type=int, metavar="N", help="questions per purpose")
    parser.add_argument("--max-output-tokens", type=int, default=128)
    asked = parser.parse_args()
    if asked.validate < 1 or asked.max_output_tokens < 1:
        parser.error("give numbers from 1")
    with served() as url:
        anyio.run(validate, url, asked.validate, asked.max_output_tokens)


if __name__ == "__main__":
    main()
