"""Greetings, thanks, farewells, wishes, assent and laughter: what people say whatever the talk is about.

Compact lists of set phrases, written for this planner and read by whole words as `myria.analysis.terms` gives them, in
any conversation, because people greet and thank in other languages than they write in. A word that means something
else in another language stands in the function words of its own language instead (`myria.planning.wording`). Japanese,
Chinese, Korean and Thai courtesies are patterns there, since those scripts have no words between spaces.
"""

from __future__ import annotations

from functools import cache
from itertools import compress

from myria.analysis import TextWords, terms

_COURTESIES = {
    "english": """
        good morning, good afternoon, good evening, good night, good day, good luck, good job, good to see you,
        nice to meet you, nice to see you, happy birthday, happy new year, merry christmas, happy anniversary,
        happy holidays, kind regards, best regards, warm regards, best wishes, warm wishes, yours sincerely,
        sincerely yours, yours truly, all the best, dear all, dear team, hi all, hi team, hello everyone, take care,
        stay safe, stay tuned, see you, see ya, see u, talk soon, talk to you soon, catch up soon, have a nice day,
        have a good day, have a great day, have a good one, have a nice weekend, have a great weekend,
        have a good weekend, sounds good, sounds great, no problem, no worries, no prob, you're welcome, my pleasure,
        my bad, well done, of course, for sure, thank god, thank goodness, oh my god, oh my gosh, hats off, keep it up,
        keep up the good work, hang in there, fingers crossed, cheers, greetings, farewell, goodbye, bye, goodnight,
        goodnite, gm, gn, brb, ttyl, gtg, afk, imho, imo, fyi, asap, tbh, ngl, smh, lmao, lmfao, rofl, lol, lols, haha,
        hahaha, hahahaha, hehe, hehehe, hihi, jk, omg, omfg, wtf, thx, thnx, thanx, tks, ty, tysm, tyvm, np, yw, pls,
        plz, kk, yup, yeah, yep, yeahh, yess, yesss, yoo, yooo, nope, nah, okey, okie, okidoki, okeydokey, alrighty,
        roger, hiya, howdy, heya, heyy, heyyy, hii, hiii, sup, wassup, whatsup, bro, bruh, dude, mate, lemme, gimme,
        dunno, gotcha, outta, cuz, coz, bcuz, tmrw, tmr, tomoz, tonite, hmm, hmmm, hm, mhm, uh, uhm, um, umm, huh, ugh,
        ooh, oops, whoops, phew, yikes, yay, yoohoo, woohoo, woo hoo, wow, whoa, aww, awww, meh, duh, welp, cya, xoxo,
        sir, madam, mr, mrs, bon voyage, bon appetit, heck yeah, hell yeah, way to go, cc, bcc, fwd, hey guys, hi guys,
        sweet dreams, speak soon, speak to you soon, chat soon, see you soon, see you later, see you tomorrow,
        let me know, feel free, lots of love, break a leg, go for it, rock on, you bet, no way, no doubt""",
    "german": """
        guten morgen, guten tag, guten abend, gute nacht, gute reise, guten rutsch, guten appetit, schlaf gut,
        mach's gut, machs gut, bis später, bis dann, bis bald, bis morgen, bis gleich, vielen dank, herzlichen dank,
        besten dank, danke schön, dankeschön, danke, bitte schön, bitteschön, bitte sehr, gern geschehen, kein problem,
        keine ursache, alles klar, alles gut, alles gute, alles okay, in ordnung, auf wiedersehen, auf wiederhören,
        tschüss, tschüs, tschau, servus, moin, moinsen, mahlzeit, hallo, hallöchen, grüezi, grüß gott, grüß dich,
        sehr geehrte, sehr geehrter, sehr geehrtes, mit freundlichen grüßen, freundliche grüße, viele grüße,
        liebe grüße, beste grüße, herzliche grüße, schöne grüße, schönen gruß, schönes wochenende, schönen tag,
        schönen abend, schönen feierabend, feierabend, viel glück, viel erfolg, viel spaß, gute besserung,
        herzlichen glückwunsch, glückwunsch, klingt gut, passt schon, ach so, oh je, ohje, ach ja, na klar, genau,
        stimmt, prima, okay, lg, vg, mfg, naja, gerne, bitte, übrigens, servus""",
    "french": """
        bonjour, bonsoir, bonne nuit, bonne soirée, bonne journée, bonne année, bon week-end, bon weekend, bon courage,
        bonne chance, bon voyage, bon anniversaire, joyeux anniversaire, joyeux noël, bon appétit, salut, coucou,
        ça va, merci beaucoup, merci bien, mille mercis, merci, s'il te plaît, s'il vous plaît, stp, svp, de rien,
        je t'en prie, je vous en prie, pas de problème, pas de souci, pas de soucis, à bientôt, à demain, à plus tard,
        à plus, à tout à l'heure, à tout de suite, au revoir, adieu, bisous, bises, gros bisous, cordialement,
        bien cordialement, bien à vous, bien à toi, d'accord, bien sûr, tout à fait, c'est génial, c'est super, génial,
        bravo, félicitations, mdr, ptdr, ouais, voilà, au fait, chère, enchanté, enchantée""",
    "spanish": """
        hola, buenos días, buenas tardes, buenas noches, buen día, buen fin de semana, buen viaje, buena suerte,
        buen provecho, qué tal, muchas gracias, mil gracias, gracias, de nada, por favor, no hay problema,
        no hay de qué, no te preocupes, de acuerdo, por supuesto, claro que sí, por cierto, hasta luego, hasta mañana,
        hasta pronto, hasta la vista, nos vemos, adiós, chau, un abrazo, abrazos, un beso, un besito, besos, besitos,
        saludos, un saludo, saludos cordiales, atentamente, feliz cumpleaños, feliz navidad, feliz año, felicidades,
        felicitaciones, enhorabuena, en serio, qué bien, qué bueno, muy bien, está bien, jaja, jajaja, jajajaja, jeje,
        genial, perfecto, estimada, estimado, querida, querido, bienvenido, bienvenida""",
    "portuguese": """
        olá, oi, bom dia, boa tarde, boa noite, bom fim de semana, boa viagem, boa sorte, bom apetite, tudo bem,
        tudo bom, tudo ótimo, muito obrigado, muito obrigada, obrigado, obrigada, obrigadinho, obrigadinha, valeu,
        de nada, por favor, se faz favor, sem problema, sem problemas, tá bom, está bem, com certeza, até logo,
        até amanhã, até já, até breve, até mais, tchau, tchauzinho, adeus, um abraço, abraço, abraços, um beijo,
        beijo, beijos, beijinho, beijinhos, cumprimentos, atenciosamente, feliz aniversário, feliz natal, parabéns,
        kkk, kkkk, kkkkk, rsrs, rsrsrs, que bom, beleza, combinado, prezado, prezada, caro senhor, cara senhora, aliás,
        a propósito""",
    "italian": """
        ciao, buongiorno, buon giorno, buonasera, buona sera, buonanotte, buona notte, buona giornata, buona serata,
        buon compleanno, buon natale, buon viaggio, buona fortuna, buon appetito, come stai, come va, tutto bene,
        va bene, grazie mille, molte grazie, grazie, prego, per favore, per piacere, figurati, di niente, d'accordo,
        certo, certamente, perfetto, a presto, a dopo, a domani, arrivederci, ci vediamo, un abbraccio, un bacio,
        baci, saluti, cordiali saluti, distinti saluti, auguri, tanti auguri, complimenti, congratulazioni, magari,
        gentile signora, egregio""",
    "dutch": """
        hoi, hallo, goedemorgen, goedemiddag, goedenavond, goedenacht, welterusten, slaap lekker, alles goed,
        dank je, dank je wel, dank u, dank u wel, dankjewel, bedankt, hartelijk dank, graag gedaan, geen probleem,
        geen dank, alsjeblieft, alstublieft, tot ziens, tot straks, tot morgen, tot snel, tot later, doei, doeg,
        groetjes, groeten, met vriendelijke groet, vriendelijke groet, fijne dag, fijne avond, fijn weekend,
        gefeliciteerd, veel succes, veel plezier, ja hoor, oké, jammer, trouwens, natuurlijk, klopt, prima, beste""",
    "nordic": """
        hej, hejsan, hei, tjena, god morgon, god morgen, god kväll, god natt, god nat, hej då, vi ses, tack så mycket,
        tusen tack, tusen takk, mange tak, takk, tack, tak for det, ingen fara, ingen orsak, varsågod, vær så god,
        ha det bra, ha det, med vänliga hälsningar, vänliga hälsningar, med venlig hilsen, med vennlig hilsen, mvh,
        grattis, gratulerer, tillykke, lycka till, kiitos, moi, hyvää huomenta, hyvää yötä, näkemiin""",
    "slavic": """
        cześć, dzień dobry, dobry wieczór, dobranoc, dobrej nocy, dziękuję, dziękuje, dzięki, bardzo dziękuję, proszę,
        nie ma za co, nie ma sprawy, co słychać, do widzenia, do zobaczenia, do jutra, na razie, pozdrawiam,
        wszystkiego najlepszego, sto lat, gratulacje, powodzenia, szanowny, szanowna, oczywiście, w porządku, jasne,
        ahoj, dobrý den, dobrou noc, děkuji, díky, nashledanou, na shledanou,
        привет, приветик, здравствуй, здравствуйте, доброе утро, добрый день, добрый вечер, доброй ночи,
        спокойной ночи, спасибо, спасибо большое, большое спасибо, пожалуйста, не за что, как дела, до свидания,
        до завтра, до встречи, до скорого, увидимся, пока-пока, всего доброго, всего хорошего, с днем рождения,
        с днём рождения, с новым годом, поздравляю, удачи, с уважением, уважаемый, уважаемая, конечно, ладно, отлично,
        понятно, хорошо, окей, ок, ага, угу, ахах, ахаха, хаха, хахаха, лол, кстати, кажется, ясно, договорились,
        привіт, добрий день, доброго ранку, добрий вечір, на добраніч, дякую, щиро дякую, будь ласка, як справи,
        до побачення, до зустрічі, бувай, вітаю, чудово, добре, звісно, гаразд""",
    "turkish": """
        merhaba, merhabalar, selam, selamlar, günaydın, iyi günler, iyi akşamlar, iyi geceler, iyi hafta sonları,
        nasılsın, nasılsınız, iyiyim, teşekkürler, teşekkür ederim, teşekkür ederiz, çok teşekkürler, sağ ol, sağol,
        sağ olun, rica ederim, bir şey değil, lütfen, görüşürüz, görüşmek üzere, hoşça kal, hoşçakal, güle güle,
        kendine iyi bak, tebrikler, tebrik ederim, doğum günün kutlu olsun, kolay gelsin, geçmiş olsun, afiyet olsun,
        tamam, tamamdır, tabii, tabii ki, elbette, maalesef, peki, canım, saygılarımla, sayın, bu arada""",
    "arabic": """
        السلام عليكم, وعليكم السلام, عليكم السلام, مرحبا, أهلا, أهلا وسهلا, صباح الخير, صباح النور, مساء الخير,
        مساء النور, تصبح على خير, تصبحين على خير, كيف حالك, كيف الحال, بخير, الحمد لله, شكرا, شكرا جزيلا, شكرا لك,
        عفوا, من فضلك, لو سمحت, إن شاء الله, ان شاء الله, ما شاء الله, بارك الله فيك, الله يبارك فيك, جزاك الله خيرا,
        مع السلامة, إلى اللقاء, في أمان الله, مبروك, كل عام وأنتم بخير, عيد ميلاد سعيد, حسنا, تمام, ممتاز, طبعا, أكيد,
        بالمناسبة, هههه, ههههه, والله, يا رب""",
    "hindi": """
        नमस्ते, नमस्कार, प्रणाम, सुप्रभात, शुभ प्रभात, शुभ रात्रि, कैसे हो, कैसी हो,
        कैसे हैं, ठीक हूँ, ठीक हूं, ठीक है, धन्यवाद, शुक्रिया, बहुत बहुत धन्यवाद,
        कोई बात नहीं, कृपया, फिर मिलेंगे, अलविदा, बधाई, बधाई हो, जन्मदिन मुबारक,
        शुभकामनाएं, हाँ जी, जी हाँ, अच्छा, बहुत अच्छा, बिल्कुल, वैसे, namaste, shukriya,
        dhanyavaad, yaar, haan, accha, achha, theek hai, thik hai""",
    "hebrew, greek, vietnamese, indonesian, persian": """
        שלום, בוקר טוב, ערב טוב, לילה טוב, מה שלומך, מה נשמע, תודה, תודה רבה, בבקשה, בסדר, בסדר גמור, להתראות,
        מזל טוב, מעולה, סבבה, על לא דבר, יום הולדת שמח,
        γεια, γεια σου, γεια σας, καλημέρα, καλησπέρα, καληνύχτα, καλό βράδυ, ευχαριστώ, ευχαριστώ πολύ, παρακαλώ,
        τι κάνεις, αντίο, χρόνια πολλά, εντάξει, τέλεια, βέβαια,
        xin chào, cảm ơn, cám ơn, cảm ơn nhé, không có gì, tạm biệt, hẹn gặp lại, chúc ngủ ngon, khỏe không,
        tuyệt vời, chúc mừng, vâng, dạ vâng,
        selamat pagi, selamat siang, selamat sore, selamat malam, terima kasih, sama sama, apa kabar, sampai jumpa,
        سلام, ممنون, مرسی, خداحافظ, صبح بخیر, شب بخیر, متشکرم, خواهش می‌کنم""",
}

