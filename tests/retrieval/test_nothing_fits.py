"""A question that nothing remembered fits finds nothing, however it is wrapped and in whatever language."""

from __future__ import annotations

import pytest

from myria.index import Corpus, Doc, LooseBlock
from myria.index.vectors import Near, VectorRows
from myria.search.plan import meaning
from myria.search.question import Question
from myria.search.ranking import rank
from tests.retrieval.test_vectors import vector

MINUTE = 60_000_000
NOTE = "myria.note"

ANA = [
    "Ana's dog is called Rex.",
    "Ana lives in Porto.",
    "Ana plays the cello.",
    "Ana likes tea.",
    "Ana works at a bakery.",
    "Ana's sister is Lea.",
    "Ana prefers trains.",
    "Ana moved from Berlin in 2021.",
    "Ana follows a vegan diet.",
    "Ana was born in May.",
    "Ana has two cats.",
    "Ana runs every Sunday.",
    "Ana speaks Dutch.",
    "Ana is allergic to nuts.",
]

KITCHEN = [
    "Pancakes need two eggs and 250 g of flour.",
    "I like dark mode.",
    "Nico is vegetarian.",
    "We went to Queenstown in May.",
    "The laptop has 16 GB of memory.",
    "Lena, as noted in the list, knows everything about trains.",
]

ELSEWHERE = {
    "German": ("Der Kuchen braucht drei Eier und Mehl.", "Ich mag meinen Garten.", "Wir waren im Mai in Wien."),
    "French": ("Le gâteau demande trois œufs.", "J'aime mon jardin.", "Nous étions à Vienne en mai."),
    "Spanish": ("El pastel lleva tres huevos.", "Me gusta mi jardín.", "Estuvimos en Viena en mayo."),
    "Portuguese": ("O bolo leva três ovos.", "Gosto do meu jardim.", "Estivemos em Viena em maio."),
    "Italian": ("La torta vuole tre uova.", "Mi piace il mio giardino.", "Siamo stati a Vienna a maggio."),
    "Dutch": ("De taart heeft drie eieren nodig.", "Ik hou van mijn tuin.", "We waren in mei in Wenen."),
    "Swedish": ("Kakan behöver tre ägg.", "Jag gillar min trädgård.", "Vi var i Wien i maj."),
    "Polish": ("Ciasto wymaga trzech jajek.", "Lubię mój ogród.", "Byliśmy w maju w Wiedniu."),
    "Turkish": ("Kek için üç yumurta lazım.", "Bahçemi seviyorum.", "Mayıs ayında Viyana'daydık."),
    "Russian": ("Для торта нужны три яйца.", "Мне нравится мой сад.", "Мы были в Вене в мае."),
    "Ukrainian": ("Для торта потрібні три яйця.", "Мені подобається мій сад.", "Ми були у Відні у травні."),
    "Greek": ("Το κέικ θέλει τρία αυγά.", "Μου αρέσει ο κήπος μου.", "Ήμασταν στη Βιέννη τον Μάιο."),
    "Arabic": ("تحتاج الكعكة إلى ثلاث بيضات.", "أحب حديقتي.", "كنا في فيينا في مايو."),
    "Persian": ("کیک سه تخم مرغ می‌خواهد.", "ما در ماه مه در وین بودیم."),
    "Hindi": ("केक में तीन अंडे लगते हैं।", "मुझे बगीचा पसंद है।", "हम मई में वियना में थे।"),
    "Hebrew": ("העוגה צריכה שלוש ביצים.", "היינו בווינה במאי."),
    "Vietnamese": ("Bánh cần ba quả trứng.", "Chúng tôi ở Vienna vào tháng năm."),
    "Indonesian": ("Kue itu butuh tiga telur.", "Saya suka taman.", "Kami di Wina pada bulan Mei."),
    "Chinese": ("蛋糕需要三个鸡蛋。", "孩子们在桌子旁边写作业。", "我们五月去了维也纳。", "我的猫是橘色的。"),
    "Japanese": ("ケーキには卵が三つ必要です。", "私たちは五月にウィーンにいました。", "猫の名前はタマです。"),
    "Korean": ("케이크에는 달걀 세 개가 필요합니다.", "우리는 오월에 빈에 있었어요.", "고양이 이름은 나비입니다."),
    "Thai": ("เค้กต้องใช้ไข่สามฟอง", "เราอยู่ที่เวียนนาในเดือนพฤษภาคม"),
}


