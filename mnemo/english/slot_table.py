"""The table of slots: the ways in which English says the value of an attribute, or its end."""

from __future__ import annotations

from mnemo.english.words import word_set

# One row each, a pattern of what follows the subject, its value named ``v``. English;
# another language needs rows of its own.

_ADVERBS = r"(?:(?:now|currently|recently|just|still|already|actually|finally|officially|also) )*"
_HAS = r"(?:(?:has|have|had|'s|’s) )?" + _ADVERBS
_IS = r"(?:is|are) " + _ADVERBS
_NOT = r"(?:does not|doesn['’]t|do not|don['’]t)"
_UPPER = r"[^\W\d_a-z][\w&'’.-]*"
_PLACE = rf"(?P<v>(?:the )?{_UPPER}(?:,? (?:(?:de|da|do|of|the|la|le|and) )?{_UPPER})*)"
_HOME = (
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

HOLDS: tuple[tuple[str, str], ...] = (
    (
        "residence",
        rf"{_HAS}(?:moved|relocated)(?: back)?(?: from [^,]+?)? (?:in)?to {_HOME}{_PLACE}",
    ),
    (
        "residence",
        rf"{_ADVERBS}(?:lives?|resides?) {_ADVERBS}(?:with [^,;]+? )?(?:in|at) {_HOME}{_PLACE}",
    ),
    ("residence", rf"{_IS}(?:living|residing|based|settled) (?:in|at) {_HOME}{_PLACE}"),
    ("residence", rf"(?:has|have) {_ADVERBS}(?:been living|settled) in {_PLACE}"),
    ("residence", rf"(?:home|house|flat|apartment) is {_ADVERBS}(?:in|at) {_HOME}{_PLACE}"),
    ("employer", rf"{_ADVERBS}works? {_ADVERBS}(?:at|for) {_ORGANISATION}"),
    ("employer", rf"{_IS}(?:working|employed) (?:at|for|by|with) {_ORGANISATION}"),
    ("employer", rf"{_HAS}(?:started|begun|began) working (?:at|for) {_ORGANISATION}"),
    (
        "employer",
        rf"{_HAS}(?:has|have|started|got|gotten|taken|took|accepted|found|landed) (?:an |{WHOSE})"
        rf"(?:\w+ )?(?:job|position|post|role) (?:at|with|in) {_ORGANISATION}",
    ),
    ("employer", rf"{_HAS}(?:was |been )?hired by {_ORGANISATION}"),
    ("job", rf"{_ADVERBS}works? {_ADVERBS}as an? {_ROLE}"),
    ("job", rf"{_IS}(?:working|employed) as an? {_ROLE}"),
    ("job", rf"{_HAS}(?:retrained|qualified|started(?: (?:work|working))?) as an? {_ROLE}"),
    ("job", rf"{_HAS}(?:has|got|started|found|took) an? (?:new )?(?:job|position) as an? {_ROLE}"),
    ("job", rf"{_ADVERBS}(?P<v>teach(?:es)? (?!(?:him|her|it|them|us|me)\b)\w+)"),
    ("employer", rf"{_ADVERBS}teach(?:es)? .+? at {_ORGANISATION}"),
    (
        "employer",
        rf"{_IS}an? [^,;.]*?{_OCCUPATION}(?: [^,;.]+?)? (?:at|for|with) {_ORGANISATION}",
    ),
    ("employer", rf"{_ADVERBS}works? {_ADVERBS}as an? [^,;]+? (?:at|for) {_ORGANISATION}"),
    (
        "job",
        rf"{_HAS}(?:been promoted|been made|become|became) (?:to )?(?:an? )?"
        rf"(?P<v>[^,;.]*?{_OCCUPATION})",
    ),
    ("job", rf"{_IS}an? (?P<v>[^,;.]*?{_OCCUPATION})(?= (?:at|for|in|with|and)\b|[,;.]|$)"),
    ("age", rf"{_IS}(?P<v>\d{{1,3}})(?: years? old)?$"),
    ("age", rf"{_HAS}turned (?P<v>\d{{1,3}})\b"),
    ("relationship", rf"{_IS}(?P<v>(?:married|engaged)(?: to {_UPPER})?|dating {_UPPER})"),
    ("relationship", rf"{_IS}(?P<v>single|divorced|widowed|separated)\b"),
    ("relationship", rf"{_HAS}(?:got|gotten) (?P<v>(?:married|engaged)(?: to {_UPPER})?|divorced)"),
    ("relationship", rf"{_HAS}(?P<v>married {_UPPER})"),
    ("version", rf"{_HAS}(?:is |was |been )?(?:up|down)graded to (?:version )?(?P<v>v?\d[\w.]*)"),
)
"""Attribute, and how a value for it is said after the subject."""

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
        rf"{_HAS}(?:moved|relocated)(?: back)?(?: from [^,]+?)? (?:in)?to {_HOME}{_PLACE}",
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

ENDED: tuple[tuple[str, str], ...] = (
    ("residence", rf"(?:no longer|{_NOT}|used to) (?:lives?|resides?) (?:in|at) {_PLACE}"),
    ("residence", rf"(?:is|are) (?:no longer|not) (?:living|residing|based) (?:in|at) {_PLACE}"),
    ("residence", rf"{_HAS}moved (?:out of|away from) {_PLACE}"),
    ("employer", rf"(?:no longer|{_NOT}|used to) works? (?:at|for) {_ORGANISATION}"),
    (
        "employer",
        rf"(?:is|are) (?:no longer|not) (?:working|employed) (?:at|for|by) {_ORGANISATION}",
    ),
    ("employer", rf"{_HAS}stopped working (?:at|for) {_ORGANISATION}"),
    ("employer", rf"{_HAS}(?:left|quit|resigned from|retired from) (?P<v>{_UPPER}(?: {_UPPER})*)"),
    (
        "employer",
        rf"{_HAS}(?:left|quit|lost|resigned from) {WHOSE}(?:old )?(?:job|position)"
        rf"(?: (?:at|with) {_ORGANISATION})?",
    ),
    ("employer", rf"{_HAS}(?:was |got |been )?(?:fired|laid off)(?: (?:from|by) {_ORGANISATION})?"),
    ("employer", rf"{_IS}(?:unemployed|out of work)(?P<v>)"),
    ("job", rf"(?:no longer|{_NOT}|used to) works? as an? {_ROLE}"),
    ("relationship", rf"{_HAS}(?:broken|broke|split) up with (?P<v>{_UPPER})"),
    (
        "relationship",
        rf"{_IS}no longer (?P<v>(?:married|engaged)(?: to {_UPPER})?|dating {_UPPER})",
    ),
)
"""Attribute, and how it is said that a value (none: any) has ceased to hold."""

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
