"""English words that people use about everything: they rarely say what a talk is about. A fixed list, never learnt.

It replaces statistics of a corpus, which a new memory does not have. WEAK words (verbs, judgements, fillers)
never make a label; PLAIN words (everyday nouns) count little alone and help in phrases ("support group").
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from myria.text.words import term_id, terms

_WEAK = """
able absolutely accept accepting achieve across act actual add added admire adorable adore advise affect
afford afterwards agree agreed ahead aim aka alive allow alone alongside alright altogether amaze amazed
amazing among amongst amused angry another answer answered anxious anymore anytime anyways anywhere apart
appealing appear appreciate appreciated apr april arrive arrived aside ask asked asking aspire assume attend
attended aug august authentic available avoid await aware awesome awful awhile awkward aww bad based basic
beautiful became become becoming began begin beginning behind believe believed belong beneath beside besides
best better beyond big bigger biggest bit blast blend blessed bold boost boosted boring bother bought brave
break bright brighten brighter brilliant bring bringing broad broke brought btw bud built busy buy buying
c'mon call called calling calm calming came capture captured care carefree careful caring carry catch caught
cause celebrate celebrated celebrating centered certain certainly challenging chance change changed changing
charming chat check checked checking cheer cheerful cherish chill chillin choose chose clear clearly clever
close closer com combine come comes comfort comforting coming commit common compassionate complain complete
completely complex concentrate concerned confident confirm confront confused congrats congratulations
connect connected conquer consider consistent constant content continue contribute convinced cool cope
corner correct could count couple cozy crave crazy create created creating creative crucial curious current
currently cut cute daily damn deal dear dec december decide decided dedicate dedicated deep deeply define
definitely delightful demonstrate depend describe deserve despite determine determined develop devoted
different difficult disappoint disappointed discover discovered distance dive diverse doesnt doin dollar
dollars dont doubt dreaming dude due eager earlier early earn easier easy edu eight eighteen eighty elegant
eleven else embrace emotional empower empty encounter encourage encouraged encouraging end ended ending
endless enjoy enjoyed enjoying enormous enough ensure entertaining enthusiastic entire epic escape
especially essential etc euro euros even eventually everybody everyone everything everywhere evolve exact
exactly excellent excited excitement exciting exist expand expect expected experience experienced explain
explore exploring express expressing extra extremely fab fabulous face faced fair fall fallen fam familiar
fantastic far farther fascinate fascinating fast favorite favourite feat feb february feel feeling feelings
feels fell felt few fierce fifteen fifty fight figure figured fill filled final finally find finding finds
fine finish finished first firstly fit five fix fixed flow focus follow followed following force forces
forever forget forgot form fortunate forty forward found four fourteen freak free fresh fri friday friendly
frustrated fuel fulfilling full fully fun funny further future gain gave general gentle gently genuine
genuinely gesture gettin give given gives giving glad goal goin gone good gorgeous gosh gotcha grab graceful
grateful great greatest greet grew grind grow growing grown guess guy guys haha handle hang happen happened
happening happens happy hard harsh headed hear heard hearing heartbreaking heartwarming heck held help
helped helpful helping helps hence hesitate hi high highly hit hmm hold holding honest honestly honored
hooked hope hoped hopefully hoping how're http https hug huge hugs humble hundred hurt idk ignite ill im
imagine immediately immerse imo impactful important impressed impressive improve include included including
increase incredible incredibly independent individual individuals influential inform inside inspire inspired
inspiring intend intense interest interested interesting intriguing introduce invest invite invited involve
involved issue jan january join joined joining journey joy juggling jul july jump jun june keen keep keeping
kept key kind kinda knew know knowing known knows lack laid lame large last lastly lately later latest laugh
lead learn learned learning learnt least leave leaving led legit less lets letting life lift liked likely
likes listen listening lit literally little live lived lively lives living lmk local locals lol lonely long
longer look looked lookin looking looks lose lost loud love loved lovely loves loving low luck lucky mad
magical main maintain major manage managed march matter mattered mean meaning meaningful means meant meet
meeting memorable mems mention mentioned mess message messages met mind mindful minus miss missed missing
mix modern moment moments mon monday motivate motivated motivating motivation move moved moving must nailed
natural navigate near nearby nearly neat necessary need needed needs nervous never new next nice nine
nineteen ninety nobody none noone nope normal normally nostalgic nothin nothing notice noticed nov november
nowadays nowhere number nurture observe obvious obviously occasionally oct october odd offer offered often
older omg one ooh open opened opening opportunity optimistic option options original outside outstanding
outweigh overall overcome overseas overwhelm overwhelming pace part particular particularly pass passed
passion passionate patient peaceful per percent perfect persevere persist personal pick picked plan planned
planning play played playful playing pleasant pleased pls plus plz point positive possible post posted
posting powerful practicing praise precious prefer prepare prepared pretend pretty priceless prioritize
probably promise proper proud prove provide provided pull pumped pure purpose pursue push pushing put
putting quick quickly quiet rad raise random rare raw reach reached react read ready real realise realised
realize realized reason recent recently recharge recommend reflect refreshed refreshing regarding regardless
regret regular relate relax relaxed relaxing relieved rely remain remarkable remember remembered remind
reminded reminder reminders reminds remove repaired replace reply represent resilient resonate respect
respond responsible rest result return rewarding rich rid right risky rock rockin rough run running rush sad
safe satisfy satisfying saturday save saw saying scared scary second secondly seeing seek seemed seems seen
send sending sense sent sep sept september serene serious seriously serve settle seven seventeen seventy
several severe share shared sharing shine short shout show showed showing shown shows shy sick side
significant silly similar simple simply sincere sit sitting six sixteen sixty slow slowly small smaller
smart smile smooth solid somebody somebody's someday somethin sometime somewhat somewhere soon sooner sore
sorry sort sound sounded sounds space spark special specific spectacular spend spending spent spill split
spontaneous spot spread stand standing start started starting state stay stayed staying stellar step stick
stoked stood stop stopped strain strength stress stressed stressful strike strong struggle struggled
struggling stuck stuff stunned stunning stupid succeed success suffer suggest suggested suit sunday super
superb supportive supposed supreme surprise surprised surprising surrounded surrounding swamped sweet switch
symbolize tackle take taken takes taking talk talked talkin talking teach tempt ten tend tender terrible
terrific thankful that'd themed therapeutic therefore thing thinkin thinking thinks third thirteen thirty
tho thought thoughtful thoughts thousand three threw thrilled thrilling thrive throughout throw thu thur
thurs thursday thus tight tiny tired today together told tomorrow ton tonight tons took top total totally
tough track transform treat tricky tried tries true truly trust trusty tryin trying tue tues tuesday turn
turned turning twelve twenty twice two type ugh unbelievable uncertain understand understanding understood
unforgettable unfortunately unique unite uniting unless unlike unreal unusual upcoming update updated uplift
upon upset ur urge use used useful uses using usual usually valuable value various vary version versus via
vibe vibes vibrant view visit visited visual vital vivid vulnerable wait waiting walk walked wanted wanting
wants warm watch watched watching wednesday weird welcome went what're whenever who're whoa whole wild
willing win wise wish wished woah wonder wondered wonderful wonderfully wondering woohoo word words worked
working works worried worry worse worst worth worthwhile wrap write writing written wrong wrote www xd ya
yall yay yea yearn yesterday yikes yo ate eats fave provoking young younger yup
"""

_PLAIN = """
acceptance accomplishment achievement admiration adventure advice afternoon age ambition appreciation area
aspect atmosphere baby balance beans beauty bed body bond bonding bottle box breakfast brother buddy build
building bummer bunch business chair challenge chapter cheers child choice circumstance city class club
collection commitment community company compassion concern confidence contact conversation country courage
course creativity culture cup dad date daughter day days decade dedication desire detail details
determination difference dinner direction door dream dreams effect effort emotion emotions empathy
encouragement energy evening event example expression eye fact family father fear feedback floor folk food
foot freedom friend friends friendship front fruit fulfillment game gathering generation gift gig girl goals
grandma grandpa gratitude ground group growth guide habit hair hand happiness head heart history hobby
holiday home hotel hour house husband idea image impact importance influence insight insights inspiration
intention issue item job kid kids kindness lady land law left lesson letter level light line list locals
location lunch man meal member memory message middle mile mindset minute mistake mom money month mood
morning mother mouth music name names nature news night noise note obstacle office opinion order outcome
page pair pal paper parent parents partner party past path patience peace people perseverance perspective
phone photo photos pic pics picture piece place plate pleasure plenty potential power present pressure price
pride priority problem process program progress project proof quality question relationship relief
resilience response reward road role room row satisfaction scene school season seat section self set setback
shape sheet shirt shoes shop sight sign sister situation skill skills sky snack son source spring square
stage station store stories story street style subject summer sun support system table task team text thanks
time times tip tips touch town trait tree trees trip trouble truth unity vacation video vision voice
vulnerability wall war warmth water weather week weekend weeks wife wind window winter woman wood work world
yard year years
"""


_NUMBER_WORDS = """
two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen
twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million half dozen couple twice
2x 3x 4x 5x 6x 7x 8x 9x 10x
"""
"""Number words: people tell states and their changes by numbers ("88 kilos"). "One" is mostly no number."""

_GREATEST_NUMBER = 999
"""Greater numbers are mostly years, telephone numbers and the like."""


@cache
def weak_terms() -> frozenset[str]:
    """Return the terms (as `myria.text.terms` gives them) that break phrases and never lead a label."""
    return _stems(_WEAK)


@cache
def plain_terms() -> frozenset[str]:
    """Return the terms of everyday nouns, which alone have little weight."""
    return _stems(_PLAIN) - weak_terms()


@cache
def weak_ids() -> frozenset[int]:
    """Return the identities of the weak terms."""
    return frozenset(map(term_id, weak_terms()))


@cache
def number_ids() -> npt.NDArray[np.int64]:
    """Return the ids of terms that are numbers, ascending."""
    numbers = {*terms(_NUMBER_WORDS), *map(str, range(1, _GREATEST_NUMBER + 1))}
    return np.array(sorted(map(term_id, numbers)), dtype=np.int64)


def _stems(words: str) -> frozenset[str]:
    return frozenset(terms(words))
