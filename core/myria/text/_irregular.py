"""English forms that no suffix rule joins with their base, and the short names of months and days.

Each line is a base and its forms; forms that are as often another word (rose, ground, lay, bore, wed) stay out.
"""

from __future__ import annotations

_TABLE = """
become became
begin began begun
break broke broken
bring brought
build built
buy bought
catch caught
choose chose chosen
come came
creep crept
deal dealt
dig dug
draw drew drawn
dream dreamt
drink drank drunk
drive drove driven
eat ate eaten
fall fell fallen
feed fed
feel felt
fight fought
find found
flee fled
fly flew flown
forget forgot forgotten
forgive forgave forgiven
freeze froze frozen
give gave given
go went gone
grow grew grown
hang hung
hear heard
hide hid hidden
hold held
keep kept
kneel knelt
know knew known
lead led
leave left
learn learnt
lend lent
lose lost
make made
mean meant
meet met
pay paid
prove proven
ride rode ridden
ring rang rung
rise risen
run ran
say said
see saw seen
seek sought
sell sold
send sent
sew sewn
shake shook shaken
shine shone
shoot shot
show shown
sing sang sung
sink sank sunk
sit sat
sleep slept
slide slid
speak spoke spoken
spend spent
spin spun
stand stood
steal stole stolen
stick stuck
sting stung
strike struck
swear swore sworn
sweep swept
swim swam swum
swing swung
take took taken
teach taught
tear tore torn
tell told
think thought
throw threw thrown
understand understood
wake woke woken
wear wore worn
weep wept
win won
write wrote written
child children
person people
man men
woman women
wife wives
life lives
knife knives
leaf leaves
shelf shelves
loaf loaves
wolf wolves
foot feet
tooth teeth
mouse mice
goose geese
january jan
february feb
april apr
august aug
september sept sep
october oct
november nov
december dec
monday mon
tuesday tue tues
thursday thu thur thurs
friday fri
"""

BASES = {form: base for base, *forms in (line.split() for line in _TABLE.split("\n") if line) for form in forms}
"""Base word by form, both in lower case and not stemmed."""
