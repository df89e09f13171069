"""English word lists, small on purpose, and inflection; a missing word makes no fact false."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import date, datetime
from functools import lru_cache

from mnemo.runtime.text import STOP_WORDS, fold, stem, terms, terms_of, words


def word_set(text: str) -> frozenset[str]:
    """The words of *text*, which holds them between blanks."""
    return frozenset(text.split())


MODALS = word_set("can could will would shall should may might must cannot")

AUXILIARIES = MODALS | word_set("am is are was were be been has have had do does did isn't aren't")

# Base: past form, participle if it differs. Left out are forms that are common words of
# their own ("rose", "bit", "wound", "lay") and verbs that never change.
_IRREGULAR = """
arise: arose arisen; awake: awoke awoken; become: became; begin: began begun; bend: bent; bleed:
bled; blow: blew blown; break: broke broken; breed: bred; bring: brought; build: built; burn:
burnt; buy: bought; catch: caught; choose: chose chosen; cling: clung; come: came; creep: crept;
deal: dealt; dig: dug; draw: drew drawn; dream: dreamt; drink: drank drunk; drive: drove driven;
eat: ate eaten; fall: fell fallen; feed: fed; feel: felt; fight: fought; find: found; flee:
fled; fly: flew flown; forbid: forbade forbidden; forget: forgot forgotten; forgive: forgave
forgiven; freeze: froze frozen; get: got gotten; give: gave given; go: went gone; grow: grew
grown; hang: hung; hear: heard; hide: hid hidden; hold: held; keep: kept; kneel: knelt; know:
knew known; lay: laid; lead: led; lean: leant; leap: leapt; learn: learnt; leave: left; lend:
lent; light: lit; lose: lost; make: made; mean: meant; meet: met; mistake: mistook mistaken;
pay: paid; ride: rode ridden; ring: rang rung; run: ran; say: said; see: saw seen; seek: sought;
sell: sold; send: sent; shake: shook shaken; shine: shone; shoot: shot; show: showed shown;
shrink: shrank shrunk; sing: sang sung; sink: sank sunk; sit: sat; sleep: slept; slide: slid;
speak: spoke spoken; spell: spelt; spend: spent; spin: spun; spoil: spoilt; stand: stood; steal:
stole stolen; stick: stuck; sting: stung; strike: struck; strive: strove; swear: swore sworn;
sweep: swept; swim: swam swum; swing: swung; take: took taken; teach: taught; tear: tore torn;
tell: told; think: thought; throw: threw thrown; understand: understood; undertake: undertook;
wake: woke woken; wear: wore worn; weave: wove woven; weep: wept; win: won; withdraw: withdrew;
write: wrote written
"""


def _entries(text: str) -> Iterator[tuple[str, list[str]]]:
    """Key and words of each entry of *text*: ``key: word word; key: …``."""
    for entry in text.split(";"):
        key, _, found = entry.partition(":")
        yield key.strip(), found.split()


_FORMS = dict(_entries(_IRREGULAR))
BASES = {form: base for base, forms in _FORMS.items() for form in forms}
"""Irregular form of a verb → its base."""

# Past forms that do not end in "ed"; those equal to the base form (put, cut) count as past.
PAST_VERBS = word_set(
    """
    babysat beat beheld beset bet bit bore bound burst cast cost cut did dove dwelt flung foresaw
    foretold had hit hurt inlaid knit lay learned let mislaid misled misread misunderstood outdid
    outgrew overcame overdid overheard overran overrode oversaw overslept overthrew overtook
    overwrote partook proofread put quit read rebuilt redid redrew remade repaid reran resent
    reset resold rethought retold retook rewound rewrote rid rose set shut slew slit slung slunk
    spat sped spilt spit split sprang spread sprung stank strode strung thrust trod undercut
    underwent undid unwound upheld upset used was were withheld withstood wound wrung
    """
).union(past for past, *_ in _FORMS.values())

# Participles that differ from the past form: after "'d" they mean "had", not "would".
PARTICIPLES = word_set("become been bitten done risen").union(
    participle for _, *others in _FORMS.values() for participle in others
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

# Words of praise and judgement: what is left without them is what a sentence says.
EVALUATIVE = word_set(
    """
    adorable amazing awesome awful beautiful best better blessed breathtaking brilliant charming
    cool crazy cute delicious delightful enjoyable epic excellent exciting extraordinary fab
    fabulous fantastic fave favorite fine fun funny glad good gorgeous great happy helpful hilarious
    ideal important incredible inspirational inspiring interesting lovely lucky magical marvelous
    meaningful memorable neat nice outstanding perfect pretty proud rad refreshing rewarding sick
    special spectacular splendid stunning super superb sweet swell terrific touching unforgettable
    unique wonderful worth worthwhile wow yummy bad terrible horrible sad tough rough hard easy
    impressive thoughtful encouraging uplifting heartwarming powerful true right wrong big huge
    """
)

# Words that carry no topic of their own.
_FILLERS = word_set(
    """
    able absolutely actually ah aha alright already also always another anything anyway appreciate
    around aw aww away back bet big bit bye certainly come comes coming congrats congratulations
    cheers course day days deal definitely difference else enough especially even ever every
    everyone everything exactly far feel feeling feels felt finally first forward fun get gets
    getting give gives giving go goes going gonna gone got gotta guess guy guys ha haha happen
    happened happens hear heard help helped helps hello hey hi hmm honestly hope huge hugs idea
    imagine indeed just keep keeps kind kinda know known lately let life like likes little lol look
    looking looks lot lots love loved luck made make makes making man many matter matters maybe
    mean means mention might moment moments much must need never new next no nope now oh ok okay
    omg one ones oof part people person photo pic picture please plus point probably quite rather
    really right said same say saying says see seeing seem seems seen share shared sharing show
    sir since something somewhere soon sort sound sounded sounds special still stuff such sure
    take takes taking talk tell thank thankful thanks thing things think thinking though thought
    times time today together took totally truly try trying two ugh uh um up use used wait wanna
    want way ways well whoa will wish without wonder work world would wow ya yay yeah year years
    yep yes yet yo yup
    ago few last later lately month months next week weeks weekend other others someone somebody
    anyone nothing none whole lol hun buddy pal shares yesterday tomorrow tonight morning evening
    afternoon working using having doing trying starting wants needs loves likes thinks enjoys hopes
    prefers asks
    """
)

# What is left of a text without these is what it is about.
LIGHT = EVALUATIVE | _FILLERS | DESCRIPTIONS

MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september",
    "october", "november", "december",
)  # fmt: skip
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")

_COUNTED = (
    "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven",
    "twelve",
)  # fmt: skip
NUMBER_WORDS = {"a": 1, "an": 1} | {word: n for n, word in enumerate(_COUNTED, 1)}

_NOT_ED = word_set("need feed bleed speed succeed proceed exceed breed embed shed wed indeed")
_NOT_LY = word_set(
    """
    rely apply reply supply imply fly comply multiply bully ally family july italy assembly
    anomaly butterfly belly jelly lily monopoly sly rally tally
    """
)


def date_in_words(at: datetime) -> str:
    """The day of *at* in its own zone, e.g. ``Friday 1 March 2024``, whatever the locale."""
    return f"{WEEKDAYS[at.weekday()].capitalize()} {day_in_words(at)}"


def day_in_words(at: date) -> str:
    """The day of *at* in its own zone without the weekday, e.g. ``1 March 2024``."""
    return f"{at.day} {MONTHS[at.month - 1].capitalize()} {at.year}"


def short_day(at: datetime) -> str:
    """The day of *at* in its own zone with three letters of the month, e.g. ``1 Mar 2024``."""
    return f"{at.day} {MONTHS[at.month - 1][:3].capitalize()} {at.year}"


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


# ── Index terms ───────────────────────────────────────────────────────────────────────

# Plurals that are no words of their own, as "lives" and "leaves" are.
_PLURALS = """
child: children; foot: feet; goose: geese; half: halves; knife: knives; man: men; mouse: mice;
shelf: shelves; thief: thieves; tooth: teeth; wife: wives; wolf: wolves; woman: women
"""
_INDEXED = BASES | {plural: noun for noun, plurals in _entries(_PLURALS) for plural in plurals}


def index_terms(text: str) -> Iterator[str]:
    """
    Stems of *text* as index terms, in order, repeats kept; irregular forms by their base: NDCG@10
    of short chat turns rose by 0.8 points (95 %: 0.3 to 1.3; ``scripts/bench_questions``).
    """
    return index_terms_of(words(text))


ANALYSER = 1
"""Which analyser made stored index terms and columns of forms: raised with every change of one."""


def index_terms_of(folded: Iterable[str]) -> Iterator[str]:
    """The index terms of words that ``runtime.text.words`` gave; see ``index_terms``."""
    return terms_of(_base(word) for word in folded)


def _base(word: str) -> str:
    """The form that stands for *word*: without a possessive ending, which no stemmer cuts."""
    word = word.removesuffix("'s")
    return _INDEXED.get(word, word)


# ── Topics ──────────────────────────────────────────────────────────────────────────────


_TOKEN = re.compile(r"[^\W_](?:[\w'’./@-]*[^\W_])?|[^\w\s]")
_DETERMINERS = frozenset(("the", "a", "an", "my", "our", "your", "his", "her", "their", "its"))


def topics(text: str) -> frozenset[str]:
    """The stems of *text* that carry a topic: no stop words, no praise, no fillers."""
    return topical(terms(text))


@lru_cache(maxsize=1)
def _light_stems() -> frozenset[str]:
    return frozenset(map(stem, LIGHT))


def topical(found: Iterable[str]) -> frozenset[str]:
    """Those of the index terms *found* that carry a topic."""
    return frozenset([t for t in {*found} - _light_stems() if len(t) > 1])


def content_count(text: str) -> int:
    """How many words of *text* are no stop words."""
    return sum(1 for _ in terms(text))


def phrases(text: str) -> list[str]:
    """Noun-like phrases of *text* in order, at most three words each, by word lists alone."""
    found: list[str] = []
    run: list[str] = []
    previous = ""
    for token in _TOKEN.findall(text):
        # Behind "the" even a word that is mostly a verb is a noun: "the launch".
        named = (
            previous in _DETERMINERS and token.lower() in BASE_VERBS and token.lower() not in LIGHT
        )
        previous = token.lower()
        if named or _is_nounish(token):
            run.append(token.removesuffix("'s").removesuffix("’s"))
            if not token.endswith(("'s", "’s")) and len(run) < 3:
                continue
        _close(run, found)
    _close(run, found)
    return found


def has_noun(text: str) -> bool:
    """Whether *text* has a noun-like word, by the same lists as ``phrases``."""
    return any(map(_is_nounish, _TOKEN.findall(text)))


def _close(run: list[str], found: list[str]) -> None:
    if run:
        found.append(" ".join(run))
        run.clear()


@lru_cache(maxsize=1_024)
def _is_nounish(token: str) -> bool:
    folded = fold(token)
    if not folded or not folded[0].isalnum() or folded in STOP_WORDS or folded in LIGHT:
        return False
    if len(folded) < 3 and not token.isupper():
        return False
    if folded in BASE_VERBS or folded in ADVERBS or folded in PREPOSITIONS:
        return False
    if folded.isdigit() or folded in NUMBER_WORDS or "'" in folded.removesuffix("'s"):
        return False
    return not (is_past(folded) or (folded.endswith("ly") and len(folded) > 4))


def core(phrase: str) -> str:
    """Strip gerunds from the ends of *phrase*: what is done about a thing is not the thing."""
    parts = phrase.split()
    while len(parts) > 1 and parts[-1].endswith("ing"):
        parts.pop()
    while len(parts) > 1 and parts[0].endswith("ing"):
        parts.pop(0)
    return " ".join(parts)


def phrase_key(phrase: str) -> str:
    """What the forms of one phrase share: the stems of its words."""
    return " ".join(stem(word) for word in fold(phrase).split())


def key_phrases(texts: Iterable[str], limit: int) -> list[str]:
    """The *limit* most frequent noun-like phrases of *texts*, the earlier first among equals."""
    counts: Counter[str] = Counter()
    spelling: dict[str, str] = {}
    for text in texts:
        for phrase in map(core, phrases(text)):
            key = phrase_key(phrase)
            counts[key] += 1
            spelling.setdefault(key, phrase)
    order = {key: at for at, key in enumerate(counts)}
    # A phrase of several words says more than one word that is as frequent.
    best = sorted(counts, key=lambda k: (-counts[k], -min(2, len(k.split())), order[k]))
    return [spelling[key] for key in best[:limit]]


_NAMED_OR_NUMBERED = re.compile(
    r"`[^`]*`|\"[^\"]*\"|\S*\d\S*|(?<=\S )(?:[A-Z][\w'’]*)|\S*[/\\]\S+|\b\w+\.\w{1,4}\b"
)
_LONGEST_GOAL = 300  # characters; the pattern takes the square of a word's length
_BLANKS = re.compile(r"\s+")


def generalised(text: str) -> str:
    """Generalise *text*: strip names and numbers; a general goal if nothing else is left."""
    bare = _BLANKS.sub(" ", _NAMED_OR_NUMBERED.sub(" ", text[:_LONGEST_GOAL])).strip(" ,;:.-")
    return bare if content_count(bare) else "get the work done"
