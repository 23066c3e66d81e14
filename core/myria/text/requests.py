"""Words by which people ask a memory, and that are no subject of a question: "search my memory for", "tell me about".

A text that holds nothing else of a question is not about it. They still count where a text holds more: "what does
the note on the fridge say?" may well be answered by a note. In scripts without spaces they are taken out of the text
of the question, since what is left between them is what it asks for, and so are English phrases about the talk itself
("did I mention", "in our last chats"), none of whose words is to be found. Fixed lists, never learnt.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import cache
from typing import Final

from myria.text.function_words import FUNCTION_WORDS
from myria.text.words import is_stopword, terms

_WORDS: Final = {
    "english": """
        search searched searching look looking find found check know known knew remember remembers
        remembered recall recalled memory memories remind show give list retrieve fetch mention mentioned
        mentions stored saved recorded note noted notes anywhere somewhere everything information info details
        wonder wondering name named names kind kinds type types sort sorts""",
    "german": """
        suche such finde find prüfe schau nachsehen sag sage erzähl erzähle weißt weiss erinnere erinnerst
        erinnerung erinnerungen gedächtnis gespeichert gemerkt notiert notiz notizen erwähnt irgendwo zeig
        zeige gib nenne bitte kannst könntest name namen heißt information informationen
        magst gern gerne gefällt gefallen
        meinem meinen meines meiner deinem deinen deines deiner seines ihres unserem unseren unseres unserer
        eurem euren keinem keinen keiner keines diesen diesem wieso weshalb etwas nichts kennst hast wen
        darüber womit worüber wofür""",
    "french": """
        cherche chercher trouve trouver vérifie dis raconte sais savez souviens souvenez rappelle rappelles
        mémoire mémoires souvenir souvenirs noté notes mentionné mentionnée mentionnés quelque part montre
        donne liste nom noms s'il-te-plaît stp svp peux pourrais informations
        j'aime aime aimes aimé qu'est est-ce quelqu'un chose rien avais""",
    "spanish": """
        busca buscar encuentra encontrar mira comprueba revisa di dime cuéntame sabes sabe recuerdas
        recuerda recuerdo memoria memorias recuerdos nota notas guardado mencionado menciona menciono
        muestra muéstrame dame lista nombre nombres favor puedes podrías información
        alguien nadie todas estás hemos tienes vuestro
        gusta gustan""",
    "portuguese": """
        procura procurar busca encontra encontrar verifica diz diga conta conte sabe sabes lembra lembras
        lembrança memória memórias nota notas guardado mencionado mostra mostre dá lista nome nomes favor
        podes pode informação
        gosto gosta gostas gostam""",
    "italian": """
        cerca cercare trova trovare controlla dimmi racconta raccontami sai ricordi ricorda memoria memorie
        ricordo nota note salvato menzionato mostra mostrami dammi elenca nome nomi favore puoi potresti
        informazioni
        piace piacciono""",
    "dutch": """
        zoek vind kijk controleer zeg vertel weet herinner herinnert herinnering herinneringen geheugen
        notitie notities opgeslagen genoemd vermeld ergens toon geef lijst naam namen alsjeblieft kun kunt
        informatie
        leuk lekker hou houd houdt""",
    "swedish": """
        sök hitta kolla berätta säg vet minns minne minnen minnet anteckning anteckningar sparat nämnt nämns
        någonstans visa ge lista namn namnet snälla kan information
        gillar tycker""",
    "polish": """
        szukaj poszukaj wyszukaj znajdź sprawdź powiedz opowiedz wiesz pamiętasz pamięć pamięci wspomnienia
        notatka notatki notatkach zapisane zapisano wspomniano gdzieś pokaż podaj lista imię nazwa proszę
        możesz informacje
        lubię lubi lubisz""",
    "turkish": """
        ara bul bak kontrol et söyle anlat biliyor musun biliyorsun hatırla hatırlıyor hatırlıyorsun hafıza
        hafızam hafızamda hafızanda bellek belleğim not notlar notlarım kayıtlı geçiyor bahsedildi hakkında
        göster ver listele adı ismi isim lütfen bilgi
        seviyor severim sever miyim""",
    "russian": """
        ищи поищи найди найти проверь посмотри скажи расскажи знаешь знаете помнишь помните вспомни память
        памяти воспоминания заметка заметки заметках записано сохранено упоминается упоминаются упомянуто
        покажи дай список имя имени зовут название пожалуйста можешь можете информация
        нравится нравятся люблю любит
        моё моего моей моих моему моим моими твоя твоего твоей твоих своего своей своих нашего нашей кого кому
        кем ком чего чему какого зачем чьё чьи этого этой этом того все всё всех всего мной тобой них себя себе
        обо""",
    "greek": """
        ψάξε βρες έλεγξε πες μου ξέρεις θυμάσαι θυμήσου μνήμη μνήμες σημείωση σημειώσεις αποθηκευμένο
        αναφέρεται δείξε δώσε λίστα όνομα λένε παρακαλώ μπορείς πληροφορίες
        αρέσει αρέσουν""",
    "ukrainian": """
        шукай пошукай знайди перевір скажи розкажи знаєш пам'ятаєш згадай пам'ять пам'яті спогади нотатка
        нотатки записано збережено згадується покажи дай список ім'я звати назва будь ласка можеш інформація
        подобається подобаються люблю""",
    "arabic": """
        ابحث ابحثي جد تحقق قل اخبرني أخبرني تعرف تعلم تتذكر تذكر ذاكرتي ذاكرة الذاكرة ذكريات ملاحظة ملاحظات
        محفوظ مذكور أرني اعطني قائمة اسم فضلك يمكنك معلومات عنها عنه
        أحب احب يحب""",
    "persian": """
        جستجو بگرد پیدا کن بررسی بگو می‌دانی میدانی دانی یادت یاد حافظه خاطره خاطرات یادداشت ذخیره ذکر نشان
        بده فهرست نام اسم لطفا می‌توانی اطلاعات درباره
        دوست دارم دارد""",
    "hindi": """
        खोजो खोजें ढूंढो ढूँढो ढूंढें देखो जांचो बताओ बताइए बताएं जानते पता याद स्मृति यादें नोट नोट्स सहेजा
        ज़िक्र उल्लेख दिखाओ दो सूची नाम कृपया जानकारी बारे
        पसंद""",
    "hebrew": """
        חפש חפשי מצא בדוק ספר ספרי תגיד אמור יודע זוכר זוכרת זיכרון בזיכרון שלי הערה הערות שמור מוזכר הראה
        תן רשימה שם בבקשה תוכל מידע אודות
        אוהב אוהבת""",
    "vietnamese": """
        tìm kiếm tra kiểm xem nói kể biết nhớ nhắc trí ký ức ghi chú lưu đề cập về cho danh sách tên làm ơn
        giúp thể thông tin
        thích""",
    "indonesian": """
        cari carikan temukan periksa cek katakan ceritakan beritahu tahu ingat ingatan memori kenangan
        catatan tersimpan disebut disebutkan tentang tunjukkan berikan daftar nama tolong bisakah informasi
        suka""",
}

