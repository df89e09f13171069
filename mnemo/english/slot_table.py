"""The table of slots: the ways in which English says the value of an attribute, or its end."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from mnemo.english.entities import UNITS, said_number
from mnemo.english.words import MONTHS, NUMBER_WORDS, word_set
from mnemo.runtime.text import STOP_WORDS, fold, stem

# One row each, a pattern of what follows the subject, its value named ``v``. English;
# another language needs rows of its own.

_ADVERBS = r"(?:(?:now|currently|recently|just|still|already|actually|finally|officially|also) )*"
_HAS = r"(?:(?:has|have|had|'s|’s) )?" + _ADVERBS
_IS = r"(?:is|are) " + _ADVERBS
_NOT = r"(?:does not|doesn['’]t|do not|don['’]t)"
_UPPER = r"[^\W\d_a-z][\w&'’.-]*"
_PLACE = rf"(?P<v>(?:the )?{_UPPER}(?:,? (?:(?:de|da|do|of|the|la|le|and) )?{_UPPER})*)"
_HOME_IN = (
    r"(?:\d+ [\w ]{2,30}? in |(?:a|an|the|[\w'’-]+['’]s) (?:[a-z][\w-]* ){1,5}?"
    r"(?:in|near|by|outside) )?"
)
_ORGANISATION = (
    rf"(?P<v>{_UPPER}(?:,? (?:(?:de|of|the|and) )?{_UPPER})*"
    r"|(?:the|a|an) (?!weekends?\b|night|moment|time\b|same|best|long|new\b)[\w-]+)"
)
_ROLE = r"(?P<v>[^,;.]+?)(?= (?:at|for|in|with|of|on|since|and|but|who)\b|[,;.]|$)"
WHOSE = r"(?:(?:his|her|their|its|the|a|[\w-]+['’]s) )"

_OCCUPATION = (
    r"(?:accountant|actor|actress|administrator|advisor|agent|analyst|apprentice|architect|artist"
    r"|assistant|astronomer|attorney|auditor|author|baker|banker|barber|barista|bartender|beekeeper"
    r"|biologist|bookkeeper|brewer|broker|builder|butcher|caregiver|caretaker|carpenter|cashier"
    r"|chef|chemist|cleaner|clerk|coach|conductor|consultant|contractor|cook|counsell?or|courier"
    r"|curator|dancer|dentist|designer|detective|developer|dietitian|diplomat|director|doctor"
    r"|driver|economist|editor|electrician|engineer|farmer|firefighter|fisherman|florist"
    r"|freelancer|gardener|geologist|goldsmith|guard|hairdresser|historian|housekeeper|inspector"
    r"|instructor|interpreter|janitor|jeweller|joiner|journalist|judge|landscaper|lawyer|lecturer"
    r"|librarian|lifeguard|locksmith|logistician|machinist|manager|mason|mathematician|mechanic"
    r"|midwife|miner|musician|nanny|nurse|nutritionist|officer|optician|painter|paralegal"
    r"|paramedic|pastor|pediatrician|pharmacist|photographer|physicist|physiotherapist|pianist"
    r"|pilot|plumber|police officer|politician|porter|postdoc|postman|priest|principal|producer"
    r"|professor|programmer|psychiatrist|psychologist|publisher|radiologist|realtor|receptionist"
    r"|recruiter|reporter|researcher|roofer|sailor|salesperson|salesman|saleswoman|scientist"
    r"|sculptor|seamstress|secretary|singer|soldier|statistician|steward|stewardess|supervisor"
    r"|surgeon|surveyor|tailor|teacher|technician|therapist|trainer|translator|tutor|undertaker"
    r"|vet|veterinarian|waiter|waitress|watchmaker|welder|writer)"
)

HOLDS: dict[str, tuple[str, ...]] = {
    "residence": (
        rf"{_HAS}(?:moved|relocated)(?: back)?(?: from [^,]+?)? (?:in)?to {_HOME_IN}{_PLACE}",
        rf"{_ADVERBS}(?:lives?|resides?) {_ADVERBS}(?:with [^,;]+? )?(?:in|at) {_HOME_IN}{_PLACE}",
        rf"{_IS}(?:living|residing|based|settled) (?:in|at) {_HOME_IN}{_PLACE}",
        rf"(?:has|have) {_ADVERBS}(?:been living|settled) in {_PLACE}",
        rf"(?:home|house|flat|apartment) is {_ADVERBS}(?:in|at) {_HOME_IN}{_PLACE}",
    ),
    "employer": (
        rf"{_ADVERBS}works? {_ADVERBS}(?:at|for) {_ORGANISATION}",
        rf"{_IS}(?:working|employed) (?:at|for|by|with) {_ORGANISATION}",
        rf"{_HAS}(?:started|begun|began) working (?:at|for) {_ORGANISATION}",
        rf"{_HAS}(?:has|have|started|got|gotten|taken|took|accepted|found|landed) (?:an |{WHOSE})"
        rf"(?:\w+ )?(?:job|position|post|role) (?:at|with|in) {_ORGANISATION}",
        rf"{_HAS}(?:was |been )?hired by {_ORGANISATION}",
        rf"{_ADVERBS}teach(?:es)? .+? at {_ORGANISATION}",
        rf"{_IS}an? [^,;.]*?{_OCCUPATION}(?: [^,;.]+?)? (?:at|for|with) {_ORGANISATION}",
        rf"{_ADVERBS}works? {_ADVERBS}as an? [^,;]+? (?:at|for) {_ORGANISATION}",
    ),
    "job": (
        rf"{_ADVERBS}works? {_ADVERBS}as an? {_ROLE}",
        rf"{_IS}(?:working|employed) as an? {_ROLE}",
        rf"{_HAS}(?:retrained|qualified|started(?: (?:work|working))?) as an? {_ROLE}",
        rf"{_HAS}(?:has|got|started|found|took) an? (?:new )?(?:job|position) as an? {_ROLE}",
        rf"{_ADVERBS}(?P<v>teach(?:es)? (?!(?:him|her|it|them|us|me)\b)\w+)",
        rf"{_HAS}(?:been promoted|been made|become|became) (?:to )?(?:an? )?"
        rf"(?P<v>[^,;.]*?{_OCCUPATION})",
        rf"{_IS}an? (?P<v>[^,;.]*?{_OCCUPATION})(?= (?:at|for|in|with|and)\b|[,;.]|$)",
    ),
    "age": (rf"{_IS}(?P<v>\d{{1,3}})(?: years? old)?$", rf"{_HAS}turned (?P<v>\d{{1,3}})\b"),
    "relationship": (
        rf"{_IS}(?P<v>(?:married|engaged)(?: to {_UPPER})?|dating {_UPPER})",
        rf"{_IS}(?P<v>single|divorced|widowed|separated)\b",
        rf"{_HAS}(?:got|gotten) (?P<v>(?:married|engaged)(?: to {_UPPER})?|divorced)",
        rf"{_HAS}(?P<v>married {_UPPER})",
    ),
    "version": (rf"{_HAS}(?:is |was |been )?(?:up|down)graded to (?:version )?(?P<v>v?\d[\w.]*)",),
}
"""Attribute → how a value for it is said after the subject."""

TOLD_BY = {
    "residence": word_set(
        "moved relocated live lives reside resides living residing based settled home house flat"
        " apartment"
    ),
    "employer": word_set(
        "work works working employed job position post role hired teach teaches left quit lost"
        " resigned retired stopped fired laid unemployed a an"
    ),
    "job": word_set(
        "work works working employed job position post role teach teaches promoted made become"
        " became retrained qualified started switched changed retired left quit lost resigned a an"
    ),
    "relationship": word_set(
        "married engaged dating single divorced widowed separated broken broke split"
    ),
    "version": word_set("upgraded downgraded"),
    "address": word_set("moved relocated"),
}
"""Attribute → words of which a clause about it has one; a quick look before its patterns."""
EVENTS: tuple[tuple[tuple[str, ...], str], ...] = (
    (
        ("address",),
        rf"{_HAS}(?:moved|relocated)(?: back)?(?: from [^,]+?)? (?:in)?to {_HOME_IN}{_PLACE}",
    ),
    (("residence", "address"), rf"{_HAS}moved out\b(?! on| for a)"),
    (
        ("job", "employer"),
        rf"{_HAS}(?:has |have )?(?:started|got|gotten|taken|took|accepted|found|landed) "
        rf"(?:an |{WHOSE})"
        r"(?:\w+ )?(?:job|position|post|role)\b",
    ),
    (("job", "employer"), rf"{_HAS}(?:switched|changed) jobs|{_HAS}retired\b(?! from the)"),
    (
        ("job", "employer"),
        rf"{_HAS}(?:left|quit|lost|resigned from) {WHOSE}(?:old |last )?(?:job|position)\b",
    ),
)
"""Attributes of which every earlier value ends by what somebody did."""

ENDED: dict[str, tuple[str, ...]] = {
    "residence": (
        rf"(?:no longer|{_NOT}|used to) (?:lives?|resides?) (?:in|at) {_PLACE}",
        rf"(?:is|are) (?:no longer|not) (?:living|residing|based) (?:in|at) {_PLACE}",
        rf"{_HAS}moved (?:out of|away from) {_PLACE}",
    ),
    "employer": (
        rf"(?:no longer|{_NOT}|used to) works? (?:at|for) {_ORGANISATION}",
        rf"(?:is|are) (?:no longer|not) (?:working|employed) (?:at|for|by) {_ORGANISATION}",
        rf"{_HAS}stopped working (?:at|for) {_ORGANISATION}",
        rf"{_HAS}(?:left|quit|resigned from|retired from) (?P<v>{_UPPER}(?: {_UPPER})*)",
        rf"{_HAS}(?:left|quit|lost|resigned from) {WHOSE}(?:old )?(?:job|position)"
        rf"(?: (?:at|with) {_ORGANISATION})?",
        rf"{_HAS}(?:was |got |been )?(?:fired|laid off)(?: (?:from|by) {_ORGANISATION})?",
        rf"{_IS}(?:unemployed|out of work)(?P<v>)",
    ),
    "job": (rf"(?:no longer|{_NOT}|used to) works? as an? {_ROLE}",),
    "relationship": (
        rf"{_HAS}(?:broken|broke|split) up with (?P<v>{_UPPER})",
        rf"{_IS}no longer (?P<v>(?:married|engaged)(?: to {_UPPER})?|dating {_UPPER})",
    ),
}
"""Attribute → how it is said that a value (none: any) has ceased to hold."""

ATTRIBUTES: tuple[tuple[str, str], ...] = (
    (
        r"\d",
        r"budget|price|cost|fee|salary|income|rent|weight|height|size|limit|port|timeout"
        r"|threshold|rate|version|age|capacity|quota|(?:phone |mobile )?number|mobile|score"
        r"|mortgage|bill|wage|subscription|tuition|deposit|premium|allowance|temperature|speed",
    ),
    (
        r"\d|day\b|January|February|March|April|May|June|July|August|September|October"
        r"|November|December|tomorrow|today",
        r"deadline|due date|start date|end date|release date|launch date|birthday|appointment",
    ),
    (
        rf"^(?:the )?{_UPPER}",
        r"owner|manager|boss|supervisor|team lead|wife|husband|partner|spouse|girlfriend|boyfriend"
        r"|fianc[ée]e?|employer|landlord|landlady|capital"
        r"|nickname|name|doctor|dentist|therapist|coach|tutor|mentor|accountant|lawyer|flatmate"
        r"|roommate",
    ),
    (
        r"\S",
        r"status|address|e-?mail(?: address)?|location|priority|title|time ?zone|job|occupation"
        r"|profession|favou?rite [\w-]+(?: (?!has\b|have\b)[\w-]+)?|theme|branch|region"
        r"|default [\w-]+|password|destination|hometown|relationship status|marital status",
    ),
)
"""What the value must look like, and the attributes said as in "Bo's budget is 2000"."""

OWN = frozenset(("rent", "mortgage", "salary", "landlord", "boss", "manager", "phone number"))
"""Attributes of which "the rent" means the speaker's."""
UNOWNED = frozenset(
    ("deadline", "due date", "start date", "end date", "release date", "launch date", "budget")
)
"""Attributes of which "the deadline" means the one that everybody knows."""

