"""Speech acts: recognise requests, reports of results, and small talk."""

from __future__ import annotations

import re

from mnemo.english.clauses import is_imperative

# ── Requests ─────────────────────────────────────────────────────────────────────────

_REQUEST = re.compile(
    r"^(?:(?:so|and|but|also|hey|hi|ok|okay|now|then|hmm)[,\s]+)?(?:please\s+)?"
    r"(?:(?:can|could|would|will) (?:you|u|ya)(?: guys)?(?: please| kindly| also| maybe"
    r"| possibly| just)*"
    r"|(?:i (?:need|want|would like)|i['’]d like|i would love|i['’]d love) (?:you|u) to(?: please)?"
    r"|would you mind|please(?: also| just)?"
    r"|(?:is it possible|would it be possible) (?:for you )?to)\s+"
    r"(?P<what>[a-z][^?]{2,}?)(?:,?\s+(?:please|for me|thanks|thank you))*\s*[?!.]*$",
    re.IGNORECASE,
)
_ME = re.compile(
    r"^(?P<verb>[a-z]+)\s+(?:me|us)\s+(?!(?:to|with|about|for|how|when|if|what|where)\b)", re.I
)
_PLEASE = re.compile(r"^(?:please|just)\s+", re.IGNORECASE)
# "Deploy to staging done" tells; "Get the deploy to staging done" asks.
_RESULT = re.compile(
    r"\b(?:done|finished|completed?|failed|succeeded|successful(?:ly)?|passed|aborted|cancell?ed"
    r"|pending|running|in progress|underway|ok|okay)\W*$",
    re.IGNORECASE,
)
_LINKED = re.compile(
    r"\b(?:is|are|be|been|get|gets|getting|got|have|has|make|keep|mark|marked|leave|until|till|when"
    r"|if|once|as|that|which|what)\b",
    re.IGNORECASE,
)


def _is_report(clause: str) -> bool:
    """Whether *clause*, which begins like an order, names a deed and its result."""
    return _RESULT.search(clause) is not None and not _LINKED.search(clause)


def wanted_in(sentence: str) -> str | None:
    """Extract what *sentence* requests, in its own words; ``None`` if it requests nothing."""
    if asked := _REQUEST.match(sentence):
        what = asked["what"].strip()
    elif is_imperative(sentence) and not _is_report(sentence):
        what = _PLEASE.sub("", sentence)
    else:
        return None
    return _ME.sub(lambda match: f"{match['verb']} ", what)


# ── Small talk: greetings, thanks, praise, cheering on, advice ───────────────────────


def _any_of(phrases: str) -> str:
    """One pattern of *phrases*, which a semicolon parts; a tilde joins a line to the next."""
    joined = re.sub(r"~\s*", "", phrases.replace("'", "['’]"))
    return "|".join(p for phrase in re.split(r" ;|\n", joined) if (p := phrase.strip(" ")))


_OPENINGS = re.compile(
    "^(?:"
    + _any_of(
        r"""
            let'?s\b ; let us\b ; let me\b ; here(?:'s| is| are| it| you| we) ; see you ; see ya
            (?:sleep|rest) (?:tight|well) ; best wishes
            catch you ; farewell\b ; hello\b ; good ?bye\b
            talk to you ; (?:talk|speak) soon ; safe (?:travels|trip|journey|flight)
            take care ; have (?:a|fun) ; can't wait ; cannot wait
            keep (?:it|up|me|going|on|in|us|doing|pushing)
            sounds?\b ; looks?\b ; nice\b ; great\b ; good\b ; lov(?:e|ing)\b ; glad\b
            happy (?:to|that|for) ; wishing\b ; sending\b ; hope\b ; hang in
            so (?:glad|happy|proud|cool|sorry|excited|great|nice|sweet|inspiring|true|much|many~
                |good)
            hoping (?:you|it|that you) ; enjoy\b ; don't (?:worry|give up|forget|stop) ; way to go
            best of luck ; thank ; thx ; congrat ; welcome ; no (?:worries|problem|doubts?)
            my pleasure ; sorry\b ; how \w+\b ; what (?:a|an)\b ; agreed ; such a\b ; believe me
            trust me ; long time no ; guess what ; never give up ; look at ; take a look
            never ?mind
            check (?:it|this|them|that|out|your)\b
            feel free ; remember\b ; imagine\b ; same here ; me too ; go for it ; note that
            please note ; totally agree ; can't agree ; couldn't agree ; highly recommend ; super\b
            really (?:glad|happy|proud|excited|appreciate) ; understand\b ; appreciate\b ; good news
            there you go ; that (?:being )?said$ ; i (?:totally|completely|fully|100%|so)? ?agree
            i couldn't agree ; this is great ; for sure ; any(?:thing| advice| tips| suggestions)
            (?:that|it|this) (?:looks|sounds|seems|must be|must have|must've) ; especially\b
            which\b ; bet\b
            must (?:be|have)
            cheers\b ; hear you ; you know what ; speaking of which ; my bad ; no way
        """
    )
    + ")",
    re.IGNORECASE,
)

