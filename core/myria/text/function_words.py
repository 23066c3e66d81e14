"""The most frequent words of languages other than English that hold sentences together: fixed lists, never learnt.

They tell which language a text is in, and are no subject of it.
"""

from __future__ import annotations

from typing import Final

FUNCTION_WORDS: Final = {
    "german": """
        der die das den dem des ein eine einen einem einer eines und oder aber ich du er sie es wir ihr
        mich dich sich uns euch mir dir ihm ihn ihnen ist sind war waren bin bist sein seine seinen mein
        meine dein deine unser unsere hat habe haben hatte nicht kein keine auch noch nur schon mit von
        vom zu zum zur ab herr frau herrn in im ins an am auf aus bei beim für über unter um nach vor
        durch als wie wenn dass ob weil dann da so sehr mal doch ja nein was wer wo wann warum wird
        werden wurde kann können muss müssen soll will wollen klingt hieß heißt sollte sollten könnte
        könnten würde würden mag mögen darf dürfen gibt gab geht ging kommt kam macht machen gemacht
        sagt sagte meint weiß wüsste etwa fast gleich gar eben halt eigentlich wohl vielleicht bestimmt
        natürlich sicher klar gut schön lieb fein toll super montag dienstag mittwoch donnerstag freitag
        samstag sonntag januar februar märz april mai juni juli august september oktober november
        dezember woche monat jahr uhr euro heute morgen gestern jetzt hier dort alle alles mehr diese
        dieser dieses man bis seit welche welchem welchen welcher welches wessen wem wohin woher""",
    "french": """
        le la les un une des du de et ou mais je tu il elle on nous vous ils elles me te se moi toi lui
        leur mon ma mes ton ta tes son sa ses notre votre nos vos est sont suis es êtes être été était a
        ai as avons avez ont avoir avait ne pas plus que qui quoi dont où quand comment pourquoi ce cet
        cette ces ça c'est j'ai j'en t'as t'es lundi mardi mercredi jeudi vendredi samedi dimanche
        janvier février mars avril mai juin juillet août septembre octobre novembre décembre mois
        semaine année matin soir euros heure heures merci doit dois peux veux veut trouvé oui non n'est
        qu'il d'un d'une dans en sur sous avec sans pour par chez vers au aux si bien très aussi encore
        déjà tout tous toute toutes y enfin fait faire peut va aujourd'hui demain hier ici petit petite
        petits petites grand grande grands bon bonne nouveau nouvelle beau belle vieux vieille autre
        autres même premier première dernier dernière quel quelle quels quelles combien depuis""",
    "spanish": """
        el la los las un una unos unas de del y o u pero yo tú él ella nosotros ustedes ellos me te se
        le les lo nos mi mis tu tus su sus nuestro nuestra es son soy eres está están estoy estaba ser
        fue era ha he hay han había tiene tengo no sí que qué quién cómo cuándo dónde porque por para
        con sin en a al sobre entre hasta desde como más muy también ya todavía este esta esto ese esa
        eso si bien todo todos toda lunes martes miércoles jueves viernes sábado domingo enero febrero
        marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre mes semana año euros
        hora horas pues ya claro vale bueno oye mira dice dijo quiere quiero hace hacer cuesta mucho
        mucha muchos muchas poco nada algo ay uy dos tres cuatro cinco seis siete ocho nueve diez once
        doce trece catorce quince veinte cien hoy mañana ayer aquí cuando va vamos gran grande nuevo
        nueva nuevos nuevas buen buena mal otro otra otros otras mismo misma primer primera último
        última pequeño pequeña cuál cuáles cuánto cuánta cuántos cuántas quiénes adónde""",
    "portuguese": """
        o a os as um uma uns umas de do da dos das e ou mas eu tu você ele ela nós vocês eles elas me te
        se lhe meu minha meus seu sua seus nosso nossa é são sou está estão estou era foi ser tem tenho
        há não sim que quem como quando onde porque qual quais por para pelo pela com sem em no na nos
        nas ao aos à às sobre entre até mais muito também já ainda este esta isto esse essa isso aquele
        se bem tudo todos hoje amanhã ontem segunda-feira terça-feira quarta-feira quinta-feira
        sexta-feira segunda terça quarta quinta sexta feira sábado domingo janeiro fevereiro março abril
        maio junho julho agosto setembro outubro novembro dezembro mês semana ano euros reais hora horas
        ficou olha claro boa bom quer quero faz fazer precisa precisamos muita pouco nada algo né tá pra
        aqui vai vamos grande novo nova novos novas bom boa outro outra outros mesmo mesma primeiro
        primeira último última pequeno pequena quais quanto quanta quantos quantas""",
    "italian": """
        il lo la i gli le un uno una di del dello della dei degli delle e o ma io tu lui lei noi voi
        loro mi ti si ci vi mio mia tuo tua suo sua nostro è sono sei siamo era stato essere ha ho hai
        abbiamo hanno avere non sì che chi cosa come quando dove perché per con senza in nel nella nei
        al allo alla ai agli alle da dal dalla su sul sulla tra fra più molto anche già ancora questo
        questa questi quello quella se lunedì martedì mercoledì giovedì venerdì sabato domenica gennaio
        febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre mese
        settimana anno euro ora ore vuole voglio vogliono serve deve devo fare fatto poco niente
        qualcosa sentito bene tutto tutti oggi domani ieri qui grande nuovo nuova nuovi buon buona bello
        bella altro altra stesso stessa primo prima ultimo ultima piccolo piccola quale quali quanto
        quanta quanti quante""",
    "dutch": """
        de het een en of maar ik jij je hij zij ze wij we jullie mij jou hem haar ons hun mijn jouw zijn
        is was waren ben bent heeft heb hebben had niet geen ook nog al alleen met van te tot in op aan
        uit bij voor over onder om na door als dan dat die dit deze er wat wie waar wanneer hoe waarom
        wordt worden kan komt kwam gaat ging maakt zegt maandag dinsdag woensdag donderdag vrijdag
        zaterdag zondag januari februari maart mei juni juli augustus oktober week maand jaar uur
        volgende vorige pas kunnen moet moeten zal wil zeer heel wel naar vandaag morgen gisteren nu
        hier daar alle alles meer welke welk hoeveel sinds""",
    "swedish": """
        och eller men jag du han hon den det vi ni de mig dig sig oss er dem min din sin vår är var vara
        varit har hade inte ingen också bara med av till i på från för om under över efter som när att
        vad vem hur varför ska kan måste vill mycket nu här där en ett idag imorgon igår alla allt
        vilken vilket vilka vems sedan""",
    "polish": """
        i oraz lub ale ja ty on ona ono my wy oni mnie mi ci się go jej ich im mój moja twój jest są był
        była było być nie tak też tylko już jeszcze z ze w we na do od dla po przy o przed za jak kiedy
        gdzie co kto że czy bo bardzo to ten ta te tego tej poniedziałek wtorek środa czwartek piątek
        sobota niedziela tydzień miesiąc rok dobra dobrze super masz mam ma mamy można trzeba będzie
        kupiłaś kupiłeś pa dziś dzisiaj jutro wczoraj tu tam jaki jaka jakie który która które ile czyj
        czyja""",
    "turkish": """
        ve veya ama ben sen o biz siz onlar bana sana bu şu bir de da ki mi mı mu mü için ile gibi kadar
        çok daha en şimdi sonra önce artık bile hem ya yani işte şey olarak olan oldu olur lazım gerek
        galiba sanırım belki tane yeni güzel iyi günü gün hafta ay yıl pazartesi salı çarşamba perşembe
        cuma cumartesi pazar ocak şubat mart nisan mayıs haziran temmuz ağustos eylül ekim kasım aralık
        hazır var yok değil hangi nereye ne kim nasıl neden nerede evet hayır bugün yarın dün""",
    "russian": """
        и или но а я ты он она оно мы вы они меня тебя его её нас вас их мне тебе ему ей нам вам им мой
        моя твой наш есть был была было были быть не нет да тоже только уже ещё в во на с со к ко от до
        из за по для при о об у как когда где что кто чем это этот эта эти тот так очень если бы же ли
        сегодня завтра вчера там здесь пока рядом опять снова еще можно нужно надо будет будем буду могу
        может хочу хочет сказал сказала жалко понедельник вторник среда четверг пятница пятницу суббота
        субботу воскресенье январь февраль март апрель май июнь июль август сентябрь октябрь ноябрь
        декабрь неделю неделя месяц год вечером утром днем ночью какой какая какое какие какую каком
        каких каким какими чей чья куда откуда почему сколько""",
    "greek": """
        ο η το οι τα του της των τον την τους τις στο στη στην στον στα στους στις και ή αλλά εγώ εσύ
        αυτός αυτή αυτό εμείς εσείς μου σου μας σας είμαι είσαι είναι ήταν έχω έχεις έχει έχουμε δεν μη
        μην ναι όχι θα να που πως πότε πού τι ποιος για με από σε προς μετά πριν πολύ επίσης ακόμα
        σήμερα αύριο χθες εδώ εκεί όλα αν γιατί""",
    "ukrainian": """
        і й та або але я ти він вона воно ми ви вони мене тебе його її нас вас їх мені тобі йому їй нам
        вам мій моя твій наш є був була було були бути не ні так теж тільки вже ще у в на з зі до від за
        із для при про як коли де що хто чи цей ця це ці той дуже якщо сьогодні завтра вчора там тут""",
    "arabic": """
        و في من إلى الى على عن مع هذا هذه ذلك تلك هو هي هم أنا انا أنت انت نحن كان كانت يكون لا نعم ما
        ماذا متى أين كيف لماذا هل قد لقد ثم أو او لكن أن ان إن كل بعد قبل عند حتى اليوم غدا أمس الآن هنا
        هناك جدا يوم القادم الماضي فيه فيها به بها له لها لي لك لنا التي الذي قال قلت سوف أيضا غير بين""",
    "persian": """
        و در از به با برای که این آن را است بود هست من تو او ما شما آنها هم نیز یا اما اگر تا هر همه چه
        کی کجا چرا چطور امروز فردا دیروز خیلی بله نه می نمی شد شده کرد کرده کردم باید روی""",
    "hindi": """
        का की के को में से पर ने और या लेकिन मगर मैं हम तुम आप वह वे यह ये मेरा मेरी मेरे तुम्हारा आपका
        हमारा उसका है हैं था थी थे हूँ हूं हो होगा होगी होंगे हुआ हुई गया गई गए दिया दी दो कर करना
        करूँगी करूँगा करते करती रहा रही रहे सकता सकते चाहिए नहीं न ना हाँ भी ही तो क्या कब कहाँ कौन कैसे
        कितना कितने कितनी क्यों जब अगर बहुत लगभग अगले पिछले आज कल अब यहाँ वहाँ तक लिए साथ एक नई नया नए
        ठीक अच्छा लो ले मिल देख शुरू जाएगा जाएगी आएँगी आएगा""",
    "hebrew": """
        של את על עם אל מן לא כן זה זאת הוא היא הם אני אתה אנחנו אתם היה הייתה יש אין מה מי איפה מתי למה
        איך כי אבל או גם רק כל עוד כבר היום מחר אתמול כאן שם אם מאוד לי לך לו לה לנו בבית שלי שלך שלו""",
    "vietnamese": """
        và hoặc nhưng tôi bạn anh chị em mình chúng ta họ nó là của có không được đã đang sẽ rồi chưa
        cũng rất này kia đó ấy cho với ở trong trên dưới từ đến vào ra đi thì mà nếu khi gì ai nào sao
        thế nhé ạ vâng dạ một các những mua hôm nay mai qua gần""",
    "indonesian": """
        dan atau tetapi tapi saya aku kamu anda dia kami kita mereka ini itu yang di ke dari untuk
        dengan pada adalah ada tidak bukan sudah akan bisa juga hanya lagi sangat lebih apa siapa kapan
        bagaimana karena oleh hari besok kemarin""",
}
"""Lower-case words by the language's name in English, separated by white space."""

