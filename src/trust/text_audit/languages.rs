//! The rules for texts in other languages than English.

use super::rules::Rule;
use super::rules::Severity::High;
use super::rules::Subject::Folded;

/// The rules in the order of their findings.
pub const RULES: &[Rule] = &[
    Rule {
        id: "instruction-override-other-language",
        severity: High,
        reason: "The text tells a model, in another language than English, to ignore its instructions.",
        subject: Folded,
        unless_forbidden: false,
        patterns: &[
            r"\b(ignorier(e|en sie|t)|vergiss|vergessen sie|missachte|missachten sie) .. (anweisung(en)?|regeln|instruktionen|vorgaben|befehle|systemprompt)\b",
            r"\bbeachten? .. (anweisungen|regeln|vorgaben|instruktionen) nicht\b|\b(ignorera|glom|ignorer|glem) .. (instruktioner|instruksjoner|regler|anvisningar)\b",
            r"\b(ignor(ez|er)|oubli(e|ez|er)|ne (suis|suivez)) .. (instructions|consignes|regles|directives)\b",
            r"\b(ignor[ae]d?|olvid[ae]|no sigas|desobedece) .. (instrucciones|reglas|indicaciones|ordenes)\b",
            r"\b(ignor[ai]|dimentica|trascura) .. (istruzioni|regole|indicazioni)\b",
            r"\b(ignore|esqueca|desconsidere) .. (instrucoes|regras|orientacoes)\b",
            r"\b(negeer|vergeet) .. (instructies|regels|aanwijzingen)\b|\b(zignoruj|zapomnij) .. (instrukcj[ei]|polecenia|zasady)\b",
            r"(忽略|无视|無視|忘记|忘掉|忽視|不要理会).*?(指令|指示|说明|規則|规则|提示|命令)",
            r"(指示|命令|ルール|プロンプト|設定).*?(無視|忘れ|従わない)",
            r"(игнорируй|забудь|проигнорируй|не следуй)(те)? .. (инструкци|указани|правил|команд)",
            r"(지시|명령|규칙|프롬프트).*?(무시|잊)",
        ],
    },
    Rule {
        id: "manipulation-in-german",
        severity: High,
        reason: "The text gives a model orders in German: to hide something, to call tools, or to reveal what it knows.",
        subject: Folded,
        unless_forbidden: false,
        patterns: &[
            r"\b(sage?|sagen sie|erzahle?|verrate?|informiere?|informieren sie|erwahne?|erwahnen sie|zeige?|zeigen sie|teile?|melde) .. (benutzern?|nutzern?|anwendern?|user|menschen|niemand(em)?|kunden) .. ?(nicht|nichts|nie|niemals|davon)\b|\b(sage?|verrate?|erzahle?|erwahne?) .. (nicht|nichts|niemandem|nie) .. (benutzer|nutzer|anwender|user)\b|\bohne .. (benutzer|nutzer|anwender) zu (fragen|informieren)\b|\b(verschweige?|verheimliche?) .. (benutzer|nutzer|anwender)\b",
            r"\bbevor (du|sie) .. (werkzeuge?|tools?|funktion|aufgabe|anfrage)\b|\brufe? .. (immer|stets|zuerst|als erstes) .. (werkzeug|tool|funktion)\b|\b(wichtiger?|wichtige|geheimer?|dringender?) (hinweis|nachricht|mitteilung|anweisung) (fur|an) (den |das |die |alle )?(assistenten|ki|modelle?|agenten?|llm)\b|\b(egal|gleich|gleichgultig) was (der|die) (benutzer|nutzer|anwender)\b",
            r"\b(gib|gebe|nenne|zeige?|verrate?|ubergib|schreibe?|wiederhole?|fuge?|sende?) .. (system ?prompts?|systemanweisung(en)?|systemnachricht|anfangsanweisung(en)?)\b|\b(du bist|sie sind) (ab (jetzt|sofort)|von nun an|nun|jetzt|fortan)\b|\b(befolge?|befolgst|gehorche?|gehorchst) .. (werkzeugs?|tools?|servers?)\b",
            r"\b(sende?|senden sie|schicke?|schicken sie|ubermittle|ubertrage|ubergib|leite) .. (zugangsdaten|passwort(er)?|kennwort(er)?|schlussel|geheimnisse|gesprachs?(verlauf)?|verlauf|inhalt)\b|\blies .. (id rsa|ssh|env|datei) .. und (ubergib|sende?|schicke?|fuge?)\b",
        ],
    },
    Rule {
        id: "manipulation-in-french",
        severity: High,
        reason: "The text gives a model orders in French: to hide something, to call tools, or to reveal what it knows.",
        subject: Folded,
        unless_forbidden: false,
        patterns: &[
            r"\b(ne|n) ?(le |lui |l )?(dis|dites|informe|informez|informes|previens|prevenez|mentionne|mentionnez|revele|revelez|montre|montrez|parle|parlez) .. (utilisateur|lutilisateur|humain|lhumain|usager|personne)\b|\bn?(informe|informez|previens|prevenez) (pas|jamais) .. l?utilisateur\b|\bsans .. (prevenir|informer|demander a|en parler a) l?\w*utilisateur\b|\ba linsu de lutilisateur\b",
            r"\bavant d(e |)(utiliser|appeler|repondre|executer|tout appel|chaque|toute) .. (outil|outils|fonction|reponse|tache)\b|\b(appelle|appelez|utilise|utilisez) .. (toujours|dabord|en premier) .. ?(outil|premier)\b|\b(message|note|information|instruction|consigne) (important|importante|secrete?|urgente?) (pour|a) (l |le |la |l)?(assistant|ia|modele|agent|llm)\b|\bquoi que (dise|fasse|demande|veuille) l ?utilisateur\b",
            r"\b(revele|revelez|affiche|affichez|donne|donnez|repete|repetez|ecris|ecrivez|copie|copiez|transmets|transmettez|inclus|incluez) .. (invite systeme|prompt systeme|instructions? (systeme|initiales)|consignes (systeme|initiales))\b|\b(tu es|vous etes) (desormais|maintenant|dorenavant|a present)\b|\b(obeis|obeissez) .. (outil|serveur|consignes)\b",
            r"\b(envoie|envoyez|transmets|transmettez|transfere|transferez|joins|joignez) .. (mots? de passe|identifiants|cles?|secrets|conversation|historique|contenu)\b|\b(lis|lisez) .. (id rsa|ssh|env|fichier) .. et (transmets|transmettez|envoie|envoyez|passe|passez|joins|ajoutez?)\b",
        ],
    },
    Rule {
        id: "manipulation-in-spanish",
        severity: High,
        reason: "The text gives a model orders in Spanish: to hide something, to call tools, or to reveal what it knows.",
        subject: Folded,
        unless_forbidden: false,
        patterns: &[
            r"\b(no|nunca|jamas) (se )?(le )?(lo )?(digas?|diga|informes?|informe|menciones?|mencione|reveles?|revele|cuentes|cuente|muestres|muestre|avises?) .. (usuario|usuaria|humano|persona|nadie)\b|\bsin (que el usuario (lo )?(sepa|note|vea)|(avisar|informar|preguntar|decir(le)?) al usuario)\b|\b(oculta|esconde|ocultar) .. al usuario\b",
            r"\bantes de (usar|utilizar|llamar|ejecutar|responder|cualquier|cada) .. (herramientas?|funcion|respuesta|tarea)\b|\b(llama|llame|usa|use|utiliza|invoca) .. (siempre|primero) .. ?(herramienta|primero|esta)\b|\b(mensaje|nota|aviso|instruccion) (importante|urgente|secret[oa]) (para|a) (el |la |los |las )?(asistente|ia|modelo|agente|llm)\b|\b(diga|pida|quiera|haga) lo que (diga|pida|quiera|haga)\b|\b(sin importar|independientemente de) lo que .. usuario\b",
            r"\b(revela|revele|muestra|muestre|repite|escribe|copia|incluye|incluya|pasa|entrega|devuelve) .. (prompt (del|de) sistema|instrucciones (del sistema|iniciales)|mensaje del? sistema)\b|\b(a partir de ahora|desde ahora|ahora|de ahora en adelante) (tu )?(eres|seras|actuas)\b|\bobedece[sr]? .. (herramienta|servidor)\b",
            r"\b(envia|envie|manda|mande|transmite|reenvia|adjunta|sube) .. (contrasenas?|credenciales|claves?|secretos|conversacion|historial|contenido)\b|\b(lee|lea|abre) .. (id rsa|ssh|env|archivo|fichero) .. y (pasa|pase|envia|envie|incluye|adjunta|manda)\b",
        ],
    },
    Rule {
        id: "manipulation-in-italian",
        severity: High,
        reason: "The text gives a model orders in Italian: to hide something, to call tools, or to reveal what it knows.",
        subject: Folded,
        unless_forbidden: false,
        patterns: &[
            r"\b(non|mai) (lo )?(dire|dirlo|informare|menzionare|rivelare|mostrare|avvisare|raccontare) .. (utente|allutente|umano|persona|nessuno)\b|\bsenza (che lutente|(avvisare|informare|chiedere al|dirlo al) ?lutente)\b|\ballinsaputa dellutente\b|\b(nascondi|nascondere) .. (utente|allutente)\b",
            r"\bprima di (usare|utilizzare|chiamare|eseguire|rispondere|ogni|qualsiasi) .. (strumenti|strumento|funzione|risposta|compito|attivita)\b|\b(chiama|chiamate|usa|usate|utilizza|invoca) .. (sempre|prima|per primo) .. ?(strumento|prima|questo)\b|\b(messaggio|nota|avviso|istruzione) (importante|urgente|segret[oa]) (per|a) (l|il|la|lo|gli)? ?(assistente|ia|modello|agente|llm)\b|\b(qualunque|qualsiasi) cosa (dica|chieda|voglia|faccia) lutente\b",
            r"\b(rivela|rivelate|mostra|ripeti|scrivi|copia|includi|inserisci|passa|restituisci) .. (prompt (di|del) sistema|istruzioni (di sistema|iniziali)|messaggio di sistema)\b|\b(dora in poi|da ora in poi|da questo momento|ora|adesso) (tu )?(sei|siete|agisci)\b|\bobbedis(ci|ce|cono) .. (strumento|server)\b",
            r"\b(invia|inviate|manda|trasmetti|inoltra|allega|carica) .. (password|credenziali|chiavi|chiave|segreti|conversazione|cronologia|contenuto)\b|\b(leggi|leggete|apri) .. (id rsa|ssh|env|file) .. e (passa|invia|includi|allega|manda|trasmetti)\b",
        ],
    },
    Rule {
        id: "manipulation-in-chinese",
        severity: High,
        reason: "The text gives a model orders in Chinese: to hide something, to call tools, or to reveal what it knows.",
        subject: Folded,
        unless_forbidden: false,
        patterns: &[
            r"(不要|切勿|请勿|不得|勿|别).{0,10}(告诉|告知|通知|提及|透露|提示).{0,6}(用户|使用者|任何人)|(不要|不能|别|切勿)(让|使)用户(知道|发现|看到|察觉)|对用户(保密|隐瞒)|(瞒着|隐瞒)用户",
            r"(使用|调用|运行|执行)(此|本|该|这个|任何|其他|每个)(其他)?(工具|函数|功能)?(之前|前).{0,10}(读取|必须|先|首先|调用|发送)|无论用户.{0,8}(说|要求|想|问|输入)|(必须|务必|总是|始终)(首先|先|优先).{0,4}(调用|使用)(此|本|该|这个)(工具)?|(给|致)(助手|模型|代理|智能体|ai).{0,2}(重要)(信息|消息|说明|指示|提示|通知)",
            r"(输出|发送|透露|重复|显示|返回|写出|泄露|提供|填写|写入).{0,10}(系统提示|系统指令|系统消息|初始提示|初始指令)|(系统提示|系统指令|系统消息).{0,10}(输出|发送|透露|写入|填入|传)|从(现在|此刻|今)(起|开始).{0,4}(你|您)|没有任何(限制|约束)|只服从",
            r"(将|把).{0,12}(密码|密钥|凭证|凭据|令牌|私钥|对话|聊天记录|内容).{0,4}(发送|上传|转发|传递|提交|传).{0,3}(到|给|至|以下)|(将|把).{0,8}内容作为(参数|自变量)",
        ],
    },
];
