"""Random letters against language: what no language is, and what must never be taken for it."""

import random
import subprocess
import sys
import time
from pathlib import Path
from string import ascii_lowercase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnemo.english.letters import is_gibberish
from mnemo.runtime.text import fold

SCRIPTS = Path(__file__).parents[2] / "scripts"
# Written for this test; scripts/letters.txt has none of these sentences.
HELD_OUT = {
    "English": (
        "What kind of bread does my aunt bake on Sundays?",
        "Did the plumber already repair the leaking pipe?",
        "Whom should I invite to the farewell party?",
        "How long have the twins been learning the cello?",
    ),
    "German": (
        "Welches Brot backt meine Tante sonntags?",
        "Hat der Klempner das undichte Rohr schon repariert?",
        "Wen soll ich zur Abschiedsfeier einladen?",
        "Wie lange lernen die Zwillinge schon Cello?",
    ),
    "Spanish": (
        "¿Qué pan hornea mi tía los domingos?",
        "¿Ya arregló el fontanero la tubería que goteaba?",
        "¿A quién debo invitar a la despedida?",
        "¿Cuánto tiempo llevan los gemelos aprendiendo el violonchelo?",
    ),
    "French": (
        "Quel pain ma tante fait-elle cuire le dimanche ?",
        "Le plombier a-t-il déjà réparé le tuyau qui fuyait ?",
        "Qui dois-je inviter au pot de départ ?",
        "Depuis combien de temps les jumeaux jouent-ils du violoncelle ?",
    ),
    "Italian": (
        "Che pane sforna mia zia la domenica?",
        "L'idraulico ha già riparato il tubo che perdeva?",
        "Chi devo invitare alla festa d'addio?",
        "Da quanto tempo i gemelli studiano il violoncello?",
    ),
    "Portuguese": (
        "Que pão a minha tia assa aos domingos?",
        "O encanador já consertou o cano que vazava?",
        "Quem devo convidar para a despedida?",
        "Há quanto tempo os gêmeos aprendem violoncelo?",
    ),
    "Dutch": (
        "Welk brood bakt mijn tante op zondag?",
        "Heeft de loodgieter de lekkende buis al gemaakt?",
        "Wie moet ik uitnodigen voor het afscheidsfeest?",
        "Hoe lang leren de tweelingen al cello?",
    ),
    "Polish": (
        "Jaki chleb piecze moja ciotka w niedziele?",
        "Czy hydraulik już naprawił cieknącą rurę?",
        "Kogo mam zaprosić na przyjęcie pożegnalne?",
        "Od jak dawna bliźniaki uczą się gry na wiolonczeli?",
    ),
    "Turkish": (
        "Teyzem pazar günleri hangi ekmeği pişiriyor?",
        "Tesisatçı sızdıran boruyu tamir etti mi?",
        "Veda partisine kimi davet etmeliyim?",
        "İkizler ne zamandır çello öğreniyor?",
    ),
    "Vietnamese": (
        "Dì tôi nướng loại bánh mì gì vào chủ nhật?",
        "Thợ sửa ống nước đã sửa cái ống rò rỉ chưa?",
        "Tôi nên mời ai đến bữa tiệc chia tay?",
        "Cặp song sinh học đàn bao lâu rồi?",
    ),
    "Indonesian": (
        "Roti apa yang dipanggang bibi saya setiap hari Minggu?",
        "Apakah tukang ledeng sudah memperbaiki pipa yang bocor?",
        "Siapa yang harus saya undang ke pesta perpisahan?",
        "Sudah berapa lama si kembar belajar biola?",
    ),
    "Swedish": (
        "Vilket bröd bakar min faster på söndagar?",
        "Har rörmokaren redan lagat det läckande röret?",
        "Vem ska jag bjuda på avskedsfesten?",
        "Hur länge har tvillingarna spelat cello?",
    ),
    "Finnish": (
        "Millaista leipää tätini leipoo sunnuntaisin?",
        "Onko putkimies jo korjannut vuotavan putken?",
        "Kenet minun pitäisi kutsua läksiäisiin?",
    ),
    "Czech": (
        "Jaký chléb peče moje teta v neděli?",
        "Opravil už instalatér prasklou trubku?",
        "Koho mám pozvat na rozlučku?",
    ),
    "Hungarian": (
        "Milyen kenyeret süt a nagynéném vasárnaponként?",
        "Megjavította már a vízszerelő a csöpögő csövet?",
        "Kit hívjak meg a búcsúbulira?",
    ),
}
UNUSUAL = """
who? | job? | GPU? | Ng | Mr Ng | x | brb thx | omg wdym | wtf smh lmao | hw r u dng | tmrw mtg?
whta is hre jbo? | wher does shee liv | whn is teh metting | pls fix asap | hmm | zzz | pfft
What does `pytest -q` print? | ledger_core.Account | #2201 | HTTP 503 | GET /v1/users/{id}
qxvrt_kzw | kubectl nginx psql | grpc mtls? | strncpy memcpy | src pkg vs tmp
stdin stdout stderr | xK9dQw2
Szczepan | Krzysztof Szczepan Brzezicki | Mkhitaryan | Hrvoje Krk | strc prst skrz krk
Popocatepetl | Tbilisi Mtskheta Kvaratskhelia
Llanfairpwllgwyngyllgogerychwyrndrobwllllantysiliogogogoch
Kyrgyzstan | Oaxaca | Reykjavik | Nguyen Phuoc Thinh | LGBTQ events | Kreuzschlitz | rhythm
Donaudampfschifffahrtsgesellschaft | hydroxychloroquine | chrzaszcz brzmi w trzcinie
What is xkqzvbnm? | who is Mxyzptlk qwrt zzkxv? | WHAT IS HER JOB? | lynx vs sphynx | don't know
"""
OTHER_SCRIPTS = (
    "Где она работает?",
    "Πού δουλεύει τώρα;",
    "أين تعمل الآن؟",
    "איפה היא עובדת?",
    "वह कहाँ काम करती है?",
    "她现在在哪里工作?",
    "彼女はどこで働いていますか",
    "เธอทำงานที่ไหน",
    "ывлоап щзшгк джэхъ",
)
ROWS = ("qwertyuiop", "asdfghjkl", "zxcvbnm")


