"""Words that say how a sentence is built and nothing about what it is about; a fixed list, never learnt."""

from __future__ import annotations

_WORDS = """
a about above after again against ago ah all almost along already also although always am an and any anyone
anything are aren't around as at away back be because been before being below between both but by bye can
can't cannot could couldn't did didn't do does doesn't doing don't done down during each either else ever
every few for from further get gets getting go goes going gonna got gotta had hadn't has hasn't have haven't
having he he'd he'll he's hello her here here's hers herself hey hi him himself his how how's however i i'd
i'll i'm i've if in indeed instead into is isn't it it'd it'll it's its itself just let let's like lot lots
made make makes making many may maybe me might mine more most much must my myself nah neither no nor not now
of off oh ok okay on once one only onto or other others our ours ourselves out over own perhaps please quite
rather really said same say says see seem shall she she'd she'll she's should shouldn't since so some
someone something sometimes still such sure tell than thank thanks that that's the their theirs them
themselves then there there's these they they'd they'll they're they've thing things this those though
through till to too toward towards try under until up upon us very via wanna want was wasn't way we we'd
we'll we're we've well were weren't what what's whatever when where where's whether which while who who's
whoever whom whose why will with within without won't would wouldn't wow yeah yep yes yet you you'd you'll
you're you've your yours yourself yourselves
"""

ENGLISH = frozenset(_WORDS.split())
"""Lower-case words, not stems."""
