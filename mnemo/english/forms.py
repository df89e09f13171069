"""Forms of English words: closed classes, common verbs, and how verbs inflect."""

from __future__ import annotations

__all__ = [
    "ADVERBS",
    "AUXILIARIES",
    "BASE_VERBS",
    "DESCRIPTIONS",
    "MODALS",
    "NUMBER_WORDS",
    "PARTICIPLES",
    "PAST_VERBS",
    "PREPOSITIONS",
    "is_adverb",
    "is_past",
    "with_s",
    "word_set",
]


def word_set(text: str) -> frozenset[str]:
    """The words of *text*, which holds them between blanks."""
    return frozenset(text.split())


MODALS = word_set("can could will would shall should may might must cannot")

AUXILIARIES = MODALS | word_set("am is are was were be been has have had do does did isn't aren't")

# Past forms that do not end in "ed"; those equal to the base form (put, cut) count as past.
PAST_VERBS = word_set(
    """
    was were had did went got made came took saw knew thought gave found told felt became left
    put brought began kept held wrote stood heard let meant set met ran paid sat spoke led read
    grew lost fell sent built understood drew broke spent cut rose drove bought wore chose ate
    hit won caught taught sold flew threw sang swam slept hurt forgot shot stuck dealt hid
    fought sought bet split spread tore woke bit blew bent bled burnt cast dug drank dreamt fed
    fled froze hung knelt leapt learnt lent lit overcame quit rode rang shook shone shut slid
    spun stole struck swore swept swung upset withdrew beat cost said learned used
    arose awoke babysat beheld beset bore bound burst clung crept dove dwelt flung forbade foresaw
    foretold forgave inlaid knit laid lay leant misled mislaid misread mistook misunderstood outdid
    outgrew overdid overheard overran overrode oversaw overslept overtook overthrew overwrote
    partook proofread rebuilt redid redrew remade repaid reran resent reset resold rethought retold
    retook rewound rewrote rid sank shrank slew slit slung slunk sped spat spelt spilt spit spoilt
    sprang sprung stank stung strode strove strung thrust trod undercut underwent undertook undid
    unwound upheld wept withheld withstood wound wove wrung
    """
)

# Participles that differ from the past form: after "'d" they mean "had", not "would".
PARTICIPLES = word_set(
    """
    been gone done seen known given taken become begun written spoken grown fallen drawn broken
    risen driven worn chosen eaten flown thrown sung swum forgotten hidden torn woken bitten
    blown drunk frozen ridden rung shaken stolen sworn gotten
    """
)

BASE_VERBS = word_set(
    """
    accept add adopt agree allow answer appear apply arrive ask attend avoid bake be become begin
    believe belong book borrow break bring build buy call camp care carry catch celebrate change
    check choose clean climb close collect come compare compete complete connect consider contact
    contain continue cook cost count cover create cut dance deal decide deliver deploy describe
    design develop die discover discuss do draw dream drink drive earn eat encourage enjoy enter
    exercise expect explain explore face fail fall feed feel fight fill find finish fit fix fly
    focus follow forget forgive garden get give go grow handle hang happen hate have hear help hike
    hit hold hope host hurt imagine improve include increase install invest invite join jump keep
    know laugh launch lead learn leave lend let lie like listen live look lose love make manage
    marry mean meet mention merge mind miss motivate move need notice offer open order organize own
    paint participate pass pay perform pick plan plant play practice prefer prepare produce promise
    protect prove provide pull push put quit raise reach read realize receive recommend record
    reduce refuse relax remember remind remove rent repair replace reply report represent require
    research rest return ride run save say search see seem sell send serve set share show sing sit
    sleep smile solve speak spend stand start stay stop struggle study succeed suffer suggest
    support swim take talk teach tell tend test thank think throw touch train transform travel
    treat trust try turn understand update use view visit volunteer wait wake walk want watch wear
    weigh win wish wonder work worry write
    """
)

ADVERBS = word_set(
    """
    really just also always never usually often still already actually even only kinda totally
    definitely probably sometimes finally recently currently now then both all sure ever rarely
    almost mostly simply truly absolutely honestly literally basically generally typically
    normally personally deeply fully genuinely regularly constantly occasionally mainly too once
    """
)

PREPOSITIONS = word_set(
    """
    about above across after against along around as at because before behind below beneath beside
    between beyond but by down during except for from if in inside into like near of off on onto
    or out over past since so than that though through to toward towards under until up upon when
    where which while who whom whose why with within without and how what
    """
)

# Participles that describe how somebody feels: no act, and alone no verb.
DESCRIPTIONS = word_set(
    """
    excited tired thrilled stoked pleased delighted relaxed inspired blessed interested bored
    scared worried amazed shocked surprised impressed overwhelmed stressed exhausted confused
    frustrated determined motivated dedicated devoted talented pumped psyched concerned convinced
    committed experienced beloved mixed unsolved limited unlimited detailed advanced
    """
)

NUMBER_WORDS = {
    "a": 1,
    "an": 1,
    "one": 1,
    "two": 2,
    "three": 3,
    "four": 4,
    "five": 5,
    "six": 6,
    "seven": 7,
    "eight": 8,
    "nine": 9,
    "ten": 10,
    "eleven": 11,
    "twelve": 12,
}

_NOT_ED = word_set(
    """
    need feed bleed speed succeed proceed exceed breed embed shed wed indeed
    """
)
_NOT_LY = word_set(
    """
    rely apply reply supply imply fly comply multiply bully ally
    family july italy assembly anomaly butterfly belly jelly lily fly ally monopoly sly rally tally
    """
)


def is_past(word: str) -> bool:
    """Whether *word* (lower case) has the form of a simple past; "put" counts as one."""
    return word in PAST_VERBS or (word.endswith("ed") and word not in _NOT_ED and len(word) > 3)


def with_s(verb: str) -> str:
    """The third person singular of a base form."""
    if verb.endswith(("s", "x", "z", "ch", "sh", "o")):
        return verb + "es"
    if verb.endswith("y") and verb[-2:-1] not in tuple("aeiou"):
        return verb[:-1] + "ies"
    return verb + "s"


def is_adverb(word: str) -> bool:
    """Whether *word* (lower case) may stand between a subject and its verb."""
    return word in ADVERBS or (word.endswith("ly") and word not in _NOT_LY)
