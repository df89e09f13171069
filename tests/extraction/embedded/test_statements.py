"""Which sentences become facts: statements of any verb, and nothing that states nothing."""

import pytest
from helpers import contradict

from mnemo.english.words import with_s

LEAST = 0.95
"""Share of sentences that must be told from the others."""

# Every second of the 460 English verbs (SPECIALIST Lexicon) whose forms are most frequent
# in the vocabulary of a language model; the code was made with the others.
VERBS = """
    abandon accomplish accord achieve act adapt adopt advance age align allow animate appear
    apply appoint appreciate argue arise arm assume attach attack attempt attend attribute
    avoid back bear begin block bound build buy call carry cast check choose clear close
    collect color combine come commit compare compile concern conclude configure confirm
    connect consider construct contain control couple cover cry cut dash debug decide
    declare defeat define delete denote depend design destroy detail detect develop die
    disable distinguish divide drive edit embed enable encrypt end engineer establish
    evaluate exist expand experience express extract face fee fill fire fix float focus
    follow forget form format found give grant guess hand hang head help hide host
    illustrate implement import improve influence inform insert install integrate interest
    interpret invoke join keep laugh lead leave lift like link live load locate log loop
    lose love maintain make mark marry match meet merge miss mix mount name nest network
    note observe occur pass pay play point populate prefer prepare print proceed produce
    promise promote prove pull purchase race rank read receive reflect refuse regard
    register reject rename rend reply represent restrict result retain return rise rout rule
    run scale scatter schedule search seem serve set share show sing sit smile solve space
    spend split state stick strike struggle study submit suffer surprise take terminate test
    throw tie time transform turn understand upload use wait wear win
""".split()  # noqa: SIM905
IRREGULAR = dict(
    pair.split(":")
    for pair in """
    arise:arose bear:bore begin:began build:built buy:bought cast:cast choose:chose
    come:came commit:committed control:controlled cut:cut debug:debugged drive:drove
    embed:embedded fee:fee'd forget:forgot format:formatted give:gave hang:hung hide:hid
    keep:kept lead:led leave:left log:logged lose:lost make:made meet:met occur:occurred
    pay:paid prefer:preferred read:read rend:rent rise:rose run:ran set:set sing:sang
    sit:sat spend:spent split:split stick:stuck strike:struck submit:submitted take:took
    throw:threw understand:understood wear:wore win:won
""".split()  # noqa: SIM905
)
NON_STATEMENTS = (
    """
Morning all!|Hey Ana, good to see you!|Hiya|Hello from sunny Porto|Good afternoon to you all|Yo
Hi Bo, hope you're well|Welcome back!|Hallo|nice to meet you|So long!|Speak soon|Sweet dreams
See ya on Monday|Enjoy your evening|Have fun tonight!|bye bye|All the best|Safe travels!
Until Friday then|What do you do for a living?|when is the deadline
How many lanterns do you own?|who is Eve|Would you like some tea?|does Ada mend lanterns
Where to?|What happened next?|Anything new?|Do you and Bo live together?|Is that so?
could it be true|how come|Won't you join us?|What kind of lanterns?|Whose bike is this?
And your sister?|have you seen my keys|Isn't it lovely?|What if it rains?|The bike in the garage
A long train ride through the Alps|Boxes of old letters|Chicken soup with noodles
my grandmother's recipe|Photos from the trip|Early mornings and late nights
Somewhere near the station|Two adults and a child|Weekend plans|The film we watched
Stuff for school|A new pair of shoes|hotel rooms with a view|Bus tickets and snacks
no sugar, no milk|One of those days|Friends from work|All kinds of vegetables
The colour of the walls|Nearly midnight already|Another rainy Monday|the girl who sings
Things to do in Oslo|10 euros|Maybe later|Some other time|A bit of both|Next stop Vienna
Glass bottles and cans|What a view!|Incredible!|How sweet of you!|Oh no!|Hooray!|Oops!
Goodness me!|Lucky you!|So proud of you!|Unbelievable news!|Bravo!|Damn!|Nice shot!
Such a beautiful photo!|Happy new year, everyone!|Hahaha|Way to go, Ana!|Phew!|Bless you!
Much appreciated!|okay then|absolutely|Nope|yes, definitely|maybe|not yet|Alright|Fine by me
whatever|Indeed|hm|k|Understood|Makes sense|True|I know|Never mind|My bad|as you wish
Don't worry|Hello my dear|good day to you|Hey team|Morning, Eve!|hi, long time|Hello hello
Evening everyone|Hey, nice seeing you here!|Good to meet you, Bo|Welcome aboard|Goodbye everyone
later!|Take it easy|Good night all|See you around|Have a safe flight|Talk tomorrow?|Ciao
Till next week|Until we meet again|Where can I buy lanterns?|how old is your dog
Is Ada your sister?|what did the doctor say|Who broke the window?|are you coming to the party
When does the shop open?|has the parcel arrived|would they sell the house
Which train do you take?|Are we there yet?|Why the long face?|any news from Eve
Don't you think so?|Could Bo lend us his car?|whose turn is it|Is there any milk left?
Do people skate here in winter?|what colour are the walls|You okay?|A basket of ripe apples
the blue door on the left|Lunch with the team|Four chairs, one table|Mountains and lakes
Half past nine|my old school friend from Riga|Late night at the office|Bread, butter, honey
the man in the red coat|The house we rented|A trip to remember|A quick question
Old songs about the sea|cats and dogs|Some fresh air and a walk|No more rain please
Winter in Tromso|The smell of coffee in the morning|Notes from yesterday's meeting
tickets for the late show|Rain again|The dog that barks|Just a thought|First things first
Cheap flights to Riga|Salt and pepper|Another day, another euro|Home sweet home|An apple a day
Fantastic!|What a mess!|How kind!|Good grief!|Yikes!|Sweet!|So happy for you!|Best news ever!
Excellent work, team!|You rock!|Happy anniversary!|Get well soon!|My goodness!
What lovely flowers!|Superb!|Impressive!|You're the best!|That's so funny!|Merry Christmas!
Woohoo!|Okay, cool|Yep|I guess so|Perhaps|Sure, why not|Not bad|Good point|I understand
Maybe next time|Never
""".strip()
    .replace("\n", "|")
    .split("|")
)