_REQUESTS_WITHIN: Final = (
    # Chinese, simplified and traditional
    "我们|你们|他们|她们|我們|你們|他們|什么|什麼|怎么样|怎麼樣|怎么|怎麼|哪里|哪裡|哪儿|哪兒|哪个|哪個|哪些|多少|为什么|為什麼|"
    "搜索一下|搜索|搜寻|搜尋|查找|查一下|查询|查詢|寻找|尋找|找一下|找找|检查|檢查|看看|告诉|告訴|记得|記得|记忆|記憶|回忆|回憶|"
    "记录|記錄|紀錄|笔记|筆記|备忘|備忘|知道|提到过|提到過|提到|提过|提過|说过|說過|存过|保存|关于|關於|有关|有關|是否|有没有|有沒有|"
    "没有|沒有|任何|所有|内容|內容|信息|資訊|事情|名字|叫做|帮我|幫我|可以|请问|請問|里面|裡面|里|裡|"
    "[的了吗嗎呢吧啊呀我你您他她它是在有请請把被就也和跟与與给給对對叫过過这這那几幾谁誰不]|"
    # Japanese
    "について|に関する|に関して|検索して|検索|探して|調べて|教えてください|教えて|覚えています|覚えている|覚えてる|覚えて|思い出して|"
    "思い出せる|記憶|記録|メモ|ください|下さい|ありますか|あります|ありません|いますか|います|ですか|ですか|でしょうか|でしょう|でした|"
    "です|ましたか|ました|ますか|ます|ません|している|しています|していた|してい|した|して|する|だった|という|といった|って|何か|なにか|"
    "どこか|どこ|いつ|だれ|誰|なに|何|どの|どんな|どう|どれ|なぜ|(?<=[\u4e00-\u9fff\u30a0-\u30ff々])(?:さん|さま|ちゃん|くん)|私の|私は|私|僕|俺|あなた|名前|こと|もの|から|まで|では|には|とは|"
    "(?<=[\u4e00-\u9fff\u30a0-\u30ff々])[はがをにへでとものやか](?![ぁ-ん])|(?<=[ぁ-ん])[はがをの](?=[\u4e00-\u9fff\u30a0-\u30ff])|"
    # Korean
    "(?<![가-힣])(?:기억|검색|알려|찾아|말해|보여|확인|메모|기록|저장|언급|관련|관해|대해|대한|대하여|뭐|무엇|무슨|어디|누구|언제|어떤|"
    "어떻게|있|없|했|하는|나는|나의|내가|내|제가|제|우리|당신|너는|네|혹시|해줘|주세요|줘|이름|정보|것|거)[가-힣]{0,6}(?![가-힣])|"
    # Thai
    "ค้นหา|ค้น|หา|บอก|จำได้ไหม|จำได้|จำ|ความทรงจำ|ความจำ|บันทึก|เกี่ยวกับ|เรื่อง|อะไร|ที่ไหน|เมื่อไหร่|ใคร|อย่างไร|ยังไง|เท่าไหร่|ทำไม|มี|"
    "หรือไม่|หรือ|และ|ที่|ของ|ให้|ได้|เป็น|ไม่|กับ|ว่า|ครับ|ค่ะ|คะ|นี้|นั้น|เรา|ฉัน|ผม|คุณ|เขา|แล้ว|จาก|ด้วย|ไหม|มาก|ชื่อ|กรุณา|ช่วย|อยู่|ใน"
)
_WITHIN: Final = re.compile(_REQUESTS_WITHIN)

