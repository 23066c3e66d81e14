"""English words that people use about everything: they rarely say what a talk is about. A fixed list, never learnt.

The planner has no corpus statistics (trap 11), so this list stands for them. WEAK words (verbs, judgements, fillers)
never make a label; PLAIN words (everyday nouns) count little alone and help in phrases ("support group").
"""

from __future__ import annotations

from myria.analysis import terms

_WEAK = """
able absolutely accept accepting act actual add added afford agree agreed aim allow amaze amazed amazing
answer answered appear appreciate appreciated arrive arrived ask asked asking attend attended available
avoid awesome awful awhile aww bad based beautiful became become becoming began begin beginning believe
believed belong best better big bit blast blessed bother bought break bring bringing broke brought build
building built busy buy buying call called calling came capture captured care careful caring carry catch
caught cause certain certainly chance change changed changing chat check checked checking choose chose clear
clearly close com come comes comfort comforting coming complete completely confident congrats
congratulations connect connected consider continue cool cope correct could count couple create created
creating creative curious current currently cut cute daily damn deal dear decide decided deep deeply
definitely deserve different difficult discover discovered doesnt dont doubt dreaming drop dude due earlier
early easier easy else encourage encouraged encouraging end ended ending enjoy enjoyed enjoying enough
ensure entire especially etc even eventually everybody everyone everything everywhere exact exactly
excellent excited excitement exciting expect expected experience experienced explain explore exploring
express expressing extra extremely fab fabulous face faced fair fall fallen fantastic far fast favorite
favourite feel feeling feelings feels fell felt few figure figured fill filled final finally find finding
finds fine finish finished first fit fix fixed focus follow followed following forever forget forgot form
forward found free fresh full fully fun funny future gain gave general gently genuine genuinely give given
gives giving glad goal gone good gorgeous grab grateful great greatest grew grow growing grown guess guy
guys haha hang happen happened happening happens happy hard hear heard hearing heck held help helped helpful
helping helps hi high highly hmm hold holding honest honestly hope hoped hopefully hoping http https hug
huge hugs hurt ill im imagine immediately important impressed impressive improve include included including
incredible incredibly inspire inspired inspiring interest interested interesting introduce involve involved
join joined joining journey joy juggling jump keep keeping kept kind kinda knew know knowing known knows
laid large last lately later laugh lead learn learned learning learnt least leave leaving led left less lets
letting life liked likely likes listen listening literally little live lived lives living lol long longer
look looked looking looks lose lost loud love loved lovely loves loving low luck lucky mad magical main
maintain major manage managed matter mattered mean meaning meaningful means meant meet meeting memorable
mention mentioned met mind miss missed missing moment moments motivate motivated motivating motivation move
moved moving must natural near nearly necessary need needed needs new next nice nope normal normally nothing
notice noticed number obvious obviously occasionally odd offer offered often omg open opened opening
opportunity option options order original overall part particular particularly pass passed passion
passionate past peaceful perfect personal pick picked plan planned planning play played playing pleased plus
point positive possible prepare prepared present pretty probably proud provide provided pull purpose push
pushing put putting quick quickly quiet random rare reach reached react read ready real realise realised
realize realized reason recent recently recharge recommend reflect regular relate relax relaxing remember
remembered remind reminded reminder reminders reminds reply rest result return rewarding rid right rock
rough run running rush sad safe sat saw saying scary seeing seemed seems seen send sending sense sent
serious seriously set settle several share shared sharing short shot show showed showing shown shows sick
side similar simple simply sit sitting slow small smile soon sorry sort soul sound sounded sounds space
special specific spend spending spent spot spread stand standing start started starting state stay stayed
staying step stick stood stop stopped strength strong struggle struggled struggling stuck stuff stunning
succeed success suggest suggested super supportive supposed surprise surprised surprising swamped sweet take
taken takes taking talk talked talking teach tend terrible terrific thankful themed thing thinking thinks
third tho thought thoughtful thoughts threw thrilled throw tight tiny tired today together told tomorrow
tonight took top total totally tough track tried tries true truly trust trying turn turned turning twice
type understand understanding understood unfortunately unique unless unreal unusual update updated upset use
used useful uses using usual usually valuable value various version vibe vibes view visit visited wait
waiting walk walked wanted wanting wants warm watch watched watching weird welcome went whole willing win
wise wish wished wonder wondered wonderful wonderfully wondering word words worked working works worried
worry worse worst worth wrap write writing written wrong wrote www xd yay yea yesterday yo young yup
"""

_PLAIN = """
advice afternoon age area atmosphere balance bunch business child class club collection comfort community
company conversation country course culture date day days decade difference direction effort energy evening
event example eye fact family feedback folk friend friends fruit game gathering generation gig girl group
hand head heart history hobby home hour house idea image impact inspiration issue item job kid kids lady
lesson level light line list locals location man memory message middle mile minute mom money month mood
morning music name nature night note outcome pair paper parent parents partner party path people perspective
photo photos pic pics picture piece place plenty power pressure problem process program progress project
question relationship response role room scene school season section shop skill skills spring start step
stories story street stress style subject summer support table task team text thanks time times town trip
vacation video voice water weather week weekend weeks winter woman work world year years
"""


def _stems(words: str) -> frozenset[str]:
    return frozenset(term for word in words.split() for term in terms(word))


WEAK = _stems(_WEAK)
"""Terms (as `myria.analysis.terms` gives them) that break phrases and never lead a label."""

PLAIN = _stems(_PLAIN) - WEAK
"""Terms of everyday nouns: little weight alone."""