def past(verb: str) -> str:
    """The simple past of *verb*."""
    if verb in IRREGULAR:
        return IRREGULAR[verb]
    if verb.endswith("y") and verb[-2] not in "aeiou":
        return verb[:-1] + "ied"
    return verb + ("d" if verb.endswith("e") else "ed")


@pytest.mark.slow
@pytest.mark.parametrize(
    "sentence",
    [
        "I {base} the lanterns in the cellar.",
        "i {base} the lanterns in the cellar",
        "We {base} the lanterns in the cellar.",
        "I never {base} the lanterns in the cellar.",
        "I now {base} lanterns in the cellar.",
        "I still {base} lanterns.",
        "I don't {base} the lanterns in the cellar.",
        "i dont {base} the lanterns in the cellar",
        "I no longer {base} the lanterns in the cellar.",
        "Ada {third} the lanterns in the cellar.",
        "ada {third} the lanterns in the cellar",
        "Ada never {third} lanterns.",
        "My sister {third} old lanterns.",
        "My parents {base} the lanterns in the cellar.",
        "Ada and Bo {base} the lanterns in the cellar.",
        "I {past} the lanterns in the cellar.",
        "Ada {past} the lanterns in the cellar.",
        "We've {past} the lanterns.",
    ],
)
async def test_a_statement_of_any_verb_is_a_fact(step, facts_of, sentence):
    """No list of verbs decides what is remembered."""
    said = [sentence.format(base=v, third=with_s(v), past=past(v)) for v in VERBS]

    lost = [text for text in said if not await facts_of(step(0, text, actor="Ana"))]

    assert len(lost) <= (1 - LEAST) * len(said), lost


@pytest.mark.slow
async def test_what_states_nothing_is_no_fact(step, facts_of):
    """Greetings, questions with and without a mark, fragments and exclamations."""
    kept = [text for text in NON_STATEMENTS if await facts_of(step(0, text, actor="Ana"))]

    assert len(kept) <= (1 - LEAST) * len(NON_STATEMENTS), kept


@pytest.mark.parametrize(
    ("said", "fact"),
    [
        ("I now live in Brussels.", "Ana now lives in Brussels."),
        ("I never eat meat", "Ana never eats meat."),
        ("I still live in Lund", "Ana still lives in Lund."),
        ("I no longer work at the harbour", "Ana no longer works at the harbour."),
        ("no longer working at the harbour", "Ana is no longer working at the harbour."),
        ("I kind of collect old maps", "Ana kind of collects old maps."),
        ("I strung the lanterns.", "Ana strung the lanterns."),
        ("i dont eat meat anymore", "Ana doesn't eat meat anymore."),
        ("im allergic to peanuts", "Ana is allergic to peanuts."),
        ("I am vegetarian", "Ana is vegetarian."),
        ("Since May I live in Lund", "Ana: Since May I live in Lund."),
        ("me and my wife juggle on weekends", "Ana: me and my wife juggle on weekends."),
        ("am allergic to nuts", "Ana is allergic to nuts."),
        ("hate loud music", "Ana hates loud music."),
        ("I smoke.", "Ana smokes."),
        ("I no longer smoke", "Ana no longer smokes."),
        ("We rarely eat out", "Ana: We rarely eat out."),
        ("A buddy of mine adopted a cat.", "Ana: A buddy of mine adopted a cat."),
        ("Emily kindles the lanterns.", "Emily kindles the lanterns."),
    ],
)
async def test_a_statement_is_told_of_its_speaker(step, facts_of, said, fact):
    """Adverbs, missing apostrophes and unknown verbs leave the sentence a sentence."""
    (found,) = await facts_of(step(0, said, actor="Ana"))

    assert found.proposition == fact


@pytest.mark.parametrize(
    "said", ["My dog barks at night.", "Most of my colleagues commute by train."]
)
async def test_a_statement_of_unknown_form_is_kept_as_it_stands(step, facts_of, said):
    """Its verb may as well be a noun, so it is not told in other words."""
    (found,) = await facts_of(step(0, said, actor="Ada"))

    assert found.proposition == f"Ada: {said}"


async def test_what_is_no_longer_so_ends_what_was(step, facts_of):
    """The end of a job, said in the present tense, contradicts the job."""
    (was,) = await facts_of(step(0, "I work at the harbour.", actor="Ana"))
    (ended,) = await facts_of(step(0, "I no longer work at the harbour", actor="Ana"))

    assert contradict(was.proposition, ended.proposition)