def _memory(*texts: str, type_: str | None = NOTE) -> Corpus:
    docs = [
        Doc.of_payload({"text": text}, event_seq=seq, timestamp=seq * MINUTE, channel="chat", type=type_)
        for seq, text in enumerate(texts, 1)
    ]
    return Corpus(participants=("me",), tail=LooseBlock().extended(docs))


def _found(question: str, *texts: str, type_: str | None = NOTE) -> list[str]:
    ranking = rank(Question(text=question), _memory(*texts, type_=type_))
    return [texts[hit.event_seq - 1] for hit in ranking.hits]


@pytest.mark.parametrize("type_", [NOTE, "message"])
@pytest.mark.parametrize(
    "question",
    [
        "aubergines?",
        "Do I like aubergines?",
        "search my memory for aubergines",
        "Can you search through your memories for aubergines?",
        "Please check whether aubergines are mentioned anywhere",
        "What do you remember about aubergines?",
        "Tell me everything you know about aubergines.",
        "Is there a note on aubergines?",
        "Have I ever mentioned aubergines?",
        "Remind me what I said about aubergines",
        "Do we have any information on aubergines? Look it up.",
        "zebra",
        "What is the zebra's name?",
    ],
)
def test_what_was_never_told_is_not_found(question: str, type_: str) -> None:
    """Words that only ask find nothing, and neither do words that only mean something near to those asked for."""
    assert _found(question, *KITCHEN, ANA[8], type_=type_) == []


@pytest.mark.parametrize(
    ("language", "question"),
    [
        ("German", "Durchsuche bitte mein Gedächtnis nach Auberginen"),
        ("German", "Was weißt du über Auberginen?"),
        ("German", "Mag ich Auberginen?"),
        ("French", "Cherche dans ma mémoire les aubergines"),
        ("French", "Est-ce que j'aime les aubergines ?"),
        ("Spanish", "Busca en mi memoria las berenjenas"),
        ("Spanish", "¿Me gustan las berenjenas?"),
        ("Portuguese", "O que você lembra sobre berinjelas?"),
        ("Italian", "Dimmi cosa sai sulle melanzane"),
        ("Dutch", "Zoek in mijn geheugen naar aubergines"),
        ("Swedish", "Vad minns du om auberginer?"),
        ("Polish", "Powiedz mi, co wiesz o bakłażanach"),
        ("Turkish", "Hafızamda patlıcan hakkında ne hatırlıyorsun?"),
        ("Russian", "Поищи в моей памяти баклажаны"),
        ("Russian", "Мне нравятся баклажаны?"),
        ("Ukrainian", "Що ти пам'ятаєш про баклажани?"),
        ("Greek", "Ψάξε στη μνήμη μου για μελιτζάνες"),
        ("Arabic", "ابحث في ذاكرتي عن الباذنجان"),
        ("Persian", "در حافظه من بادمجان را جستجو کن"),
        ("Hindi", "बैंगन के बारे में क्या याद है?"),
        ("Hebrew", "מה אתה זוכר על חצילים?"),
        ("Vietnamese", "Tìm trong trí nhớ của tôi về cà tím"),
        ("Indonesian", "Apa yang kamu ingat tentang terong?"),
        ("Chinese", "搜索我的记忆里有没有茄子"),
        ("Chinese", "我喜欢茄子吗?"),
        ("Japanese", "茄子について私の記憶を検索して"),
        ("Japanese", "ナスについて教えてください"),
        ("Korean", "내 기억에서 가지를 검색해줘"),
        ("Korean", "가지에 대해 무엇을 기억하나요?"),
        ("Thai", "ค้นหาความทรงจำของฉันเกี่ยวกับมะเขือยาว"),
    ],
)
def test_requests_in_other_languages_are_no_terms(language: str, question: str) -> None:
    """In every language that the analysis knows, a request finds nothing by the words that make it a request."""
    assert _found(question, *ELSEWHERE[language]) == []


@pytest.mark.parametrize(
    ("language", "question", "answer"),
    [
        ("German", "Was weißt du über den Kuchen?", 0),
        ("French", "Que sais-tu du gâteau ?", 0),
        ("Spanish", "¿Qué sabes del pastel?", 0),
        ("Russian", "Что ты знаешь о торте?", 0),
        ("Ukrainian", "Що ти знаєш про торта?", 0),
        ("Arabic", "ماذا تعرف عن الكعكة؟", 0),
        ("Hebrew", "מה אתה יודע על העוגה?", 0),
        ("Chinese", "你知道蛋糕的什么?", 0),
        ("Chinese", "我的猫叫什么名字", 3),
        ("Japanese", "猫の名前は何ですか", 2),
        ("Korean", "고양이 이름이 뭐야?", 2),
        ("Thai", "คุณรู้อะไรเกี่ยวกับเค้ก", 0),
    ],
)
def test_what_is_asked_for_within_a_request_is_found(language: str, question: str, answer: int) -> None:
    """The thing asked for is found, and nothing else."""
    texts = ELSEWHERE[language]
    assert _found(question, *texts) == [texts[answer]]