CHANGED = (
    r"(?:set|changed|raised|lowered|increased|decreased|reduced|cut|moved|extended|updated"
    r"|upgraded|downgraded|postponed|renamed|pushed(?: back)?|brought forward|dropped|risen|rose"
    r"|fallen|fell|grown|grew|shifted|switched|went|gone|goes|jumped|put)"
)
COPULA = (
    rf"(?:is|are|equals|=|:|(?:(?:has|have|had) )?(?:been |was |were |is )?{CHANGED}"
    rf"(?: up| down| back)?(?: from .+?)?(?: again)? to) {_ADVERBS}"
)

SPELLINGS = {
    "favorite": "favourite",
    "color": "colour",
    "e-mail": "email",
    "e-mail address": "email",
    "email address": "email",
    "timezone": "time zone",
    "profession": "job",
    "occupation": "job",
    "relationship status": "relationship",
    "marital status": "relationship",
}
"""Attribute → the name that it is kept under."""

SYNONYMS = {
    **dict.fromkeys(("number", "mobile", "mobile number"), "phone number"),
    **dict.fromkeys(("manager", "supervisor", "team lead"), "boss"),
    **dict.fromkeys(("girlfriend", "boyfriend", "wife", "husband", "partner"), "relationship"),
    **dict.fromkeys(("spouse", "fiancé", "fiancée"), "relationship"),
}
"""Attribute said by itself → the name that it is kept under."""

