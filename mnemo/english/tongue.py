"""Whether a text is in another language than English, as far as its commonest words tell."""

from __future__ import annotations

import unicodedata

from mnemo.english.words import word_set
from mnemo.runtime.text import STOP_WORDS, words

SHORTEST = 4
"""Words of a Latin script below which nothing is said."""
MOST_READ = 600
"""Characters of a text that are read."""

_ENGLISH = STOP_WORDS | word_set("also even get got may much now one really still two well yes")
# The commonest words of German, Dutch, Spanish, Portuguese, French, Italian, Polish, Turkish,
# Swedish and Danish, without those of one letter.
_FOREIGN = word_set(
    """
    aber auch auf aus bei bin das dass dem den der des die du ein eine einen einer er es für habe
    hat ich ihr ist kann mein meine mich mir mit nach nicht noch nur oder schon sehr sich sie sind
    und uns vom von vor wenn werden wie wir wird wo zu zum zur
    aan als bij dat deze een en geen het hij ik je maar met mijn naar niet ook op te van voor wij ze
    zijn
    al como con cuando de del el ella en es está esta este fue ha hay la las le lo los más mi muy
    nos para pero por porque que se ser sin sobre su sus también tengo un una unos ya
    ao com da das dos ele em eu foi isso meu minha mas mais muito na nas nem no nos não os ou pela
    pelo quando seu sua são também tem um uma você
    au aux avec ce cette ces dans des du elle est et il ils j'ai je les leur lui ma mais mes mon ne
    nous ont par pas plus pour qu'il qui sa ses son sont sur très une vous été être
    che chi ci così della delle dello di gli ho il io loro mia mio nella nel non perché più sono
    un'altra
    ale bardzo być co czy dla do jak jest już mam mi na nie od po się tak tego to tylko ze że
    ama ben bir bu çok da daha de değil evet gibi için ile kadar ki ne ve var
    att av de det där ett från för han har hon inte jag med men mig min mycket om på sig ska som
    till var vi är
    af at du ej er hvad hvis ikke jeg kan min og også på skal
    """
).difference(_ENGLISH)


def is_foreign(text: str) -> bool | None:
    """
    Whether *text* is in another language than English.

    Returns:
        ``None`` where too little of it is known: of names, code and single words.
    """
    text = text[:MOST_READ]
    letters = [character for character in text if character.isalpha()]
    other = sum(not _is_latin(character) for character in letters)
    if other * 2 > len(letters):
        return True
    said = words(text)
    if len(said) < SHORTEST:
        return None
    english = sum(word in _ENGLISH for word in said)
    foreign = sum(
        (word in _FOREIGN and word not in _ENGLISH) or not word.isascii() for word in said
    )
    if max(english, foreign) * 10 < len(said):
        return None
    return foreign > english


def _is_latin(character: str) -> bool:
    return character.isascii() or unicodedata.name(character, "").startswith("LATIN")