_LONGEST_ADDRESS = 4

_SALUTATIONS = """
    dear hi hello hey hiya morning yo liebe lieber hallo moin geehrte geehrter geehrtes cher chère chers bonjour bonsoir
    salut coucou hola querida querido queridos queridas estimada estimado estimados olá oi prezado prezada prezados cara
    caro ciao gentile egregio hoi beste geachte hej kära käre szanowny szanowna drogi droga cześć merhaba selam sayın
    привет здравствуйте здравствуй уважаемый уважаемая дорогой дорогая thanks thank bye cheers congrats
    gracias merci danke obrigado obrigada grazie tschüss adiós
"""


@cache
def _by_first() -> dict[str, dict[str, list[list[str]]]]:
    """Return the set phrases as terms, longest first, by their first term and their second, "" where there is none."""
    by_first: dict[str, dict[str, set[tuple[str, ...]]]] = {}
    for phrases in _COURTESIES.values():
        for phrase in phrases.split(","):
            for written in {phrase, phrase.replace("'", " ")}:
                key = tuple(terms(written))
                by_first.setdefault(key[0], {}).setdefault(key[1] if len(key) > 1 else "", set()).add(key)
    return {
        first: {second: [list(key) for key in sorted(keys, key=_longest_first)] for second, keys in of.items()}
        for first, of in by_first.items()
    }