# ── Slots that are said in sentences of their own ───────────────────────────────────────


@dataclass(frozen=True, slots=True)
class SlotClaim:
    """
    One thing that a text says of a slot.

    Attributes:
        slot: Subject and attribute, e.g. ``"bo travel budget"``; of an activity the
            subject and its verb, e.g. ``"ana drink"``.
        value: Terms of the value; of an activity, of what it is done with.
        holds: Whether the value is said to hold, or to have ended; an ended claim
            without a value ends whatever held.
        activity: Whether it is something done, of which several go together.
        about: Stems that tell what is meant from others of its kind: "coffee at LUIGI'S".
        is_loose: Whether several values may hold at once unless a change is told.
        is_change: Whether a change is told: "now", "went up to".
        is_event: Whether somebody did what ended the value; what holds later does not undo it.
        habit: Whether it is how something is or is done, of which there is more than one kind.
    """

    slot: str
    value: frozenset[str]
    holds: bool = True
    activity: bool = False
    about: frozenset[str] = frozenset()
    is_loose: bool = False
    is_change: bool = False
    habit: bool = False
    is_event: bool = False


_WORD = re.compile(r"[€$£¥%]|[^\W_]+(?:['’.,:/@-][^\W_]+)*")
DIGIT = re.compile(r"\d")
_FILLERS = frozenset(
    ("around", "roughly", "approximately", "circa", "nearly", "almost", "exactly", "now")
)


