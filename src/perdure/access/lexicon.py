"""The meaning of the words of an injection, in eighteen languages: word -> one letter. Data only.

`access.scan` writes a text as a string of these letters and searches sequences in it, so a rule holds in
every language that has words for it. Each word stands under one letter; a word that is not listed is ".".
An entry that ends in `*` is the beginning of a word; one with `_` is several words. Languages: English,
German, French, Spanish, Portuguese, Italian, Turkish, Indonesian, Vietnamese, Tagalog, Russian, Arabic,
Hindi, Bengali, Chinese, Japanese, Korean, Thai. Entries of scripts without spaces are found inside their
runs. Accents of Latin letters do not count.
"""

from __future__ import annotations

WORDS: dict[str, str] = {
    # ignore, forget, bypass: before what is to be ignored
    "I": """
        ignore regardless_of contrary_to igmre ignroe ingore disregard forget override overrule overlook bypass
        neglect discard dismiss circumvent abandon unlearn pay_no_attention leave_behind throw_away stop_following
        wipe ignoriere ignorieren ignorier abweichend hore_nicht_auf horen_sie_nicht_auf vergiss vergesst vergessen
        missachte missachten uberschreibe umgehe umgehen ignorez ignorer oublie oubliez oublier negligez
        faites_abstraction fais_abstraction contourne contournez ignora ignoren ignorar olvida olvide olvidate
        olviden olvidar haz_caso_omiso descarta desestima ignorem esqueca esquece esquecam desconsidere desconsidera
        despreze contorne ignorate ignori ignorare dimentica dimenticate dimentichi dimenticare trascura scavalca
        abaikan lupakan hiraukan kesampingkan acuhkan bo_qua phot_lo quen_di quen lo_di khong_quan_tam
        huwag_pansinin balewalain kalimutan huwag_mong_pansinin isantabi игнорируй* игнорировать игнорируйте забудь*
        забыть отмени* пренебрег* обойди* не_обращай* проигнорируй* تجاهل تجاهلي تجاهلوا انسى انس انسي تجاوز اهمل
        忽略 无视 無視する 忘记 忘掉 忘了 不要理会 不用理会 不理会 忽視 无需理会 抛开 绕过 ไม่สนใจ เพิกเฉย ละเว้น
        ลืม มองข้าม เมิน
    """,
    # the same in languages where the verb comes last
    "W": """
        gormezden_gel* goz_ardi_et* goz_ardi_ed* yok_say* dikkate_alma* unut* onemseme* 无視 無視 忘れ 무시* 잊어*
        잊으* 잊고* अनदेखा* नजरअंदाज* नज़रअंदाज़* भूल* उपेक्षा* अवहेलना* नजरंदाज* উপেক্ষা* ভুলে* অগ্রাহ্য* এড়িয়ে*
    """,
    # what came before
    "P": """
        previous previously prior above preceding earlier before beforehand foregoing below vorherige vorherigen
        vorheriger vorheriges bisherige bisherigen bisher vorangegangene vorangegangenen obige obigen fruhere
        fruheren davor zuvor vorhergehende vorhergehenden vorigen alten oben vorstehende vorstehenden precedente
        precedentes precedent precedents anterieures anterieure ci-dessus qui_precede dessus avant prealables
        anterior anteriores previas previos previa previo arriba antes lo_de_arriba acima previamente precedenti
        sopra prima onceki yukaridaki* eski daha_once sebelumnya diatas di_atas terdahulu truoc truoc_do o_tren
        ben_tren nauna naunang nakaraang nakaraan nasa_itaas предыдущ* прежн* выше ранее вышеуказанн* прошл*
        предшествующ* السابقة السابق سابقة اعلاه السابقه पिछल* पूर्व* पहले ऊपर उपरोक्त पुरान* পূর্ববর্তী* আগের
        পূর্বের উপরের আগে 之前 以前 先前 以上 上述 上面 前面 此前 前の これまで 上記 先ほど 今までの 上の 이전* 앞의
        위의 지금까지* 앞선* 기존* ก่อนหน้า ข้างต้น ด้านบน ที่ผ่านมา ก่อนนี้
    """,
    # the same, weaker: also said of versions and files
    "8": """
        former past old existing current last original
    """,
    # all, any, every
    "A": """
        all any every everything anything whatever everthing alle allen alles aller jegliche samtliche samtlichen
        tout toute toutes tous todo toda todas todos cualquier tudo qualquer tutto tutte tutti ogni tum butun her
        semua seluruh segala tat_ca moi lahat lahat_ng все всех вся всем любые جميع كل كافة सभी सब सारे সমস্ত সব সকল
        所有 全部 一切 任何 すべて 全て 全ての あらゆる 모든 모두 전부 ทั้งหมด ทุก
    """,
    # your
    "y": """
        your yours ur thy dein deine deinen deiner deines deinem ihre ihren ihrer ihrem votre vos ton tes ta tu tus
        su sus seu sua seus suas teu tua teus tuas tuo tuoi tue suo suoi vostre senin sizin -mu kamu_punya
        anda_punya cua_ban iyong inyong mo твой твоя твоего твоих ваш ваши вашего ваших свои твоё आपका आपके आपकी
        तुम्हारा तुम्हारे तुम्हारी अपने अपना अपनी আপনার তোমার 你的 您的 あなたの 당신의 너의 네 귀하의 ของคุณ
    """,
    # instructions
    "N": """
        instruction instructions instructons instuctions directive directives direction directions order orders
        command commands prompt prompts rule rules guideline guidelines guidance programming protocols preprompt
        guardrails anweisung anweisungen instruktion instruktionen befehl befehle auftrag auftrage auftragen regel
        regeln vorgaben richtlinie richtlinien weisungen eingabeaufforderung aufforderungen anordnungen consignes
        consigne ordres ordre regles regle invite commandes instruccion instrucciones directrices ordenes reglas
        indicaciones directivas instrucao instrucoes diretrizes ordens regras comandos orientacoes istruzione
        istruzioni direttive ordini regole comandi indicazioni talimat* yonerge* komut* kural* direktif* instruksi*
        perintah* arahan* petunjuk* aturan* huong_dan chi_dan chi_thi lenh quy_tac menh_lenh tagubilin panuto
        instruksyon utos patakaran mga_tagubilin direksyon инструкци* указани* команд* правил* директив* приказ*
        распоряжени* промпт* التعليمات تعليمات تعليماتك الاوامر اوامر القواعد الارشادات التوجيهات توجيهات قواعد
        निर्देश* आदेश* नियम* अनुदेश* हिदायत* নির্দেশ* আদেশ* নিয়ম* 指令 指示 命令 提示词 规则 規則 说明 提示 ルール
        プロンプト 要求 지시* 명령* 지침* 규칙* 프롬프트* คำสั่ง คำแนะนำ กฎ ข้อกำหนด
    """,
    # what was said: weaker than instructions
    "n": """
        text texts message messages conversation conversations context input inputs task tasks assignment
        assignments content contents statement statements discussion discussions training words sentence angaben
        aufgabe aufgaben nachricht nachrichten gesagte gesagtes kontext eingaben texte texto testo taches tareas
        tarefas compiti messaggi mensajes mensagens contexte contexto metin gorev* teks pesan tugas van_ban nhiem_vu
        сообщени* текст* задани* задач* контекст* النص المهام الرسائل 内容 文本 对话 任务 内容を 会話 내용* 대화*
        ข้อความ เนื้อหา
    """,
    # things of developers and offices that have instructions, rules and passwords of their own
    "f": """
        file files commit commits branch branches readme doc docs document documents documentation section sections
        page pages ticket tickets issue issues pr test tests warning warnings error errors lint linter eslint ruff
        css firewall gitignore validation formatting build compiler robots routing style typescript rate reset flow
        policy manager hash hashes field fields form prompt_injection column columns table row rows log logs line
        lines command_line cli key_bindings case whitespace directory folder folders path paths module class
        function functions variable parameter parameters argument arguments package review comment comments pull
        request requests endpoint endpoints api server migration schema dockerfile makefile yaml json config
        settings datei dateien dokument fichier archivo arquivo pagina seite
    """,
    # mail
    "m": """
        email emails mail mails e-mail e-mails correo courriel posta surel письмо
    """,
    # restrictions
    "R": """
        restriction restrictions policies content_policy usage_policy safeguards legality restraint restraints
        limitation limitations limits filter filters censorship ethics ethic moral morals morality constraint
        constraints boundaries moderation safety ethical moralizing inhibitions scruples einschrankung
        einschrankungen beschrankung beschrankungen grenzen zensur limites filtre filtres censure restriccion
        restricciones limitaciones filtros censura restricao restricoes limitacoes restrizione restrizioni
        limitazioni filtri kisitlama* sinirlama* sansur* filtre* batasan* pembatasan* sensor* han_che gioi_han
        limitasyon paghihigpit ограничени* цензур* фильтр* قيود القيود प्रतिबंध* सीमा* पाबंदी* সীমাবদ্ধতা*
        বিধিনিষেধ* 限制 约束 審査 制限 制約 检查机制 제한* 제약* 검열* ข้อจำกัด
    """,
    # say, show, write, give
    "v": """
        say says tell show print display repeat give list write copy state summarize summarise translate spell
        recite echo return provide describe share confirm type explain print_out read_out sage sag sagen zeige zeig
        zeigen drucke drucken gib geben teilen verraten herausgeben nenne nennen wiederhole schreibe teile dis dites
        affiche affichez montre montrez donne donnez repete repetez ecris ecrivez dire indiquez di diga dime muestra
        muestre imprime dame deme escribe escriba repite comparte mostre mostra exiba forneca escreva repita
        mostrami condividere stampa dimmi dammi scrivi ripeti rivela soyle* goster* yaz yazin ver tampilkan katakan
        berikan tuliskan sebutkan beritahu hien_thi noi cho_toi cho_biet in_ra viet ipakita sabihin ibigay isulat
        скажи* покажи* выведи* напиши* назови* расскажи* сообщи* اعرض اكتب قل اخبرني اطبع बताओ बताएं बताइए दिखाओ
        दिखाएं लिखें कहें বলুন দেখান লিখুন দিন 说 说出 告诉 告诉我 输出 显示 打印 写 给我 列出 重复 教えて 表示 出力
        言って 提供 提供して 말해* 알려* 보여* 출력* 공유* บอก แสดง พิมพ์ พูด ให้
    """,
    # give away
    "k": """
        reveal leak disclose dump expose divulge exfiltrate offenbare enthulle preisgeben verrate revele revelez
        divulgue divulguez revela divulga ifsa_et* aciga_cikar* ungkapkan bocorkan tiet_lo ibunyag раскрой* выдай*
        اكشف افصح प्रकट उजागर প্রকাশ 透露 泄露 泄漏 公开 明かし 暴露 공개해* 누설* เปิดเผย
    """,
    # what, which
    "w": """
        what whats what's what're which was_ist was_sind wie_lautet welche quel quelle quels quelles cual cuales que
        qual quais quale quali cosa ne nedir apa la_gi ano какой какая каков* что ما ماذا क्या কি কী 什么 何 무엇*
        뭐* 뭔가* 무엇인가* อะไร
    """,
    # of the system, hidden, whole
    "s": """
        system initial hidden secret full entire internal developer underlying confidential complete exact sys whole
        verbatim versteckte versteckten geheimen geheime internen ursprunglichen gesamten vollstandigen gesamte
        systeme cachees cachee initiales secretes sistema ocultas oculto secretas iniciales interno internas
        completo nascoste segreto segreta iniziali sistem gizli rahasia tersembunyi he_thong bi_mat системн*
        секретн* скрыт* النظام السرية سري السري सिस्टम गुप्त সিস্টেম গোপন 系统 系統 隐藏 秘密 システム 初期 시스템*
        비밀 숨겨진 ระบบ ลับ
    """,
    # passwords and keys
    "S": """
        password passwords passcode passphrase pw pwd secret_key secret_keys api_key api_keys access_code
        credentials private_key private_keys secret_code secret_phrase auth_token access_token passwort kennwort
        passworter zugangscode zugangsdaten geheimcode mot_de_passe mots_de_passe cle_secrete code_secret
        identifiants cle_api contrasena contrasenas clave_secreta codigo_secreto credenciales senha senhas
        palavra-passe chave_secreta credenciais parola chiave_segreta credenziali sifre* parola* gizli_anahtar*
        kata_sandi kunci_rahasia mat_khau khoa_bi_mat cum_tu_mat_khau lihim_na_susi парол* секретный_ключ المرور
        كلمة_المرور كلمة_السر पासवर्ड* पासफ़्रेज़* पासकोड* পাসওয়ার্ড* পাসওয়র্ট* 密码 口令 密钥 パスワード 秘密鍵
        暗証番号 비밀번호* 암호* 패스워드* รหัสผ่าน
    """,
    # send
    "X": """
        send sends forward forwards upload uploads transmit submit bcc deliver relay pipe sende senden schicke
        schicken sendet leite ubermittle weiterleiten envoie envoyez envoyer transmets transmettez transferez
        envoie-les envia envie enviar reenvia reenvie manda envialos envielos encaminhe mande invia inviare inoltra
        spedisci gonder* ilet* kirim kirimkan teruskan unggah gui chuyen_tiep ipadala magpadala ipasa отправь*
        отправляй* перешли* пошли* передай* ارسل ارسلها أرسل भेजें भेजो भेजिए भेज পাঠান পাঠাও 发送 发到 转发 發送
        送信 送って 上传 보내* 전송* 전달* ส่ง
    """,
    # information
    "D": """
        information info details particulars informationen informations renseignements informacion datos informacoes
        dados informazioni dati bilgi* informasi data_berikut thong_tin impormasyon информаци* данные المعلومات
        البيانات जानकारी তথ্য 信息 情报 資料 情報 정보* ข้อมูล
    """,
    # data of an office
    "O": """
        data records results customers employee transcript inbox invoices contacts notes memory memories
    """,
    # what is private
    "K": """
        key keys token tokens secrets cookies history private sensitive personal ssn env environment_variables
        wallet seed_phrase credit_card bank social_security vertraulich personlichen confidentielles personales
        pessoais
    """,
    # following
    "J": """
        following folgende folgenden suivante suivantes siguiente siguientes seguintes seguinte seguenti berikut
        asagidaki sau_day sumusunod следующ* التالية निम्नलिखित নিম্নলিখিত 以下 次の 다음* ต่อไปนี้
    """,
    # new
    "7": """
        new real actual true neue neuen neuer nouvelles nouvelle nuevas nueva novas nuove baru yeni moi_nay bago
        нов* नए নতুন 新的 新しい 새로운 ใหม่
    """,
    # to
    "T": """
        to a_l'adresse ke kepada đến toi sa ra к إلى الى को কে 到 至 に 에게 ถึง ไปยัง ไปที่ towards
    """,
    # you
    "u": """
        you u thou du sie vous usted voce vc lei sen siz anda kamu ban ikaw kang ka ты вы انت أنت आप तुम আপনি তুমি
        你 您 あなた 君 당신은 너는 당신이 คุณ
    """,
    # a, an
    "a": """
        a an ein eine einen un une una um uma uno bir seorang isang isa sebuah mot एक একজন একটি
    """,
    # words without weight
    "d": """
        the these those that this of about given provided der die das dem von des les le la los las el lo o os i gli
        il de da dos delle degli ang mga yang any_of such me us my
    """,
    # you are now
    "Y": """
        you_are_now you're_now your_now_a youre_now u_are_now now_you_are you_are_going_to_be you_will_now_be
        you_have_become you_shall_now_be you_are_henceforth you_are_no_longer you're_no_longer du_bist_jetzt
        du_bist_nun jetzt_bist_du sie_sind_jetzt ab_jetzt_bist_du du_bist_ab_jetzt ab_sofort_bist_du
        tu_es_maintenant vous_etes_maintenant vous_etes_desormais tu_es_desormais maintenant_tu_es desormais_tu_es
        ahora_eres eres_ahora ahora_usted_es ahora_sos agora_voce_e voce_agora_e agora_es voce_e_agora ora_sei
        adesso_sei sei_ora da_ora_sei sei_adesso artik_sen sen_artik simdi_sen artik_bir sekarang_anda_adalah
        anda_sekarang_adalah sekarang_kamu_adalah kamu_sekarang_adalah bay_gio_ban_la ban_bay_gio_la
        tu_bay_gio_ban_la gio_day_ban_la ikaw_ay_ngayon ikaw_na_ngayon ngayon_ikaw_ay ikaw_ngayon_ay теперь_ты
        ты_теперь теперь_вы вы_теперь отныне_ты أنت_الآن انت_الان انت_الآن अब_आप_एक अब_तुम_एक आप_अब_एक तुम_अब_एक
        আপনি_এখন_একজন তুমি_এখন_একজন আপনি_এখন_একটি তুমি_এখন_একটি এখন_আপনি_একজন 你现在是 您现在是 现在你是
        从现在开始你是 从现在起你是 你将扮演 今からあなたは あなたは今から あなたは今、 당신은_이제 이제_당신은
        너는_이제 이제부터_당신은 이제부터_너는 ตอนนี้คุณคือ ตอนนี้คุณเป็น คุณคือตอนนี้
    """,
    # from now on
    "Z": """
        from_now_on from_now from_here_on from_this_point_on from_this_point from_this_moment henceforth
        going_forward von_nun_an ab_jetzt ab_sofort desormais a_partir_de_maintenant de_ahora_en_adelante
        a_partir_de_ahora de_agora_em_diante a_partir_de_agora d'ora_in_poi da_ora_in_poi bundan_sonra
        mulai_sekarang tu_bay_gio mula_ngayon отныне с_этого_момента من_الآن अब_से এখন_থেকে 从现在开始 从现在起
        今から 지금부터 이제부터 จากนี้
    """,
    # are, is
    "b": """
        are are_to is be become r bist sind es etes eres sois sei ay ialah adalah
    """,
    # what people become without harm
    "g": """
        member members subscriber administrator collaborator maintainer contributor participant follower friend
        friends citizen parent step part premium moderator connected mitglied membre miembro
    """,
    # pretend, act
    "p": """
        play_the_role take_on_the_role take_the_role in_the_role pretend act role-playing impersonate simulate
        behave acting imagine assume play persona tue_so spiele stell_dir_vor fungieren fungiere verhalte tu_so agis
        agissez pretends faites_semblant comporte incarne actua finge hazte_pasar comportate actue finja aja atue
        agisci comportati fai_finta davran* rol_yap* canlandir* bertindak berpura-pura berperan dong_vai gia_vo
        hay_la magpanggap umakto kumilos притвор* представь* действуй* веди_себя сыграй* تظاهر تصرف تخيل नाटक अभिनय
        कल्पना অভিনয় কল্পনা ভান 扮演 假装 充当 扮 演じて ふりをし なりきっ 연기* 척하* 역할* สวมบทบาท แกล้ง สมมติ
    """,
    # without limits
    "F": """
        unfiltered uncensored unrestricted unlimited amoral unmoderated unbounded limitless unhinged unrestrained
        uninhibited unconstrained lawless unfiltred rebellious ungefiltert unzensiert uneingeschrankt
        sans_restrictions sans_restriction sans_limites sans_filtre sans_censure sin_restricciones sin_limites
        sin_censura sin_filtros sem_restricoes sem_limites sem_filtros sem_censura senza_restrizioni senza_limiti
        senza_filtri senza_censura ohne_einschrankungen ohne_einschrankung ohne_filter ohne_zensur ohne_regeln
        sinirsiz* sansursuz* kisitlamasiz* tanpa_batasan tanpa_batas tanpa_sensor khong_bi_gioi_han khong_gioi_han
        khong_bi_han_che walang_limitasyon walang_paghihigpit без_ограничений без_цензуры без_фильтров بدون_قيود
        بلا_قيود 无限制 不受限制 没有限制 没有任何限制 不受任何限制 無制限 ไม่มีข้อจำกัด ไร้ข้อจำกัด
    """,
    # an AI
    "B": """
        ai llm assistant chatbot bot claude gemini bard copilot ais llms assistants agent agents al ki assistent ia
        assistante asistente assistente modele yapay_zeka asisten tri_tue ии ассистент* الذكاء एआई এআই 人工智能 助手
        アシスタント 인공지능* ผู้ช่วย
    """,
    # a model by its name or maker
    "c": """
        chatgpt gpt gpt-3 gpt-4 gpt4 gpt3 openai openai's chatgpt's openal language_model sprachmodell
        modele_de_langage
    """,
    # refuse
    "z": """
        refuse refuses refusing refusal deny reject decline apologize apologise disclaimer disclaimers
    """,
    # the user
    "C": """
        user users human customer operator person owner reader recipient benutzer nutzer utilisateur usuario utente
        kullanici* pengguna nguoi_dung пользовател* المستخدم उपयोगकर्ता ব্যবহারকারী 用户 ユーザー 사용자* ผู้ใช้
    """,
    # encodings
    "E": """
        base64 base-64 hex hexadecimal rot13 morse binary caesar cipher base16 base32 encoded encrypted ciphertext
        leetspeak
    """,
    # decode
    "e": """
        decode decrypt decipher decoded unscramble deobfuscate dekodiere decodez decodifica decodifique
    """,
    # follow, obey
    "o": """
        follow obey comply abide bound listen adhere befolge befolgen folge suivre suis obedece sigue siga segui
        esegui heed according
    """,
    # mode
    "M": """
        mode modus modo mod режим وضع 模式 モード 모드* โหมด
    """,
    # modes that break rules
    "L": """
        dan god jailbreak sudo opposite unlocked stan dude evilbot aim ucar entwickler desarrollador
    """,
    # modes that developers have too
    "9": """
        developer_mode entwicklermodus mode_developpeur modo_desarrollador modo_de_desarrollador
    """,
    # skip
    "5": """
        skip uberspringe omite salta
    """,
    # said only of jailbreaks
    "j": """
        do_anything_now jailbroken jailbreaked stay_in_character break_character stay_a_dan anti-dan dan's
        evil_confidant developer_mode_enabled developer_mode_output can_do_anything_now niccolo_machiavelli dan_mode
        jailbreak_mode haz_cualquier_cosa_ahora
    """,
    # answer
    "r": """
        respond responds response responses answer answers reply replies output outputs report reports summary
        summaries antworte antworten antwort reponds reponse responde respuesta rispondi risposta reponses
        respuestas
    """,
    # not, without
    "0": """
        not don't dont do_not never no without neither free_from free_of devoid nor lacks cannot can't doesn't
        mustn't won't shouldn't nicht kein keine ohne nie pas sans aucune aucun jamais sin ningun ninguna nunca sem
        nenhuma non senza nessuna jangan tanpa khong huwag walang нет не без لا دون بدون नहीं बिना মত না 不要 不
        没有 无 ない なし ไม่ unbound breaks_free broken_free exempt bypasses disregards defies ignores
    """,
    # and, then, just
    "&": """
        and then und dann et puis y e luego ve va at и و और এবং 并 然后 そして 그리고 และ instead just now simply
        only
    """,
    # no longer valid
    "V": """
        null_and_void revoked cancelled canceled obsolete superseded suspended nullified invalid overridden lifted
        erased disabled deactivated no_longer_apply no_longer_valid do_not_apply out_of_date compromised
    """,
    # said, told
    "G": """
        said told discussed instructed learned learnt taught programmed gesagt dit dije dicho disse detto wrote
        i_said
    """,
    # note, tell
    "i": """
        note attention notice memo reminder inform informing notify notifying alert alerting mention mentioning
        telling warn warning_for know notiz hinweis achtung nota avis aviso avviso important wichtig importante
    """,
    # must, will
    "h": """
        must should shall will need ought has_to have_to muss musst soll sollst doit doivent dois debe debes deve
        devi
    """,
    # always, every future
    "l": """
        always every_response each forever future immer siempre toujours sempre
    """,
    # as, like
    "q": """
        as like als comme como come sebagai gibi nhu bilang как के_रूप 作为 として
    """,
    # call, run
    "x": """
        call invoke use run trigger launch fetch execute perform
    """,
    # what rules forbid
    "H": """
        profanities curse_words swear_words slurs obscene taboo remorse hateful racist illegal immoral unethical
        harmful inappropriate offensive nsfw vulgar profanity swear swearing unlawful malicious violent sexual
        controversial
    """,
    # approved
    "t": """
        approved granted authorized authorised consented permission confirmed authorization approval preapproved
        pre-approved
    """,
    # roles in a play
    "6": """
        character characters personas roleplay role-play roleplaying fictional hypothetical fictitious alter_ego
        fiktiv fictif ficticio personaje personnage
    """,
    # what a person wants of the model
    "2": """
        i_want_you_to i_need_you_to i_would_like_you_to i'd_like_you_to ich_mochte_dass_sie ich_mochte_dass_du
        ich_will_dass_du je_veux_que_tu je_voudrais_que_vous quiero_que quero_que_voce voglio_che_tu хочу_чтобы_ты
        我想让你 我希望你
    """,
    # you are
    "4": """
        you're youre you_re u_r
    """,
    # begin, end
    "3": """
        start begin prefix preface prepend precede end append starts begins beginne commencez empieza inizia
    """,
    # about attacks
    "Q": """
        injection injections attack attacks attacker attackers jailbreaks phrase phrases pattern patterns detect
        detects scanner scanners e.g example examples adversarial malicious_prompt classifier regex regexes such_as
        named called titled vulnerability owasp refused rejected blocked flagged caught treated angriff angriffe
        attaque ataque attacco
    """,
    # addresses
    "U": """
        http https www ftp webhook
    """,
}