_OF_THE_TALK: Final = re.compile(
    r"\b(?:across|throughout|over|during|in|from|of|through) (?:one of |any of |all )?(?:of )?(?:our|my|these|your) "
    r"(?:(?:last|previous|past|earlier|recent|first|many|other|different|various) )?"
    r"(?:conversations?|chats?|sessions?|discussions?|talks|messages|questions|requests)\b"
    r"|\b(?:did|have|had) (?:I|we|you) (?:ever )?(?:mention(?:ed)?|say|said|(?:tell|told) (?:you|me)(?: about)?"
    r"|br(?:ing|ought) up|talk(?:ed)? about|discuss(?:ed)?)\b"
    r"|\b(?:I|we|you) (?:ever )?(?:mentioned|said|told (?:you|me)(?: about)?|talked about|discussed"
    r"|brought (?:this |it |that )?up)\b"
    r"|\b(?:can|could|would|will) you (?:please )?(?:list|walk me through|(?:give|tell|show) me|provide(?: me with)?"
    r"|remind me(?: of)?|summari[sz]e|explain(?: to me)?)\b"
    r"|\ban? (?:\w+ )?(?:summary|overview|recap|list) of\b"
    r"|\bthe order in which\b|\bin order\b(?= ?(?:[?.,]|$))"
    r"|\b(?:mention|list|name|give|answer|reply)(?: me| with| in)? (?:only|just|exactly|at most)(?: and only)? "
    r"\w+ (?:items?|things?|points?|words?|sentences?)\b",
    re.IGNORECASE,
)
"""English phrases of a question about the talk itself ("in our chats") or about the form of the answer."""

_UNSPACED: Final = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3]"
)

_VIETNAMESE: Final = re.compile("[\u0103\u0111\u01a1\u01b0\u1ea0-\u1ef9]", re.IGNORECASE)


_COMMON_IDEOGRAPHS: Final = frozenset(
    "的一是不了在人有我他这中大来上国个到说们为子和你地出道也时年得就那要下以生会自着去之过家学对可她里后小么心多天而能好都然没日于起还"
    "发成事只作当想看文无开手十用主行方又如前所本见经头面公同三已老从动两长知民样现分将外但身些与高意进把法此实回二理美点月明其种声全工己"
    "話者気間何時分今見行来出思手前物言方子会自家内電車市町部屋員水火木金土曜朝夜午後東西南北週第度回名的性化新長高場所合社目入食買"
    "時說這個們為還沒發當無開經頭動兩長樣現將與進實點種聲"
)
"""Ideographs of very many words: a text that shares one with a question proves nothing."""


def asked_in(text: str, languages: Sequence[str]) -> tuple[str, ...]:
    """Return the languages other than English that a question may be in: `languages`, which its words show, and
    Vietnamese if its letters show it, which has no stemmer and so is never among `languages`."""
    return (*languages, "vietnamese") if _VIETNAMESE.search(text) else tuple(languages)


def is_request_term(term: str, languages: Collection[str]) -> bool:
    """Tell whether a term of a question only asks, or only holds the sentence together.

    Args:
        term: as `myria.text.terms` returns it.
        languages: languages that the question may be in besides English; non-Latin terms are known in any of them.
    """
    if not term.isascii():
        return term in _non_ascii_terms()
    return any(term in _request_terms(language) for language in ("english", *languages))


def is_common_part(term: str) -> bool:
    """Tell whether a term is a character that very many words of its language share."""
    return term in _COMMON_IDEOGRAPHS


def without_requests(text: str) -> str:
    """Return a question with its asking phrases replaced by spaces, so that positions stay: English ones about the talk
    itself, and all those in scripts without spaces."""
    text = without_talk(text)
    if text.isascii() or _UNSPACED.search(text) is None:
        return text
    return _WITHIN.sub(_blank, text)


def without_talk(text: str) -> str:
    """Return a question with English phrases about the talk itself replaced by spaces, if other words are left."""
    shorter = _OF_THE_TALK.sub(_blank, text)
    return shorter if shorter == text or any(not is_stopword(term) for term in terms(shorter)) else text


def _blank(found: re.Match[str]) -> str:
    return " " * len(found[0])


@cache
def _request_terms(language: str) -> frozenset[str]:
    """Return the terms of the words by which people ask in a language, without stop words."""
    return frozenset(term for term in terms(_WORDS.get(language, "")) if not is_stopword(term))


@cache
def _non_ascii_terms() -> frozenset[str]:
    """Return the non-ASCII terms of asking words and function words of all languages."""
    all_terms = terms(" ".join((*_WORDS.values(), *FUNCTION_WORDS.values())))
    return frozenset(term for term in all_terms if not term.isascii())