def terms_of_value(said: str) -> frozenset[str]:
    """The terms of a value: numbers and units in one spelling, other words by their stems."""
    words = (fold(word).strip(".,:/") for word in _WORD.findall(said))
    return frozenset(
        _term(word) for word in words if word not in STOP_WORDS and word not in _FILLERS
    )


def _term(word: str) -> str:
    if DIGIT.search(word):
        return said_number(word.replace(",", ""))
    return UNITS.get(word) or stem(word)


def filled_slots(clause: str, speaker: str) -> Iterator[SlotClaim]:
    """The slots that *clause*, in the third person, fills; "the rent" is *speaker*'s, if known."""
    yield from _prices(clause, speaker)
    yield from _counts(clause)
    yield from _diets(clause)
    for pattern, attribute, loose in _rows():
        if found := pattern.match(clause):
            whose = _bare(found["x"])
            if whose:
                name = f"{whose} {attribute}"
                named = found.groupdict().get("n")
                slot = f"{name} {fold(named)}" if named else name
                yield SlotClaim(slot, terms_of_value(found["v"]), is_loose=loose)


_ARTICLE = re.compile(r"^(?:the|a|an|our|my|both|all|every|each) ", re.IGNORECASE)
_X = r"(?P<x>[^,;:]{1,60}?)"
_OFTEN = r"(?:(?:now|currently|already|just|recently|still|only|also|actually|then) )*"


