"""
English word lists that the embedded stages share: plain data, no code but their making.

They are small on purpose. A word that is missing costs a less pretty sentence or a
fact that is kept or dropped against taste; it never makes a fact false.
"""

from __future__ import annotations

from mnemo.english.forms import DESCRIPTIONS, word_set

__all__ = ["EVALUATIVE", "FILLERS", "GROUP_NOUNS", "LIGHT", "NOT_ACTS", "OPINION"]

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