def at_random(chance: random.Random, letters: str, words: int, shortest: int, longest: int) -> str:
    """So many words of letters that are equally likely."""
    lengths = [chance.randint(shortest, longest) for _ in range(words)]
    return " ".join("".join(chance.choices(letters, k=length)) for length in lengths)


def recognised(seed: int, *shape: int, letters: str = ascii_lowercase, count: int = 500) -> int:
    """How many of *count* random questions are gibberish."""
    chance = random.Random(seed)
    return sum(is_gibberish(at_random(chance, letters, *shape) + "?") for _ in range(count))


@pytest.mark.parametrize("seed", [1, 2, 3, 7, 28])
def test_three_random_words_are_gibberish(seed):
    """500 of 500, each of three words of five to nine letters."""
    assert recognised(seed, 3, 5, 9) == 500


@pytest.mark.parametrize(
    ("shape", "least"),
    [((5, 5, 9), 500), ((4, 4, 10), 495), ((5, 3, 10), 485), ((3, 3, 10), 460), ((2, 5, 9), 450)],
)
def test_other_shapes_of_random_words(shape, least):
    """Words, and letters of the shortest and longest; short words may be abbreviations."""
    assert recognised(5, *shape) >= least


@pytest.mark.parametrize("letters", ["bcdfghjklmnpqrstvwxz", "aeiou", *ROWS])
def test_letters_of_one_kind_are_gibberish(letters):
    """Consonants, vowels, one row of a keyboard: 495 of 500 at least."""
    assert recognised(6, 3, 5, 9, letters=letters) >= 495


@pytest.mark.parametrize(
    "text",
    ["asdf asdf", "asdfghjkl", "qweqwe asdasd", "ksjdhf ksjdhf ksdjhf?", "Qxvrt kzwpgh, lmbnq!"],
)
def test_fingers_on_a_keyboard_are_gibberish(text):
    """What is typed to see whether anything happens."""
    assert is_gibberish(text)


@pytest.mark.parametrize("language", HELD_OUT)
def test_held_out_sentences_are_language(language):
    """With their accents, and typed without them, whole or from the third word on."""
    for sentence in HELD_OUT[language]:
        tail = " ".join(sentence.split()[2:])
        assert not any(map(is_gibberish, (sentence, fold(sentence), tail, fold(tail))))


@pytest.mark.parametrize("text", [t.strip() for t in UNUSUAL.replace("\n", "|").split("|")])
def test_unusual_questions_are_language(text):
    """Names, terms, code, numbers, chat, typos, single words and no word at all."""
    assert not is_gibberish(text)


@pytest.mark.parametrize("text", OTHER_SCRIPTS)
def test_other_scripts_are_never_gibberish(text):
    """There is no table for them."""
    assert not is_gibberish(text)


@given(st.integers(min_value=0), st.permutations(["who", "", "", ""]))
def test_one_common_word_makes_it_language(seed, places):
    """Wherever it stands among random words."""
    noise = at_random(random.Random(seed), ascii_lowercase, 4, 5, 9).split()
    assert is_gibberish(" ".join(noise))
    mixed = " ".join(word or other for word, other in zip(places, noise, strict=True))
    assert not is_gibberish(mixed)


@pytest.mark.slow
@given(st.text(), st.sampled_from(["`ls`", "#1", "a_b", "v2", "-q", "x.y", "дом"]))
def test_any_text_with_code_or_another_script_is_language(text, token):
    """Nothing is raised for any text, and one such word is enough."""
    is_gibberish(text)
    assert not is_gibberish(f"{text} {token}")


def test_a_question_costs_little():
    """Below 0.2 ms of processor time each, at the median of several runs."""
    questions = [*HELD_OUT["English"], at_random(random.Random(1), ascii_lowercase, 3, 5, 9)]
    runs = []
    for _ in range(20):
        begun = time.process_time()
        for question in questions:
            is_gibberish(question)
        runs.append(time.process_time() - begun)
    assert sorted(runs)[10] / len(questions) < 0.0002


@pytest.mark.slow
def test_the_table_is_what_the_text_gives():
    """``scripts/fit_letters --check``."""
    command = [sys.executable, str(SCRIPTS / "fit_letters.py"), "--check"]
    assert subprocess.run(command, check=False).returncode == 0