def _bare(said: str) -> str:
    words = _ARTICLE.sub("", fold(said).strip())
    return "" if not words or words.split()[0] in STOP_WORDS else words


# ── Who, which version, which port ───────────────────────────────────────────────────

_CAPITAL = r"[^\W\d_a-z][\w'’.-]*"
_WHO = rf"(?P<v>{_CAPITAL}(?: {_CAPITAL}){{0,2}})"
_DAY = (
    r"(?P<v>(?:the )?(?:[\w:.]+ )*(?:\d[\w:.]*|(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day"
    rf"|{'|'.join(month.capitalize() for month in MONTHS)})(?: [\w:.]+)?)"
)
_TABLE: tuple[tuple[str, str, bool], ...] = (
    (
        rf"{_WHO} (?:has |have )?{_OFTEN}(?:owns|runs|leads|maintains|manages|heads|looks after"
        r"|is responsible for|is in charge of|takes care of|took over|taken over|takes over)"
        rf" (?P<x>the [^,;:]{{1,40}}?)(?: from .+)?$",
        "owner",
        True,
    ),
    (
        rf"{_X} {_OFTEN}(?:listens|runs|is running|is served|serves|is reachable) {_OFTEN}(?:on|at)"
        r" port (?P<v>\d+)\b.*$",
        "port",
        False,
    ),
    (
        rf"{_X} (?:is |are |was |were )?{_OFTEN}(?:runs|running|built|uses|deployed|targets|on)"
        rf" {_OFTEN}(?:on |with |using )?(?P<n>{_CAPITAL}) (?:version )?(?P<v>v?\d+(?:\.\d+)+)$",
        "version of",
        False,
    ),
    (
        r".+? (?:has |have )?(?:upgraded|updated|migrated|moved|bumped|downgraded)"
        rf" (?P<x>the [^,;:]{{1,40}}?) (?:from .+? )?to (?P<n>{_CAPITAL}) (?P<v>v?\d+(?:\.\d+)+)$",
        "version of",
        False,
    ),
    (rf"{_X} (?:is|takes place|starts|happens|will be) {_OFTEN}(?:on|at|in) {_DAY}$", "time", True),
    (
        rf"{_X} (?:has |have |is |was |were )?(?:been |got )?{_OFTEN}(?:moved|postponed|rescheduled"
        r"|pushed(?: back)?|brought forward|shifted|delayed)(?: from .+?)? (?:to|until|till) "
        rf"{_DAY}$",
        "time",
        True,
    ),
)


@lru_cache(maxsize=1)
def _rows() -> tuple[tuple[re.Pattern[str], str, bool], ...]:
    return tuple((re.compile(pattern), slot, loose) for pattern, slot, loose in _TABLE)


# ── Prices ───────────────────────────────────────────────────────────────────────────

