"""Five languages and two more: what is said in each is found by its own forms of a word, and told in lines."""

from __future__ import annotations

from tests.golden.replay import Golden

COMMANDS = (("verify",), ("show", "--json", "--summaries"), ("export",))

_SAID = {
    "en": (
        "We moved the meeting with the bakery to Thursday at nine.",
        "The baker's daughters were running the stall last weekend.",
        "I'd rather drink tea; coffee keeps me awake.",
        "My new address is 12 Mill Lane, the old one was in Harbour Street.",
        "Tomorrow I will call the dentist about the broken tooth.",
    ),
    "de": (
        "Der Termin bei der Zahnärztin wurde auf Dienstag, den 24. März, verschoben.",
        "Die Kinder haben die Äpfel in den großen Körben gesammelt.",
        "Ich trinke lieber Tee als Kaffee, außer sonntags.",
        "Unsere Straßenbahnhaltestelle wird im Sommer umgebaut.",
        "Gestern sind wir mit den Fahrrädern bis nach Lübeck gefahren.",
    ),
    "pt": (
        "A reunião com a padaria ficou para quinta-feira às nove.",
        "As crianças não quiseram comer as maçãs que colhemos.",
        "Prefiro chá a café; o café tira-me o sono.",
        "A minha nova morada é Rua do Moinho, 12.",
        "Amanhã vou ligar ao dentista por causa do dente partido.",
    ),
    "ru": (
        "Встречу с пекарней перенесли на четверг, на девять утра.",
        "Дети собирали яблоки в большие корзины.",
        "Я предпочитаю чай, а не кофе.",
        "Мой новый адрес: улица Мельничная, дом 12.",
        "Завтра позвоню зубному врачу насчёт сломанного зуба.",
    ),
    "ja": (
        "パン屋との打ち合わせは木曜日の九時に変更になりました。",
        "子どもたちは大きなかごにりんごを集めました。",
        "コーヒーよりお茶のほうが好きです。",
        "新しい住所は水車通り十二番地です。",
        "明日、折れた歯のことで歯医者に電話します。",
    ),
    "ar": (
        "تم تأجيل الاجتماع مع المخبز إلى يوم الخميس الساعة التاسعة.",
        "أفضل الشاي على القهوة.",
    ),
    "zh": (
        "和面包店的会议改到星期四上午九点。",
        "我喜欢喝茶，不喜欢咖啡。",
    ),
}
_ASKED = (
    *("When is the meeting with the bakery?", "what do I drink", "new address", "dentist", "runs the stall"),
    *(
        "Wann ist der Termin bei der Zahnärztin?",
        "Apfel Korb",
        "Fahrrad fahren",
        "Strassenbahn",
        "Was trinke ich gern?",
    ),
    *("Quando é a reunião?", "maçã criança", "morada nova", "dentes"),
    *("Когда встреча?", "яблоко корзина", "какой у меня адрес", "зубы"),
    *("打ち合わせはいつですか", "りんご", "住所", "好きな飲み物"),
    *("متى الاجتماع؟", "الشاي", "会议什么时候", "喝茶"),
)


async def play(golden: Golden) -> None:
    """Keep each language's sentences on a day of its own, and ask in all of them."""
    events = [
        {
            "timestamp": f"2026-03-{10 + day:02}T{8 + place:02}:30:00+0{day % 4}:00",
            "channel": f"chat-{language}",
            "participants": ["noor", "lena"],
            "payload": {"text": text, "speaker": "noor" if place % 2 else "lena", "lang": language},
            "source_event_key": f"{language}:{place}",
        }
        for day, (language, texts) in enumerate(_SAID.items())
        for place, text in enumerate(texts)
    ]
    await golden.tool("myria_append_events", events=events[:18])
    await golden.build()
    await golden.tool("myria_append_events", events=events[18:])
    await golden.build()
    for query in _ASKED:
        asked = {"participants": ["noor"], "query": query, "now": "2026-03-16T20:00:00Z"}
        await golden.tool("myria_query_event_nodes", **asked, limit=2, format="text")
    for query in ("Was war gestern?", "o que aconteceu ontem", "что было вчера", "昨日", "last Friday", "am 12. März"):
        asked = {"participants": ["noor"], "query": query, "now": "2026-03-13T20:00:00Z"}
        await golden.tool("myria_query_event_nodes", **asked, limit=3, format="text")
    for language in _SAID:
        await golden.tool(
            "myria_query_references", participants=["lena"], channel=f"chat-{language}", max_nodes=5, format="text"
        )
    for texts in _SAID.values():
        await golden.tool("remember", content=texts[min(2, len(texts) - 1)], agentId="polyglot")
    for query in ("tea or coffee", "Tee oder Kaffee", "chá", "чай", "お茶", "الشاي", "茶"):
        await golden.tool("recall", text=query, agentId="polyglot", pageSize=2)
