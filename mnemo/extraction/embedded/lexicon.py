"""
English word lists that the embedded stages share: plain data, no code but their making.

They are small on purpose. A word that is missing costs a less pretty sentence or a
fact that is kept or dropped against taste; it never makes a fact false.
"""

from __future__ import annotations

__all__ = [
    "ADVERBS",
    "AUXILIARIES",
    "BASE_VERBS",
    "DESCRIPTIONS",
    "EVALUATIVE",
    "FILLERS",
    "GROUP_NOUNS",
    "LIGHT",
    "MODALS",
    "NOT_ACTS",
    "NUMBER_WORDS",
    "OPINION",
    "PARTICIPLES",
    "PAST_VERBS",
    "PREPOSITIONS",
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
FILLERS = word_set(
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

# Participles that describe how somebody feels: no act, and alone no verb.
DESCRIPTIONS = word_set(
    """
    excited tired thrilled stoked pleased delighted relaxed inspired blessed interested bored
    scared worried amazed shocked surprised impressed overwhelmed stressed exhausted confused
    frustrated determined motivated dedicated devoted talented pumped psyched concerned convinced
    committed experienced beloved mixed unsolved limited unlimited detailed advanced
    """
)

# What is left of a text without these is what it is about.
LIGHT = EVALUATIVE | FILLERS | DESCRIPTIONS

# Forms that open a sentence more often as a participle or noun than as an act of the speaker.
NOT_ACTS = DESCRIPTIONS | word_set(
    """
    based given compared combined supposed needed set put cut hit let cost hurt shut upset speaking
    regarding related recommended required updated added supported accepted loved left read said
    thought used bet
    """
)

# Feelings that follow "I am" or stand alone, addressed to the other's news.
OPINION = word_set("glad happy proud sorry excited thrilled stoked pleased delighted grateful")

GROUP_NOUNS = word_set(
    """
    family fam families kid kids children son sons daughter daughters husband wife partner spouse
    boyfriend girlfriend friend friends team crew company colleagues coworkers class band mom mum
    dad mother father parents sister sisters brother brothers cousin cousins grandma grandpa group
    gang folks buddies pals squad students residents volunteers bunch club roommate roommates
    neighbors neighbours staff office department church puppy pup dog dogs teammates
    """
)
