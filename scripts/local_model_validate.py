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

import anyio
from local_model import MODEL_NAME
from local_model_questions import QUESTIONS, questions

from mnemo.errors import InvalidReply, ModelError
from mnemo.models import OpenAIChatModel
from mnemo.prompts.calling import Asker
from mnemo.prompts.question import what_is_wrong
from mnemo.prompts.usage import UsageMeter

TIMEOUT_S = 600.0
"""Seconds per call: how busy the machine is must not change the counts."""


@dataclass
class Count:
    """What became of the questions of one purpose."""

    became: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    used: Counter[str] = field(default_factory=Counter)

    def add(self, error: ModelError | None, meter: UsageMeter, seconds: float) -> None:
        """Count one question; its second call was the correction."""
        used = meter.total
        self.seconds.append(seconds)
        self.used.update(calls=used.calls, read=used.input_tokens, wrote=used.output_tokens)
        if error is None:
            self.became["at once" if used.calls == 1 else "corrected"] += 1
        else:
            self.became["never" if isinstance(error, InvalidReply) else "failed"] += 1
            cause = error.__cause__
            self.wrong[what_is_wrong(cause) if isinstance(cause, ValueError) else str(error)] += 1

    def row(self, purpose: str) -> str:
        """The line of the table."""
        outcomes = [self.became[what] for what in ("at once", "corrected", "never", "failed")]
        tokens = [round(self.used[what] / self.used["calls"]) for what in ("read", "wrote")]
        mostly = "; ".join(f"{what} ({n})" for what, n in self.wrong.most_common(1))
        cells = (purpose, *outcomes, f"{median(self.seconds):.1f} s", *tokens, mostly)
        return "| " + " | ".join(map(str, cells)) + " |"


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
                meter, began, failure = UsageMeter(), perf_counter(), None
                try:
                    await Asker(model, meter=meter, timeout_s=TIMEOUT_S).ask(question)
                except ModelError as error:
                    failure = error
                count.add(failure, meter, perf_counter() - began)
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