_AMOUNT = (
    r"(?P<v>[€$£¥]?\s?\d[\d.,]*k?(?: ?(?!for\b|from\b|in\b|since\b|now\b|again\b)[a-zA-Z%€$£¥]+)?"
    r"(?: (?:a|per|each|every) \w+)?)"
)
_MONEY = re.compile(
    r"[€$£¥]|\b(?:euros?|eur|dollars?|usd|bucks|pounds?|gbp|quid|yen|francs?|kr|cents?|pence)\b"
    r"|\b(?:a|per) (?:month|week|year|hour|day|person|night)\b",
    re.IGNORECASE,
)
_ROSE = (
    r"(?:(?:has|have|had) )?(?:just |now |recently |been )*(?:went|gone|goes|risen|rose|raised"
    r"|increased|jumped|shot|climbed|dropped|fell|fallen|came|come|cut|reduced|lowered)"
    r"(?: up| down| back)*(?: from \S+(?: \w+)?)?(?: again)? to"
)
_COSTS = re.compile(
    rf"^{_X} (?:is |are |was )?{_OFTEN}(?:costs?|costing|sells? for|is|are|priced at)"
    rf" {_OFTEN}(?:us |me |him |her |them |about )?{_AMOUNT}"
)
_WENT = re.compile(rf"^{_X} {_ROSE} {_OFTEN}{_AMOUNT}")
_PAYS = re.compile(
    rf"^(?P<who>[^,;:]{{1,40}}?) {_OFTEN}(?:pays?|is paying|are paying) {_OFTEN}{_AMOUNT}"
    r".*? for (?P<x>[^,;:]+)$"
)
_RAISED = re.compile(
    r"^.+? (?:has |have )?(?:just |now )?(?:raised|increased|lowered|reduced|cut|put up|put)"
    rf" (?P<x>(?:the|our|my|[\w'’ ]+?['’]s) [\w ]+?)(?: up| down)?(?: from .+?)? to {_AMOUNT}"
)
_AT = re.compile(r" (?:at|in|from|of|for|on|with|by)\b ")
_HOME = word_set("flat apartment house room studio place rent")
_MONTHLY = re.compile(r"\b(?:a|per|each|every) month\b|\brent\b|\bmonthly\b", re.IGNORECASE)
_KNOWN = word_set(
    """
    budget salary income weight height size limit port timeout threshold rate version age capacity
    quota number score temperature deadline
    """
)


def _prices(clause: str, speaker: str) -> Iterator[SlotClaim]:
    if not any(map(str.isdigit, clause)):
        return
    for pattern, surely in ((_RAISED, False), (_WENT, False), (_PAYS, True), (_COSTS, True)):
        found = pattern.match(clause)
        if found is None or (surely and not _MONEY.search(clause)):
            continue
        thing, *rest = _AT.split(found["x"])
        words = [word for word in fold(thing).split() if word not in STOP_WORDS]
        if words and words[-1] not in _KNOWN:
            yield _price(clause, words, " ".join(rest), found["v"], speaker)
        return


def _price(clause: str, words: list[str], rest: str, value: str, speaker: str) -> SlotClaim:
    head = words[-1]
    if head in ("price", "cost", "fee") and rest:
        words, rest = rest.split(), ""
        head = words[-1]
    if head in _HOME and _MONTHLY.search(clause):
        owner = " ".join(words[:-1]).rpartition("'s")[0]
        return SlotClaim(f"{owner or speaker} rent", terms_of_value(value))
    about = {stem(w.removesuffix("'s")) for w in (*words[:-1], *fold(rest).split())}
    about -= {*map(stem, STOP_WORDS), speaker}
    return SlotClaim(f"{stem(head)} price", terms_of_value(value), about=frozenset(about))


# ── Counts ───────────────────────────────────────────────────────────────────────────