_INSIDE = re.compile(
    r"\b(?:"
    + _any_of(
        r"""
            (?:i'?m|i am|we'?re|i was|i feel|i'm feeling) (?:\w+ ){0,2}(?:glad|happy|proud|sorry~
                |excited|thrilled|stoked|pleased|here|impressed|sure) (?:for (?:you|it|that|this)~
                |that you|of you|of your|to hear|to see (?:you|what|how|it|that)|to help|you|your~
                |about your|it|it'll|they'll|by your|with your|by you|he'll|she'll)
            i(?:'m| am)? (?:really |so |truly |totally |also |just |definitely )?(?:appreciate~
                |hope you|hope your|wish you|hear you|bet|know what you|see what you~
                |love (?:that you|your|how you)|love the way you|admire|can imagine|understand~
                |get it|know you|know how you|get what you)
            can't (?:agree|wait to (?:hear|see (?:you|what|how|it|them|that|your)))
            (?:looking|look) forward to (?:hear|it\b|see(?:ing)? you|catch)
            (?:'d|would) love to (?:hear|see (?:you|it|that|your|some)|know|check)
            i (?:wanted|want|'d like|just wanted) to (?:tell|share|let you|ask|say|hear)
            i(?:'ve)? (?:got|have|had)(?: \w+){0,2} (?:news|questions?|something to (?:tell|share))
            i (?:have to|gotta|must|should) (?:say|admit|go|run|get going) ; let you know
            keep you (?:posted|updated) ; don't know what to say ; thank you ; thanks for
            i'll (?:be there for|talk|check it|keep that|try that|give it|do my best|be sure~
                |definitely (?:check|try|keep|do|let))
            means? (?:a lot|so much|the world|everything) ; meant (?:a lot|so much|the world)
            good (?:to see|to hear|to know) ; great (?:to see|to hear)
            your (?:\w+ )?(?:support|success|help|words?|encouragement|determination|advice~
                |kindness|passion|energy|positivity|drive|dedication|enthusiasm|attitude|friendship~
                |offer|concern)
            have(?:'ve)? (?:got )?your back ; got your back ; root(?:ing)? for you ; wish me luck
            i (?:really )?(?:don't|do not) know(?: (?:yet|much|why))?$ ; having you ; have you as
            looks? like this[.:]?$ ; the following [^:]*:?$ ; so far:?$
            if you (?:need|want|ever|have) ; i can picture ; been a (?:while|long time|minute)
            (?:a lot|so much)(?:'s| has) (?:changed|happened) ; you(?:'ve)? got this
        """
    )
    + ")",
    re.IGNORECASE,
)


_DEGREE = (
    r"(?:(?:\w+ly|just|also|still|now|so|very|super|always|kinda|kind of|sort of"
    r"|a (?:bit|little))\s+)*"
)
_PASSING = re.compile(
    rf"^(?:\w+ly,? )?(?:i(?:['’]m| am|['’]ve been|['’]ve| have| was| feel| felt)? {_DEGREE}"
    r"|(?=feeling|looking forward|wish))(?:"
    + _any_of(
        r"""
            not(?: \w+)? (?:sure|certain) ; unsure\b ; stuck\b ; wonder ; curious\b ; confused\b
            struggling\b ; having (?:trouble|issues|difficulty|problems|a hard time)
            (?:experiencing|getting|facing|seeing|having) (?:\w+ )?(?:issues?|errors?|problems?)\b
            (?:try|trying) to\b ; (?:need|want|have)(?: \w+)? (?:help|a question|questions)\b
            (?:want|need|wanted|would like|'d like) to (?:make sure|ensure|see|understand|know~
                |be sure|confirm|check|ask)\b
            (?:think|thought|believe|guess|hope|know|mean|wish|bet|doubt)\b ; hoping\b ; wish\b
            looking (?:for (?:help|advice|feedback|suggestions|tips|a way|ways)|forward)\b
            (?:sitting|relaxing|chilling|waiting|heading|unwinding|content|plowing|supposed)\b
            (?:been waiting|got (?:to|back|here|home)|woke up)\b
            (?:gonna|going to|will) keep\b ; had (?:\w+ ){0,4}(?:setback|things happening)\b
            not getting\b ; (?:would like|want|need) to (?:further |also )?improve\b
            feeling\b ; staying\b ; promise\b ; might\b ; probably\b ; should\b
            crossing ; keen\b ; thankful\b ; grateful\b ; optimistic\b
            relieved\b
            worried\b ; excited\b ; happy\b ; glad\b ; proud\b ; thrilled\b ; in awe\b
            upset\b ; hooked\b ; all about\b ; tried\b
            (?:love|like|liked|loved|enjoy|enjoyed|appreciate) (?:the|how|that|this|it|just~
                |to just)\b
        """
    )
    + r")"
    r"|^i['’]d (?:love|like) (?:to (?:see|know|hear|get|learn|understand)|(?:some|your|any|an?) )"
    r"|^i (?:\w+ )?fe(?:el|lt)\b|^(?:every|any|no|some)thing(?:['’]s)? "
    r"|^(?:i|we) (?:could|should) |^we (?:can|gotta|all|learn) |^we['’]ll keep "
    r"|^i['’]ll (?:also |definitely |be sure|make sure|try|keep|check|look into|consider|focus|ask"
    r"|let|start)"
    r"|^(?:what|how|if|together|maybe|perhaps)\b|\bwe all\b",
    re.IGNORECASE,
)


def is_passing(clause: str) -> bool:
    """Whether *clause* tells a doubt, mood or opinion of the moment, or leads to a request."""
    return _PASSING.match(clause) is not None


def is_small_talk(clause: str) -> bool:
    """Whether *clause*, without its leading interjections, is about the talk and not the world."""
    return _OPENINGS.match(clause) is not None or _INSIDE.search(clause) is not None
