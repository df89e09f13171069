"""Other languages than English are noticed by their commonest words or by their script."""

from pathlib import Path

import pytest

import mnemo
from mnemo.english.letters import is_foreign


@pytest.mark.parametrize(
    "text",
    [
        "Ich bin gestern mit meiner Schwester nach Hamburg gefahren.",
        "Mi hermana vive ahora en Sevilla con su novio.",
        "Je ne peux pas venir demain, mon fils est malade.",
        "Ho comprato una macchina nuova, ma non mi piace molto.",
        "Eu não gosto de café, mas tomo chá todos os dias.",
        "Ik woon nu in Utrecht en werk bij een bakker.",
        "Nie mam czasu, bo jutro jest egzamin.",
        "Dün akşam çok yoruldum ve erken yattım.",
        "Jag har en hund som heter Bosse.",
        "我昨天搬到了上海。",
        "Я живу в Казани уже пять лет.",
        "أعمل ممرضة في المستشفى",
        "저는 서울에서 일해요.",
        "私は猫を二匹飼っています",
    ],
)
def test_another_language_is_noticed(text):
    """One sentence of a person about her life is enough."""
    assert is_foreign(text) is True


@pytest.mark.parametrize(
    "text",
    [
        "I work as a nurse at St James hospital in Leeds.",
        "No, we moved to São Paulo last weekend, and it is great!",
        "Jürgen and I had crème brûlée at the café.",
    ],
)
def test_english_is_not(text):
    """Names and loans of other languages make none of it."""
    assert is_foreign(text) is False


@pytest.mark.parametrize("text", ["", "Hola", "src/main.c: 12", "mnemo --store x.db import y"])
def test_of_too_little_nothing_is_said(text):
    """Single words, paths and commands are in no language."""
    assert is_foreign(text) is None


def test_hardly_any_paragraph_of_english_is_taken_for_another_language():
    """Of the guide's pages, which are full of names, tables and commands."""
    pages = (Path(mnemo.__file__).parent / "guide").glob("*.md")
    paragraphs = [one for page in pages for one in page.read_text("utf-8").split("\n\n")]
    judged = [is_foreign(one) for one in paragraphs]
    assert judged.count(False) > len(judged) / 2
    assert judged.count(True) <= len(judged) / 100