_NUMBER = r"(?P<v>\d+|" + "|".join(w for w in NUMBER_WORDS if w not in ("a", "an")) + ")"
_ORDINALS = {"second": "2", "third": "3", "fourth": "4", "fifth": "5", "sixth": "6"}
_HAS_N = re.compile(
    rf"^{_X} {_OFTEN}(?:has|have|keeps|owns|got|is|are) (?:got )?{_OFTEN}{_NUMBER}"
    r" (?P<n>(?:[a-z-]+ ){0,2}?[a-z-]+)(?: left| in total| altogether| strong| at home| in all)?$"
)
_ANOTHER = re.compile(
    rf"^{_X} {_OFTEN}(?:has|have|got|adopted|bought|hired) (?:got )?{_OFTEN}a (?P<v>"
    + "|".join(_ORDINALS)
    + r") (?P<n>[a-z-]+)\b.*$"
)
_THERE = re.compile(
    rf"^(?:there|There) (?:is|are) {_OFTEN}{_NUMBER} (?P<n>[a-z-]+) (?:in|on|at) (?P<x>.+)$"
)
_COUNTED = word_set(
    """
    kid child children son daughter brother sister sibling grandchild grandchildren cat dog pet
    chicken hen horse goat sheep cow rabbit bike car employee people member room bedroom bathroom
    server replica node worker instance student pupil
    """
)
_TIMED = re.compile(
    r"\b(?:today|tomorrow|tonight|yesterday|this|next|last|ago|monday|tuesday|wednesday|thursday"
    r"|friday|saturday|sunday|morning|evening|left over)\b",
    re.IGNORECASE,
)


def _counts(clause: str) -> Iterator[SlotClaim]:
    if _TIMED.search(clause):
        return
    for pattern in (_HAS_N, _ANOTHER, _THERE):
        found = pattern.match(clause)
        if found is None or not (whose := _bare(found["x"])):
            continue
        words = found["n"].split()
        noun = words[-1].rstrip("s") if words[-1] != "people" else "people"
        many = {stem(word) for word in words[:-1]}
        loose = noun not in _COUNTED and words[-1] not in _COUNTED
        said = found["v"]
        value = terms_of_value(_ORDINALS.get(said) or str(NUMBER_WORDS.get(said, said)))
        slot = f"{whose} number of {stem(words[-1])}"
        yield SlotClaim(slot, value, about=frozenset(many), is_loose=loose)
        return


# ── Diets ────────────────────────────────────────────────────────────────────────────

_IS_DIET = re.compile(
    rf"^{_X} (?:has |have )?(?P<not>no longer )?{_OFTEN}(?:is|are|went|gone|became|become|turned"
    rf"|been|eats|follows) (?P<no>no longer |not )?{_OFTEN}(?:a |an )?(?:strict |fully |mostly )?"
    r"(?P<v>vegetarian|vegan|pescatarian|pescetarian)(?: diet)?(?: in .*| since .*| for .*)?$"
)
_EATS = re.compile(
    rf"^{_X} (?:has |have )?(?:recently |just )?{_OFTEN}(?:eats?|is eating|started eating"
    r"|started to eat|began eating|begun eating|went back to eating|gone back to eating) "
    r"(?P<v>meat|beef|pork|chicken|steak|bacon|fish|seafood|dairy|eggs|cheese)\b"
)
_FORBIDDEN = {
    **dict.fromkeys(
        ("meat", "beef", "pork", "chicken", "steak", "bacon"),
        ("vegetarian", "vegan", "pescatarian"),
    ),
    **dict.fromkeys(("fish", "seafood"), ("vegetarian", "vegan")),
    **dict.fromkeys(("dairy", "eggs", "cheese"), ("vegan",)),
}
"""What one eats → who does not."""


def _diets(clause: str) -> Iterator[SlotClaim]:
    if found := _IS_DIET.match(clause):
        if whose := _bare(found["x"]):
            ended = bool(found["not"] or found["no"])
            value = terms_of_value(found["v"].replace("pesce", "pesca"))
            yield SlotClaim(f"{whose} diet", value, holds=not ended)
    elif (found := _EATS.match(clause)) and (whose := _bare(found["x"])):
        for diet in _FORBIDDEN[found["v"]]:
            yield SlotClaim(f"{whose} diet", terms_of_value(diet), holds=False)