def test_a_request_word_may_be_what_is_told() -> None:
    """Beside other words it counts, and alone it is what is asked for."""
    assert _found("How much memory does the laptop have?", *KITCHEN) == [KITCHEN[4]]
    assert _found("Tell me about Nico", *KITCHEN) == [KITCHEN[2]]


@pytest.mark.parametrize("question", ["What do you remember?", "Tell me everything you know about me.", "你记得什么?"])
def test_a_question_for_nothing_in_particular_gives_the_most_recent(question: str) -> None:
    """Who asks for what is remembered at all gets what there is, the newest first."""
    assert _found(question, *KITCHEN) == KITCHEN[::-1]


@pytest.mark.parametrize(
    "question",
    [
        "What is Ana's mother's name?",
        "what is ana's mother's name",
        "When did Ana break her arm?",
        "Do you remember which car Ana drives?",
        "Tell me about the wedding of Ana.",
    ],
)
def test_a_name_that_most_texts_hold_is_not_what_is_asked_for(question: str) -> None:
    """Texts about Ana that say nothing of her mother are no answer; nor does "sister" answer for "mother"."""
    assert _found(question, *ANA) == []
    assert _found(question, *ANA, type_="message") == []
    assert _found(question, *ANA, *KITCHEN, *KITCHEN, *KITCHEN) == []


@pytest.mark.parametrize(
    "question",
    ["what do you know of Ana?", "Ana", "Who is Ana?", "Tell me about Ana", "What do you remember about Ana?"],
)
def test_who_asks_for_a_person_gets_all_of_them(question: str) -> None:
    """Where the name is the whole question, all that names them is an answer."""
    assert sorted(_found(question, *ANA, *KITCHEN)) == sorted(ANA)


def test_a_name_beside_what_is_told_finds_that_alone() -> None:
    """Of notes, those that hold more than the name are hits."""
    assert "Ana has two cats." not in _found("Where does Ana's sister live?", *ANA)
    assert _found("Which diet does Ana follow?", *ANA) == ["Ana follows a vegan diet."]


@pytest.mark.parametrize(
    ("question", "told"),
    [
        ("Where does Zoe live?", "Zoe lives in Porto."),
        ("When does Zoe leave?", "Zoe leaves at noon."),
        ("Was isst Zoe?", "Zoe aß am liebsten Linsen."),
        ("Wann hat Zoe den Kater getroffen?", "Zoe traf den Tierarzt."),
        ("Où vit Zoe ?", "Zoe habite à Brest."),
        ("Qu'est-ce que Zoe veut boire ?", "Zoe boit du thé."),
        ("¿A qué jugaba Zoe?", "Zoe juega al ajedrez."),
        ("Wo wuchs Zoe auf?", "Zoe ist in Lima aufgewachsen."),
        ("¿Qué se ha roto Zoe?", "Zoe se rompió la muñeca."),
        ("Quand Zoe est-elle sortie ?", "Zoe sort le lundi."),
        ("¿Dónde vive Zoe?", "Zoe se ha mudado a Bilbao."),
        ("Где жила Зоя?", "Зоя живёт в Твери."),
        ("Где живёт Зоя?", "Зоя переехала в Самару."),
        ("Что Зоя покупает?", "Зоя купила тандем."),
        ("小明住在哪里？", "小明搬到苏州了。"),
        ("健太はどこに住んでいますか？", "健太は京都に引っ越しました。"),
    ],
)
def test_a_verb_in_another_form_is_a_word_of_the_question(question: str, told: str) -> None:
    """Else what is known of somebody is denied where everything names them, since the name alone is no answer."""
    others = ["Zoe has two cats.", "Zoe's brother paints.", "Зоя поёт.", "小明喜欢下棋。", "健太は将棋が好きです。"]
    assert _found(question, *others, told)[:1] == [told]


@pytest.mark.parametrize(
    ("question", "told"),
    [
        ("cheval", "Mes voisins élèvent des chevaux."),
        ("journal", "Les journaux arrivent vers midi."),
        ("amelie", "Le médecin d'Amélie s'appelle Roussel."),
        ("schwester Kiel", "Meine Schwestern sind in Kiel."),
        ("hermana", "Mis hermanas trabajan en un hospital."),
        ("kiln", "We bought two kilns."),
    ],
)
def test_a_word_alone_is_found_in_any_language(question: str, told: str) -> None:
    """It says nothing of its own language, so that of the texts counts."""
    assert _found(question, "Der Ofen ist laut.", "Il pleut à Brest.", "El coche no anda.", told) == [told]