AUXILIARIES: Final = {
    "german": """
        ohne gegen während wegen trotz statt jedoch sondern sowie also dabei dazu damit davon daran darauf dort
        seit immer wieder viel viele vielen wenig wenige besser sehr ganz hatte hatten hättest hätte wäre wären
        worden wollte wollten konnte konnten musste mussten durfte tut tun getan jeder jede jedes jedem beide
        ihre ihren ihrem ihrer seiner seinem eure deren dessen""",
    "french": """
        sans contre pendant depuis ainsi donc alors car puis cela ceci celui celle ceux leurs eux lors selon
        entre jusque étaient étais serait sera seront sommes êtes avaient aurait aura auront fais font faut doit
        doivent peuvent pouvoir vouloir toujours jamais parfois souvent beaucoup peu trop moins lequel laquelle
        afin parce""",
    "spanish": """
        será serán sería seré somos sois eran estaban estamos estuvo fueron han habían habrá tenemos tienen tenía
        tener tuvo hace hacen hizo puede pueden podemos poder debe deben debemos van iba antes después entonces
        aunque mientras según contra ante tras durante así tan tanto menos siempre nunca mediante cada ambos
        ella ellas aquel aquella esos esas estos estas suyo mío nuestros nuestras les nos quien quienes cual""",
    "portuguese": """
        será serão seria somos eram estavam estamos esteve foram têm tinha ter teve faz fazem fez pode podem
        podemos poder deve devem vão ia antes depois então embora enquanto segundo contra durante assim tão tanto
        menos sempre nunca cada ambos aquela aqueles elas lhes dele dela deles não pois porém num numa""",
    "italian": """
        sarà saranno sarebbe siete erano eravamo stata stati state furono aveva avevano avrà fa fanno fece può
        possono possiamo potere deve devono dobbiamo va vanno prima dopo allora sebbene mentre secondo contro
        durante così tanto meno sempre mai ogni entrambi quei quegli essa esse loro suoi sue miei mie nostri
        perciò però dunque senza""",
    "dutch": """
        zonder tegen tijdens sinds dus want omdat terwijl toch wel zou zouden zullen moest moesten mocht kon
        konden wilde wilden werd werden geworden geweest gehad hadden doet doen deed altijd nooit vaak veel weinig
        meer minder iedere elke beide deze hun jullie ons onze""",
    "swedish": """
        utan mot sedan alltså därför medan dock skulle kunde ville måste blir blev blivit gör göra gjorde alltid
        aldrig ofta många lite mer mindre varje båda dessa deras era våra sina sitt mitt ditt""",
    "polish": """
        bez przeciw podczas więc ponieważ jednak albo będą byłby byłaby były byli miał miała mieli może mogą mógł
        musi muszą powinien powinna zawsze nigdy często dużo mało więcej mniej każdy każda oba nasz nasza wasz
        swój swoja swoje których którego której którym""",
    "turkish": """
        ama fakat ancak çünkü karşı göre üzere iken idi ise olması olduğu oldular eder etti etmek yapar yaptı
        yapmak her hiç bazı birçok fazla az hep asla daima bizim sizin onun onların benim senin""",
    "russian": """
        без против хотя чтобы потому поэтому однако либо были будут бы мог могла могли должен должна должны стал
        стала стали сделал всегда никогда часто много мало больше меньше каждый каждая оба наша наши ваш ваша
        свой своя свои который которая которое которые которых которого которой то из-за также""",
}
"""Further words of these languages that are no subject: forms of be, have, can and must, and joining words.

What language a text is in is told without them."""
