"""Forms of everyday verbs that no stemmer brings together: "isst" and "gegessen", "vit" and "vécu", "juega" and "jugó".

Nor does it bring together "live" and "lives", which is a noun, too. The words for where somebody lives and for moving
there are one group: they answer the same question. A group's words stand in for each other in questions of its
language; texts are indexed as they are. Fixed and short, like `related`: other verbs are found by their stems alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Final

from myria.text.words import terms

_ENGLISH: Final = "english"

_GROUPS: Final = {
    _ENGLISH: """
live lives
leave leaves
""",
    "german": """
wohnt wohne wohnen wohnst wohnte wohnten gewohnt wohnhaft lebt lebe leben lebte gelebt umgezogen gezogen zieht zog
isst esse essen iss aß aßen gegessen
trinkt trinke trinken trank tranken getrunken
fährt fahre fahren fuhr fuhren gefahren abgefahren
spricht spreche sprechen sprach sprachen gesprochen
liest lese lesen las lasen gelesen
trifft treffe treffen traf trafen getroffen
nimmt nehme nehmen nahm nahmen genommen
hilft helfe helfen half halfen geholfen
geht gehe gehen ging gingen gegangen
kommt komme kommen kam kamen gekommen
sieht sehe sehen sah sahen gesehen
schläft schlafe schlafen schlief geschlafen
trägt trage tragen trug getragen
schreibt schreibe schreiben schrieb geschrieben
heißt heiße heißen hieß geheißen
bringt bringe bringen brachte gebracht
denkt denke denken dachte gedacht
singt singe singen sang gesungen
schwimmt schwimme schwimmen schwamm geschwommen
findet finde finden fand gefunden
verliert verliere verlieren verlor verloren
beginnt beginne beginnen begann begonnen
läuft laufe laufen lief gelaufen
lässt lasse lassen ließ gelassen
wirft werfe werfen warf geworfen
vergisst vergesse vergessen vergaß
bäckt backt backe backen buk gebacken
liegt liege liegen lag gelegen
sitzt sitze sitzen saß gesessen
steht stehe stehen stand gestanden
bricht breche brechen brach gebrochen
wächst wachsen wuchs wuchsen gewachsen aufgewachsen
stirbt sterben starb starben gestorben
fliegt fliege fliegen flog flogen geflogen
leiht leihe leihen lieh geliehen
verspricht verspreche versprechen versprach versprochen
bekommt bekomme bekommen bekam bekamen
kennt kenne kennen kannte gekannt
weiß wissen wusste gewusst
ruft rufe rufen rief gerufen angerufen
gewinnt gewinne gewinnen gewann gewonnen
fängt fange fangen fing gefangen angefangen
schneidet schneide schneiden schnitt geschnitten
wäscht wasche waschen wusch gewaschen
""",
    "french": """
habite habites habitent habitez habiter habitait habité vit vis vivent vivez vivre vivait vécu déménagé déménage
boit bois boivent buvait boire bu
part pars partent partir partait
prend prends prennent prendre prenait pris
vient viens viennent venir venait venu venue
tient tiens tiennent tenir tenait tenu
dort dors dorment dormir dormait dormi
lit lis lisent lire lisait lu
écrit écris écrivent écrire écrivait
peint peins peignent peindre peignait
apprend apprends apprennent apprendre appris
vend vends vendent vendre vendait vendu
perd perds perdent perdre perdu
met mets mettent mettre mis
reçoit reçois reçoivent recevoir reçu
voit vois voient voir voyait vu
court cours courent courir courait couru
conduit conduis conduisent conduire conduisait
craint crains craignent craindre
achète achètes achètent acheter achetait acheté
appelle appelles appellent appeler appelait appelé
offre offrent offrir offert
ouvre ouvrent ouvrir ouvert
choisit choisis choisir choisi
meurt meurent mourir mort morte
promet promets promettre promis
connaît connais connaître connu
sort sors sortent sortir sorti sortie
""",
    "spanish": """
vive vivo vives viven vivir vivía vivían vivió vivido reside mudado mudó mudé mudaron mudarse trasladó trasladado
juega juego juegan jugar jugaba jugó jugado
duerme duermo duermen dormir dormía durmió dormido
empieza empiezo empiezan empezar empezaba empezó empezado
pierde pierdo pierden perder perdía perdió perdido
vuelve vuelvo vuelven volver volvía volvió vuelto
conduce conduzco conducen conducir conducía condujo
prefiere prefiero prefieren preferir prefería prefirió
pide pido piden pedir pedía pidió pedido
cuesta cuestan costar costaba costó
muere mueren morir murió muerto
escribe escribo escribir escribía escribió escrito
lee leo leen leer leía leyó leído
viene vengo vienen venir venía vino venido
trae traigo traen traer traía trajo traído
pone pongo ponen poner ponía puso puesto
sale salgo salen salir salía salió salido
cierra cierro cierran cerrar cerraba cerró cerrado
piensa pienso piensan pensar pensaba pensó
abre abro abren abrir abrió abierto
sigue sigo siguen seguir seguía siguió
rompe rompo rompen romper rompía rompió roto rota
encuentra encuentro encuentran encontrar encontró encontrado
elige elijo eligen elegir eligió elegido
cuenta cuento cuentan contar contó contado
almuerza almuerzo almorzar almorzó almorzado
vuela vuelo vuelan volar volaba voló
""",
    "russian": """
живёт живу живёшь живут живём жил жила жили жить проживает переехал переехала переехали переезжает переезд
ест ем едят ел ела ели съел съела поел
пьёт пью пьют пил пила пить выпил выпила
едет еду едут ехал ехала ехать поехал поехала уехал уехала уезжает уезжать приехал приехала приезжает
идёт иду идут шёл шла шли идти пошёл пошла ушёл ушла уходит
покупает покупаю покупать купил купила купили купить куплю
продаёт продаю продавать продал продала продали продать
пишет пишу писать писал писала написал написала
берёт беру брать брал брала взял взяла взять
говорит говорю говорить сказал сказала сказать
играет играю играл играла играть сыграл сыграла
рисует рисую рисовал рисовала рисовать нарисовал нарисовала
пришёл пришла приходит приходить прийти
начинает начинается начал начала начался началась начинать начать
кончается заканчивается закончился закончилась закончил закончила
теряет терял потерял потеряла потерять
находит нашёл нашла нашли найти
родился родилась родились рождён
спит сплю спал спала спать
боится боюсь боялся боялась бояться
""",
}

_UNSPACED: Final = (
    ("住", "居住", "搬到", "搬家", "搬去", "引っ", "転居", "移住"),
    ("살고", "살아", "삽니", "사는", "이사"),
)
"""Groups of verb stems in scripts whose words cannot be told apart by spaces alone."""


def verb_forms(term: str, languages: Sequence[str]) -> tuple[str, ...]:
    """Return the terms of the other forms of a verb, in a fixed order; none for most terms.

    Args:
        term: as `myria.text.terms` returns it.
        languages: those that the question may be in beside English; where there are none, it may be in any ("was isst
            Uwe" is too short to tell).
    """
    groups = (_other_forms(language).get(term, ()) for language in (_ENGLISH, *(languages or _GROUPS)))
    return tuple(dict.fromkeys(form for forms in groups for form in forms))


@cache
def _other_forms(language: str) -> dict[str, tuple[str, ...]]:
    groups = [tuple(dict.fromkeys(terms(line))) for line in _GROUPS.get(language, "").split("\n")]
    if language == _ENGLISH:
        groups += _UNSPACED
    return {term: tuple(form for form in group if form != term) for group in groups for term in group}
