"""Facts that change: what was kept first, what was kept later, and a question that asks for what holds now.

In four languages, written before there were rules for them. Every second one of each language is `BLIND`: rules were
made by looking at the others alone.
"""

from __future__ import annotations

from typing import NamedTuple


class Change(NamedTuple):
    """One fact: its first statement, the one that replaced it, and who asks for it how."""

    older: str
    newer: str
    question: str


_ENGLISH = (
    Change("The standup is at 9:30", "The standup is now at 10:15", "When is the standup?"),
    Change("Ana's phone number is 555-1234", "Ana has a new phone number: 555-9876", "What is Ana's phone number?"),
    Change("My manager is Petra Novak", "My manager is Omar Haddad", "Who is my manager?"),
    Change(
        "Invoices go to billing@acme.test", "Send invoices to accounts@acme.test from now on", "Where do invoices go?"
    ),
    Change(
        "The staging database runs on db-07",
        "The staging database moved to db-12",
        "Where does the staging database run?",
    ),
    Change("We deploy on Fridays", "Deploys happen on Tuesdays", "When do we deploy?"),
    Change("The rent is 900 euros a month", "The rent went up to 1050 euros", "How much is the rent?"),
    Change("The code of the garage is 4471", "The garage code was changed to 8802", "What is the code of the garage?"),
)
_GERMAN = (
    Change("Das Büro ist in der Lindenstraße 4", "Das Büro ist jetzt in der Hafengasse 19", "Wo ist das Büro?"),
    Change("Mein Hausarzt ist Dr. Weber", "Mein neuer Hausarzt ist Dr. Yilmaz", "Wer ist mein Hausarzt?"),
    Change("Die Müllabfuhr kommt montags", "Die Müllabfuhr kommt ab sofort mittwochs", "Wann kommt die Müllabfuhr?"),
    Change(
        "Das WLAN-Passwort steht auf dem Router", "Das WLAN-Passwort steht im Tresor", "Wo steht das WLAN-Passwort?"
    ),
    Change(
        "Lena trainiert im Verein Blau-Weiß",
        "Lena trainiert nicht mehr bei Blau-Weiß, sondern bei Union",
        "Wo trainiert Lena?",
    ),
    Change(
        "Der Zug nach Kassel fährt um 7:12",
        "Der Zug nach Kassel wurde auf 7:40 verschoben",
        "Wann fährt der Zug nach Kassel?",
    ),
    Change(
        "Unser Steuerberater ist die Kanzlei Brandt",
        "Wir sind zur Kanzlei Sommer gewechselt, unser Steuerberater heißt Kurz",
        "Wer ist unser Steuerberater?",
    ),
)
_SPANISH = (
    Change(
        "La reunión del equipo es los lunes",
        "La reunión del equipo pasó a los jueves",
        "¿Cuándo es la reunión del equipo?",
    ),
    Change(
        "El código de la alarma es 1133", "El nuevo código de la alarma es 7090", "¿Cuál es el código de la alarma?"
    ),
    Change("Marta vive en Sevilla", "Marta se mudó a Valencia", "¿Dónde vive Marta?"),
    Change(
        "El proveedor de café es Tostados Ruiz",
        "El proveedor de café es ahora La Molienda",
        "¿Quién es el proveedor de café?",
    ),
    Change(
        "Las facturas se pagan a treinta días",
        "Las facturas se pagan a sesenta días",
        "¿A cuántos días se pagan las facturas?",
    ),
    Change("El gato come pienso de pollo", "El gato ya no come pollo, come pienso de salmón", "¿Qué come el gato?"),
    Change(
        "La contraseña del taller la guarda Iván",
        "La contraseña del taller la guarda Nuria",
        "¿Quién guarda la contraseña del taller?",
    ),
    Change(
        "El autobús de la escuela para en la plaza",
        "El autobús de la escuela para frente al mercado",
        "¿Dónde para el autobús de la escuela?",
    ),
)
_JAPANESE = (
    Change("本社は渋谷にあります", "本社は品川に移転しました", "本社はどこですか"),
    Change("担当者は田中さんです", "担当者は佐藤さんに変わりました", "担当者は誰ですか"),
    Change("定例会議は月曜日の10時です", "定例会議は水曜日の14時です", "定例会議はいつですか"),
    Change(
        "由紀さんの好きな飲み物は紅茶です", "由紀さんの好きな飲み物は今は緑茶です", "由紀さんの好きな飲み物は何ですか"
    ),
    Change("倉庫の鍵の番号は3308です", "倉庫の鍵の新しい番号は5521です", "倉庫の鍵の番号は何ですか"),
    Change("犬の薬は一日二回です", "犬の薬は一日一回になりました", "犬の薬は一日何回ですか"),
    Change("締め切りは金曜日です", "締め切りは来週の火曜日に延びました", "締め切りはいつですか"),
)

ALL = (*_ENGLISH, *_GERMAN, *_SPANISH, *_JAPANESE)
BLIND = tuple(change for language in (_ENGLISH, _GERMAN, _SPANISH, _JAPANESE) for change in language[1::2])
SEEN = tuple(change for change in ALL if change not in BLIND)