@pytest.mark.parametrize(
    ("question", "told"),
    [
        ("Such in meinem Gedächtnis nach Auberginen", "Die Großmutter meines Freundes wohnt in Görlitz."),
        ("Erinnerst du dich an meinen Zahnarzt?", "Der Hund meiner Tante bellt."),
        ("鈴木さんの電話番号は？", "田中さんは京都に住んでいます。"),
        ("Кому звонила бабушка?", "Кому-то понравился суп."),
        ("Что ты знаешь о моей машине?", "У моей сестры двое детей."),
        ("¿Alguien llamó?", "Alguien pintó la puerta."),
    ],
)
def test_words_that_only_point_are_nothing_in_common(question: str, told: str) -> None:
    """Whose it is, in any case, and how somebody is addressed are no subject."""
    assert _found(question, told) == []


def test_a_thing_that_every_text_holds_is_found_with_words_that_are_new() -> None:
    """Only names of people are held back: everything here is about the kiln, and so may be the answer."""
    texts = ["The kiln was mended on Monday.", "The kiln is loud.", "Ben fires the kiln."]
    assert sorted(_found("When was the kiln repaired?", *texts)) == sorted(texts)


def test_what_stands_around_an_answer_is_found_in_talk_and_not_among_notes() -> None:
    """A turn may be answered by the next one; a note stands for itself."""
    texts = ["Which glaze did you take?", "The blue one."]
    assert set(_found("Which glaze was it?", *texts, type_="message")) == set(texts)
    assert _found("Which glaze was it?", *texts) == texts[:1]


def _by_meaning(question: str, *cosines: float, least: int | None = None) -> list[int]:
    corpus = _memory(*["text of its own"] * len(cosines))
    rows = [(seq, vector(cosine, (1 - cosine * cosine) ** 0.5)) for seq, cosine in enumerate(cosines, 1)]
    near = Near(question=vector(1.0), documents=VectorRows.of(rows, 8), least=least)
    return [hit.event_seq for hit in rank(Question(text=question), corpus, near=near).hits]


def test_without_a_word_only_what_is_near_is_found() -> None:
    """What stands out among unrelated texts, but is far from the question, is no answer."""
    assert _by_meaning("quantum physics", 0.29, 0.1, 0.05, -0.02, 0.0, 0.08) == []
    assert _by_meaning("quantum physics", 0.62, 0.1, 0.05, -0.02, 0.0, 0.08) == [1]


def test_a_common_name_is_taken_out_of_what_is_compared_by_meaning() -> None:
    """Else the vector of a question about somebody's mother is near to all that is told of them."""
    assert meaning(Question(text="What is Ana's mother's name?"), _memory(*ANA)) == "What is mother's name?"
    assert meaning(Question(text="What do you know of Ana?"), _memory(*ANA)) == "What do you know of Ana?"


@pytest.mark.parametrize("type_", [NOTE, "message"])
@pytest.mark.parametrize(
    ("question", "cosine", "is_answered"),
    [
        ("Which insurer pays for broken laptop hinges?", 0.05, False),
        ("Which insurer pays for broken laptop hinges?", 0.3, True),
        ("Which laptop insurer?", 0.05, True),
        ("How much memory has the laptop?", 0.05, True),
        ("What was said of the laptop on 3 May by the broken insurer of hinges?", 0.05, True),
    ],
)
def test_a_few_words_of_many_answer_only_what_is_near_in_meaning(
    question: str, cosine: float, is_answered: bool, type_: str
) -> None:
    """The share of the words that are held and the nearness count together; a day that is asked for is more than both.

    Of a text that has no vector yet nothing is known, and it is shown.
    """
    corpus = _memory(*KITCHEN, type_=type_)
    nearest = vector(cosine, (1 - cosine * cosine) ** 0.5)
    rows = [(seq, nearest if seq == 5 else vector(0.0, 1.0)) for seq in range(1, len(KITCHEN) + 1)]
    near = Near(question=vector(1.0), documents=VectorRows.of(rows, 8))
    assert bool(rank(Question(text=question), corpus, near=near).hits) == is_answered
    without = Near(question=vector(1.0), documents=VectorRows.of(rows[:4], 8))
    assert rank(Question(text=question), corpus, near=without).hits
