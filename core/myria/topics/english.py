"""Tells English nouns from verbs and adjectives by their endings, with lists of frequent exceptions."""

from __future__ import annotations

import re
from functools import lru_cache

from myria.text import terms

_CACHED_WORDS = 16_384

_NO_NOUN = re.compile("(?:[^e]ed|ly|able|ible|ful|less|ous|[^r]ive|ish|iest|if(?:y|ies)|izes?|'ve|'d|'ll|'re|n't)$")
_NOUN = re.compile(
    "(?:tion|sion|ment|ness|ity|ship|ism|ist|logy|graphy|ance|ence|ency|hood|dom|ure|age|ery|ium|phone|scope|ware)s?$"
)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_NOUNS_AFTER_ALL = _words("""
    family assembly supply reply anomaly butterfly jelly belly ally bully rally lily italy july monopoly table
    cable vegetable variable stable timetable fable bible drive archive hive olive executive detective
    perspective initiative alternative objective native motive narrative relative representative handful bed
    shed sled hundred parish finish dish fish radish british spanish english turkish polish
""")
"""Nouns that end as verbs, adjectives or adverbs do."""

_PARTICIPLES = _words("freed agreed decreed guaranteed highest lowest fastest slowest largest newest oldest strongest")
"""Frequent participles and superlatives that end as nouns do."""

VERB_FORMS = _words("""
    amidst amid
    fails failed crashes crashed refuses refused expires expired expects lacks uses requires allows accepts
    returns runs loses breaks shows makes takes gives keeps gets goes comes says wants needs helps works
    starts stops becomes seems does has was were is are brings leaves thinks knows means feels looks loves
    hopes lets tells asks spoke broke went came saw took gave made got told said thought felt left began
    brought bought caught taught kept lost met paid sent spent stood understood won wrote ate drank drove flew
    grew hid knew rode rang sang sat slept swam threw woke wore cost hit hurt beat bet built burnt chose drew
    fell fought forgot froze heard held hung led lent lit meant quit rose ran sold shook shot shut slid sped
    stole stuck swept swore thank
    accomplish adapt adjust align analyze apply assess automate calculate clarify communicate compare conduct configure
    convert debug deliver deploy edit eliminate enable enhance establish evaluate execute expand facilitate generate
    identify implement incorporate install integrate leverage maximize minimize modify obtain optimize organize perform
    prevent prioritize protect reduce refactor refine resolve retrieve revise select solve streamline submit
    troubleshoot utilize validate verify
""")
"""Verbs in forms that are seldom nouns, and prepositions that are no stop words."""

COMMON_HEADS = _words("""
    care center centre centers centres change changes check checks deal deals event events experience fight
    focus force forces form forms interest issue issues lift match matches meeting meetings option options
    plan plans play point points post posts repair repairs result results return risk risks run sense show
    shows side space spot state step steps stop strike switch talk talks track tracks train trains update
    updates value values version versions view views visit visits walk walks watch call calls pass
""")
"""Common nouns that end compounds, though they mostly stand as verbs or say little."""

EMPTY_NOUNS = _words("thing things way ways lot lots one ones kind sort stuff bit time")
"""Nouns without a content of their own; only the words before them say something."""

DETERMINERS = _words("the a an my your our his her their its this these those me you him us them it")
"""Words that often follow a verb, but seldom a noun."""

NOT_ALONE = frozenset(
    terms("""
    user assistant agent customer client team staff manager employee member tester developer engineer support system
    bot percent degree kilobyte megabyte gigabyte megahertz gigahertz kilometer meter centimeter millimeter kilogram
    gram volt watt piece minute hour
    code application app function file data program project feature error concept approach structure format strategy
    method solution process step example issue problem result detail element aspect component implementation setup
    requirement configuration performance improvement summary explanation guideline template workflow tool task review
    control rate additional critical professional
    """)
)
"""Terms of roles and units, and of explanations of anything: none is a subject by itself."""


@lru_cache(maxsize=_CACHED_WORDS)
def ends_unlike_a_noun(surface: str) -> bool:
    """Tell whether a word ends as verbs, adjectives and adverbs do."""
    lowercase = surface.lower()
    return lowercase not in _NOUNS_AFTER_ALL and (lowercase in _PARTICIPLES or _NO_NOUN.search(lowercase) is not None)


@lru_cache(maxsize=_CACHED_WORDS)
def ends_like_a_noun(surface: str) -> bool:
    """Tell whether a word has an ending that makes nouns."""
    return _NOUN.search(surface) is not None
