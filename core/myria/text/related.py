"""Words that people swap for one another when they ask about what somebody said.

A small, fixed, general thesaurus of everyday English: each line is a group whose members stand in for each other,
at a discount the ranking sets. It widens questions only; texts are indexed as they are. Groups are short on purpose:
a wrong neighbour costs more than a missing one (Voorhees, "Query expansion using lexical-semantic relations", 1994).
"""

from __future__ import annotations

from myria.text.words import terms

_GROUPS = """
kid child son daughter
baby newborn infant
mom mother mum mommy
dad father daddy
parent mom dad mother father
grandma grandmother granny nana
grandpa grandfather granddad
spouse husband wife partner
sister sibling
brother sibling
girlfriend partner
boyfriend partner
family relative
friend buddy pal mate
colleague coworker teammate
boss manager supervisor
neighbor neighbour
picture photo pic image photograph
video clip recording
movie film cinema
show series episode
book novel
author writer
story tale
song music track tune
band group
concert gig
painting drawing artwork art
job work career profession occupation
company firm business employer
meeting appointment call
project task
deadline due
salary pay wage
money cash fund
cost price fee expense
raise fundraise
cheap affordable
dog puppy pup pet
cat kitten kitty pet
pet animal
car vehicle automobile
bike bicycle cycling
bus train transport
plane flight
trip travel journey vacation holiday
hotel accommodation
doctor doc physician
hospital clinic er
medicine medication drug
ill sick illness sickness disease
injury hurt injure
pain ache
health healthy wellness
diet nutrition
exercise workout fitness gym train
run jog
hike hiking trail trek
swim pool
hobby activity pastime interest
game gaming video
tournament tourney competition contest
team club squad
match game
award prize medal trophy
gift present
party celebration celebrate
birthday bday
wedding marry marriage
divorce separate breakup
house home place
apartment flat
room bedroom
furniture couch sofa
garden yard
move relocate
city town
country nation
beach ocean sea coast
mountain hill peak
forest wood
weather rain storm
food meal dish cuisine
lunch dinner meal
breakfast brunch
snack sweet candy treat
dessert cake pastry
cook recipe
bake pastry
restaurant diner cafe
drink beverage
coffee cafe
fruit berry
begin start
finish complete end
stop quit
buy purchase
get receive
sell sale
fix repair
build create make
assist help support
aid help
recommend suggest recommendation suggestion
advise advice tip
describe say mention
discuss talk chat
tell inform
ask request
decide decision
choose pick select
plan intend
hope wish
want desire
need require
like enjoy love
favorite favourite fave
hate dislike
visit go
attend go join
sign join enroll register
participate join
volunteer charity
donate donation
church faith religion religious
school college university
education edu school study
class course lesson
exam test
degree diploma
teacher instructor professor
student pupil
learn study
research study investigate
happy glad joy
sad upset unhappy
angry mad
afraid scare fear
worry anxious anxiety
stress pressure
relax unwind calm chill
tired exhausted
proud pride
surprise shock
inspire motivate
difficult hard tough challenge
easy simple
big large huge
small little tiny
beautiful pretty gorgeous
funny hilarious
new recent
old former
phone mobile cell
computer laptop pc
photo camera
app application software
bug issue problem error
issue problem trouble
accident crash
police cop
shop store
clothes outfit
shoe sneaker
jewelry necklace ring bracelet
instrument guitar piano violin
dance dancing
yoga meditation
skill ability
goal aim objective
dream ambition
idea thought
memory remember
opinion view
lgbtq lgbt queer
transgender trans
apartment apt
university uni
boyfriend bf
girlfriend gf
favorite fav
weekend wknd
year yr
week wk
hour hr
minute min
information info
vegetarian veggie
refrigerator fridge
temperature temp
laboratory lab
mathematics math maths
biology bio
psychology psych
video vid
application app
professor prof
dormitory dorm
phone cell mobile
television tv telly
motorcycle motorbike
advertisement ad
influenza flu
veterinarian vet
christmas xmas
parent folks
barbecue bbq
pajamas pjs
dollar buck
pound quid
euro eur
kilometer km
kilogram kg kilo
champion champ
graduation grad graduate
homework hw assignment
friend bestie bff
trip vacay
message text dm
photo selfie
"""


def _table() -> dict[str, tuple[str, ...]]:
    others_by_term: dict[str, dict[str, None]] = {}
    for line in _GROUPS.split("\n"):
        group = list(dict.fromkeys(term for word in line.split() for term in terms(word)))
        for term in group:
            others_by_term.setdefault(term, {}).update(dict.fromkeys(other for other in group if other != term))
    return {term: tuple(others) for term, others in others_by_term.items()}


_RELATED = _table()


def related(term: str) -> tuple[str, ...]:
    """Return the terms that may stand in for a term, in a fixed order; none for most."""
    return _RELATED.get(term, ())