def _longest_first(key: tuple[str, ...]) -> tuple[int, tuple[str, ...]]:
    return (-len(key), key)


@cache
def _beginnings() -> frozenset[str]:
    """Return the terms that a courtesy or an address begins with."""
    return _salutations().union(_by_first())


@cache
def _salutations() -> frozenset[str]:
    return frozenset(terms(_SALUTATIONS))


@cache
def _alone() -> frozenset[str]:
    """Return the terms that are a courtesy, or begin an address, whatever follows them."""
    return _salutations().union(first for first, of in _by_first().items() if "" in of)


def courtesies(text: str, words: TextWords) -> set[int]:
    """Return the places of the words of a text that belong to courtesies, or to the name that one is addressed to.

    Args:
        text: what the words were taken from.
        words: in order.
    """
    inside: set[int] = set()
    read = words.terms
    beginnings = _beginnings()
    if beginnings.isdisjoint(read):
        return inside
    phrases, salutations, alone = _by_first(), _salutations(), _alone()
    reached, last = 0, len(read) - 1
    for at in compress(range(len(read)), map(beginnings.__contains__, read)):
        if at < reached:
            continue
        term = read[at]
        if term not in alone and (at == last or read[at + 1] not in phrases[term]):
            continue
        size = 0
        of = phrases.get(term)
        if of is not None:
            for key in of.get(read[at + 1], ()) if at < last else ():
                if list(read[at : at + len(key)]) == key:
                    size = len(key)
                    break
            else:
                size = int("" in of)
        if read[at + size - 1 if size else at] in salutations and (size or _opens_line(text, words.starts[at])):
            size = _addressed(text, words, at + max(size, 1)) - at
        if size:
            inside.update(range(at, at + size))
            reached = at + size
    return inside


def _addressed(text: str, words: TextWords, at: int) -> int:
    """Return where the name after a salutation ends: few words with capitals, up to a comma or a sentence's end."""
    end = at
    while end < len(words) and end - at < _LONGEST_ADDRESS:
        first = words.surfaces[end][0]
        between = text[words.ends[end - 1] : words.starts[end]]
        if between not in (" ", ". ") or first == first.lower():
            break
        end += 1
    following = text[words.ends[end - 1] : words.ends[end - 1] + 1] if end else ""
    return end if following in ("", ",", "!", ".", "\n", "\r", "?", ":", "…", "¡", "-", "–", "—", ";") else at


def _opens_line(text: str, start: int) -> bool:
    before = text[max(0, start - 3) : start].strip(" \"'“”¡¿")
    return not before or before[-1] in "\n\r.!?…,:"
