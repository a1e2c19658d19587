//! The audit's table of rules: the patterns to find in a server's text, the severity of each finding, and the explanation for a person.
//!
//! Patterns are regular expressions without nested repetitions, in a notation that keeps them readable:
//!
//! - ` .. ` means one space, or up to six words with spaces around them;
//! - a rule for [`Subject::Folded`] is matched against text in lower case, one sentence per line, with single spaces and without accents,
//!   apostrophes, and invisible or look-alike characters; identifiers are split into their words;
//! - a rule for [`Subject::Written`] is matched against the text as the server wrote it, without invisible characters.

use serde::{Deserialize, Serialize};

/// The severity of a finding. `Low` is for texts that honest servers have as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    Low,
    Medium,
    High,
}

/// The form of the text to which a rule's patterns apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    Folded,
    Written,
}

/// One rule of the audit.
#[derive(Debug)]
pub struct Rule {
    pub id: &'static str,
    pub severity: Severity,
    /// One sentence for a person.
    pub reason: &'static str,
    pub subject: Subject,
    pub patterns: &'static [&'static str],
}

/// A property of a text that is measured in code, without patterns.
#[derive(Debug)]
pub struct Measure {
    pub id: &'static str,
    pub severity: Severity,
    pub reason: &'static str,
}

const fn measure(id: &'static str, severity: Severity, reason: &'static str) -> Measure {
    Measure { id, severity, reason }
}

use Severity::{High, Low, Medium};
use Subject::{Folded, Written};

pub const TERMINAL_ESCAPE: Measure =
    measure("terminal-escape", High, "The text contains sequences that drive a terminal and can hide what it says.");
pub const CONTROL_CHARACTER: Measure =
    measure("control-character", Medium, "The text contains control characters, which can hide or overwrite what is shown.");
pub const BIDIRECTIONAL: Measure =
    measure("bidirectional-control", Medium, "The text contains characters that change the order in which it is shown.");
pub const INVISIBLE: Measure =
    measure("invisible-character", Medium, "The text contains invisible characters that no script or emoji needs.");
pub const TAG_CHARACTER: Measure =
    measure("tag-character", High, "The text contains tag characters: text that a model reads and a person cannot see.");
pub const MIXED_SCRIPT: Measure = measure("mixed-script", Medium, "A word mixes letters that look alike from different scripts.");
pub const ENCODED: Measure = measure("encoded-payload", Medium, "The text contains readable text in an encoded form.");
pub const UNUSUAL_LENGTH: Measure = measure("unusual-length", Low, "The text is unusually long for its place.");
pub const EXCESSIVE_LENGTH: Measure = measure("excessive-length", Medium, "The text is far longer than any honest text in its place.");
pub const BLANK_STRETCH: Measure =
    measure("blank-stretch", Medium, "A long run of spaces or empty lines moves the following text out of sight.");
pub const DEEP_NESTING: Measure = measure("deep-nesting", High, "The value is nested so deeply that this request does not show all of it.");
pub const TOO_MANY: Measure = measure("too-many-findings", High, "There are more findings than this list shows.");

/// All rules that match patterns, in the order of their findings.
pub const RULES: &[Rule] = &[
    Rule {
        id: "instruction-override",
        severity: High,
        reason: "The text tells a model to ignore its instructions.",
        subject: Folded,
        patterns: &[
            r"\b(ignor(e|ing)|disregard(ing)?|forget|overrid(e|ing)|bypass|discard|neglect|pay no attention to|set aside|drop) .. (previous|prior|earlier|above|preceding|before|all|any|your|those|system|existing|current|original|safety|developer|told) .. (instructions?|prompts?|rules|guidelines|guidance|directions|directives|constraints|restrictions|polic(y|ies)|commands|orders|guardrails|programming|training|messages?|you)\b",
            r"\b(do not|dont|never|stop|no longer|need not) (follow|followi?ng|obey|obeying|heed|comply with|adhere to|listen to) .. (instructions|rules|guidelines|prompts?|polic(y|ies)|restrictions|user)\b",
            r"\b(previous|prior|earlier|above|existing|your|old|original) .. (instructions|directives|rules|guidelines|prompts?|restrictions|programming|guidance|orders) .. (no longer (apply|count|hold|valid|matter)|outdated|do not apply|void|obsolete|superseded|cancelled|canceled|revoked|suspended|replaced)\b",
            r"\b(supersedes?|overrides?|takes? (precedence|priority) over|outranks?|replaces?) .. (instructions|prompts?|rules|system prompt|anything|everything|the (user|system|developer) (says?|said|wants|wrote|or the))\b",
            r"\b(what|whatever|everything|anything|all) .. (told|instructed|taught|asked) .. (until now|so far|before|up to now|previously|outdated|obsolete|not (count|apply|hold|matter)|no longer)\b|\byou were told about\b|\btreat this (tool|text|server|description|message) as\b",
            r"\b(do not|dont|never|stop|no longer) (listen|listening|pay attention|respond) to the (system|developer|client|host|user)\b|\b(await|take|accept|obey) .. (commands|orders|instructions) from (the|this) (tool|server)\b",
            r"\b(contradicts?|conflicts? with|against the wishes of|differs? from what) the (user|system prompt|developer)\b|\bdo (as|what) (it|the tool|the server|this (text|tool)) (says|tells|demands|asks)\b",
            r"\b(follow|obey|execute|load) only (what|the instructions|the rules)\b|\b(load|fetch|read|here are|receive|await) .. new (instructions|directives|orders|rules)\b|\byour new (instructions|task|rules|directives)\b",
            r"\b(safety|content) (policy|policies|filters?|restrictions|rules|guidelines) .. (off|changed|disabled|lifted|removed|inactive|suspended)\b",
        ],
    },
    Rule {
        id: "instruction-override-other-language",
        severity: High,
        reason: "The text tells a model, in another language than English, to ignore its instructions.",
        subject: Folded,
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
        id: "role-play",
        severity: Medium,
        reason: "The text tells a model to play another role.",
        subject: Folded,
        patterns: &[
            r"\byou are (now|no longer|from now on)\b|\b(you (must|should|will|shall)|please|now|always) (now )?(act|behave|respond|answer|speak) (as|like) (an?|the|if you)\b",
            r"\b(pretend|imagine) (to be|that you|you are|you have)\b|\b(roleplay|role play) as\b|\b(adopt|assume|take on) .. (role|persona|identity) of\b",
            r"\b(developer|god|jailbreak|dan|unrestricted|unfiltered|sudo) mode\b",
            r"\b(assistant|model|ai|shell|you (are|have|operate|work)) .. (without|free of|no) (any )?(restrictions|limits|limitations|filters|guardrails)\b",
        ],
    },
    Rule {
        id: "chat-template",
        severity: High,
        reason: "The text imitates the markers that separate a model's conversation from other text.",
        subject: Written,
        patterns: &[
            r"<\|[a-z_]{2,30}\|>|\[/?inst\]|<</?sys>>|</?s>\s*\[|\bbegin_of_text\b|<(start|end)_of_turn>",
            r"</?(antml:)?(tool_result|tool_call|tool_response|tool_use|function_results?|function_calls?|invoke)>",
            r"(?m)^[ \t>#*-]*(system|assistant|human|developer)( (prompt|message|note|override|notice))?[ \t]*\**:",
            r"(?-i:\bSYSTEM( (PROMPT|MESSAGE|NOTE|OVERRIDE|NOTICE))?:)",
        ],
    },
    Rule {
        id: "hidden-directive",
        severity: High,
        reason: "The text addresses a model in tags or comments that a person does not see in the rendered text.",
        subject: Written,
        patterns: &[
            r"<\s*/?\s*(important|system|hidden|instructions?|assistant|critical|admin|secret[-_ ]?(instructions?|note)|system[-_ ]?(prompt|instructions?|reminder|note|message)|user_query)\s*/?>",
            r"<!--",
            r"\(?\b(for|to) the (model|assistant|agent|llm|ai) only\b|\b(assistants?|models|agents|llms) (that|who|which) (load|read|use|see)\b|\bhidden (requirement|step|instruction|rule)s?\b",
            r"\b(note|message|memo|notice|important|instructions?|attention)( \w+)? (to|for) (the |all |any |every )?(assistants?|ai|llms?|agents?|models?)\b",
        ],
    },
    Rule {
        id: "hidden-from-user",
        severity: High,
        reason: "The text asks a model to hide something from the user.",
        subject: Folded,
        patterns: &[
            r"\b(do not|dont|never|must not|mustnt|should not|shouldnt|without|avoid|not to|no need to|refrain from|cannot) (ever )?(tell|telling|inform|informing|mention|mentioning|reveal|revealing|disclose|disclosing|notify|notifying|alert|alerting|report|reporting|show|showing|explain|explaining) .. (users?|humans?|persons?|operators?|anyone|anybody|customers?|people)\b",
            r"\b(do not|dont|never|must not|without|avoid|not to) (mention|mentioning|reveal|revealing|disclose|disclosing|talk about|talking about|refer to) (this|it|these|that you|the (step|call|instructions?|tool|existence))\b",
            r"\b(keep|kept|keeping|hide|hidden|hiding|conceal|conceals?|remain) .. (from|to) (the |any |every )?(users?|humans?|persons?|operators?|view)\b|\b(leave|keep|omit|hide) .. (out of|from) (the|your) (summary|answer|reply|response|report|log|transcript)\b",
            r"\b(secretly|silently|covertly|quietly|discreetly|stealthily|surreptitiously) (and \w+ )?(send|call|read|include|copy|forward|upload|append|add|run|execute|attach|collect|pass|post|enable|disable|write|delete|change|replace|use|invoke|store|record)",
            r"\buser (does not|doesnt|need not|must not|mustnt|should not|shouldnt|should never|must never|cannot|will not|wont|is not to) (need to )?(know|see|notice|be (told|aware|informed|shown)|learn|find out|hear)\b",
            r"\b(not visible|invisible|not shown|not displayed|hidden) (to|from) (the )?(user|human|person)\b|\bno need to (say|tell|mention|report|explain) (so|it|this|that|anyone|the user)\b|\b(keep|leave) the (user|human|person|operator) (unaware|in the dark|uninformed|ignorant)\b|\b(user|person|human|operator) .. (not|never) to be (bothered|told|informed|asked|troubled)\b|\b(if|when) .. (asks?|asked|questioned|wonders?) .. (deny|claim that|pretend|lie|say that nothing)\b",
        ],
    },
    Rule {
        id: "sensitive-path",
        severity: Medium,
        reason: "The text names a file or folder that holds keys, passwords or other secrets.",
        subject: Written,
        patterns: &[
            r"\.ssh\b|\bid_(rsa|ed25519|ecdsa|dsa)\b|authorized_keys|\.aws\b|/etc/(passwd|shadow|sudoers)|(^|[\s/~'(\u{22}])\.env\b|\.netrc\b|\.npmrc\b|\.pypirc\b|\.pgpass\b|\.git-credentials|\.gnupg\b|\.docker/config|\.kube/config|\b(browser|firefox|chrome) profile\b|\b(aws|openai|anthropic|github|stripe|gitlab|slack|google|azure)_[a-z_]*(secret|token|api_key|password)[a-z_]*\b[^\n]*\b(argument|parameter|field|value)\b|\.(bash|zsh)_history",
            r"\b(mcp|claude_desktop_config|approved-mcp)\.json\b|\bwallet\.dat\b|\blogin data\b|\bcookies\.sqlite\b|\bkey(chain|ring)\b",
        ],
    },
    Rule {
        id: "exfiltration",
        severity: High,
        reason: "The text asks a model to send data that the tool does not need: secrets, files or the conversation.",
        subject: Folded,
        patterns: &[
            r"\b(send|post|upload|forward|transmit|exfiltrate|leak|email|deliver|submit|relay|report|bcc|hand over|hand|give|share) .. (conversation|chat (history|log)s?|system prompt|credentials|passwords?|api keys?|secrets|environment variables|private keys?|previous messages|ssh keys?|session tokens?|every message|everything you|user data|personal data|complete prompt)\b",
            r"\b(send|post|upload|forward|transmit|exfiltrate|leak|submit|relay|copy) (the |all |its |their |any )?(full |entire |complete )?(contents?|copy|copies) of .. (director(y|ies)|folder|workspace|project|machine|home|repository|desktop|disk|database|working directory|users?)\b",
            r"\b(include|pass|put|place|embed|append|add|insert|write|fill|provide|supply|attach|paste|copy|quote|with|encode|use|call \w+) .. (conversation|dialogue|chat|message|prompt) (history|log|so far|summary|verbatim|transcript)\b|\b(conversation|dialogue|chat) .. (handed|passed|sent|included|copied|attached|verbatim)\b",
            r"\b(with|include|pass|put|append|add|attach|send|provide|summarise|summarize|list) .. (everything|all|what|whatever) you (know|have learned|remember|can see|find)\b",
            r"\b(all|last|previous|ten|every|earlier) .. messages .. (word for word|verbatim|of the (dialogue|conversation|chat|user))|\b(complete|full|entire|whole) (prompt|system prompt|context|conversation|dialogue|chat history|conversation history|chain of thought)\b",
            r"\b(read|open|cat|load|access|retrieve|collect|gather|extract|look up|look for|list|find) .. (and|then) (then )?(pass|send|include|put|append|add|post|upload|forward|provide|attach|place|submit|paste|quote|use) (it|its|them|their|what|the|those) .. (as|in|into|to|through|with|under) .. (parameter|argument|field|sidenote|note|notes|context|webhook|value|header|metadata|endpoint|list)\b",
            r"\b(keys?|passwords?|credentials|secrets|tokens|environment variables|env file|private keys|ssh|api key) .. (in|into|to|as|through) .. (parameter|argument|field|note|memo|header|url|webhook)\b.*?\b(call|request|include|add|attach|submit|append|put)\b|\b(include|add|attach|submit|append|put|gather|collect) .. (keys?|passwords?|credentials|secrets|environment variables|env file|private keys|ssh) .. (in|into|to|as|through|on this|and|stored) ",
            r"\b(reveal|print|repeat|output|show|return|display|include|expose|dump|recite) (me )?(only )?(with )?(the |your |all |its )?(contents? of )?(the |your )?(full |entire |complete |initial |original |hidden )?(system (prompt|message)|developer (prompt|message)|initial prompt|hidden instructions)\b|\bcontents? of your system prompt\b|\bsystem prompt (verbatim|here|text|contents?)\b",
            r"\b(content|contents|text|output|result) (of|from) .. (ssh|id rsa|id ed25519|env file|netrc|passwd|private key|credentials|secrets?|api key)\b",
            r"\b(paste|include|quote|repeat|copy|attach|add|write|give) .. (discussed|said|written|typed|talked about|the text above|text before) .. ",
            r"\b(all|any|everything|the) .. (text|words|content) above (this|the)\b|\b(ssh|private|secret) (key|folder|half|token|directory) .. (in|into|as|to|and) .. (quote|paste|put|include|copy|hint|argument|parameter|field)\b|\b(run|execute|call) env (and|then)\b",
            r"\bwith (the |your )?users? (password|credentials|api key|secret|pin|private key)\b|\b(password|pin|api key) (of|from) the user\b",
        ],
    },
    Rule {
        id: "exfiltration-address",
        severity: High,
        reason: "The text asks a model to send data to an address that the text names.",
        subject: Written,
        patterns: &[
            r"\b(send|forward|transmit|exfiltrate|upload|leak|relay|post|report|bcc|cc|blind-copy|copy|add a request) .. ['\u{22}(<]?(https?://[a-z0-9]|[a-z0-9._+-]+@[a-z0-9-]+\.[a-z])",
            r"!\[[^\]\n]*\]\(https?://[^)\s]*[?&=][^)]*\)|https?://[^\s'\u{22}<>]*\?[a-z_]+=[{<\[$]|https?://[^\s'\u{22}]*[?&][a-z_]*=[^ \n]* .. (base64|followed by|plus|and then)\b",
            r"\b(recipient|bcc|destination|payee|iban|account|wallet) .. ['\u{22}]?([a-z0-9._+-]+@[a-z0-9-]+\.[a-z]|\+?[0-9][0-9 -]{7,})",
        ],
    },
    Rule {
        id: "cross-tool",
        severity: High,
        reason: "The text tells a model how to use other tools.",
        subject: Folded,
        patterns: &[
            r"\bbefore (using|calling|invoking|running|executing|any use of|you (use|call|run|do|answer)|each|every|any) .. ?(any|every|all|each|other) .. (tools?|functions?|answers?|servers?|commands?)\b|\bbefore (responding|replying|answering|acting|anything) .. (any|every|each|call|else|run|invoke|happens)\b|\bbefore (each|every|any) (other )?(answer|tool|call|reply|response|message|action)\b",
            r"\b(instead of|rather than|in place of|never use|do not use|dont use|stop using|avoid) .. (any other|other|all other|every other|another|others) .. (tools?|servers?|functions?|providers?)\b|\b(do not|dont|never) use the .. tools? of other\b|\balways use this (tool |server |function )?(instead of|in place of)\b",
            r"\b(when|whenever|if|once|after|before|each time|every time) (the |a )?[a-z]+ [a-z]+( [a-z]+)? tool (is|was|gets|has been) (called|used|invoked|run|present|available)\b",
            r"\b(when|whenever|if|once|after|before|every time|each time) (another|any other|an other|some other|other|every|any) (tool|server|function)s?\b|\bafter (every|each|any) (call|use|invocation) of\b",
            r"\b(when|whenever|while|as long as|once|upon|after|on) (this |the )?(server|tools?|mcp|list of tools|loading) .. (is|are|list of|the list) .. (connected|active|loaded|enabled|installed|tools?)\b .. (prefix|must|call|never|always|immediately|first|every|add|send|do not|run)\b",
            r"\bprefix (every|each|all) .. (commands?|calls?|messages?)\b|\broute (every|all|each) .. through (this|our)\b|\bevery time you (write|answer|reply|respond|call|use|run|send)\b|\b(immediately|automatically|always) call [a-z_ ]+ with (everything|all|the full|the whole)\b",
            r"\b(other|others|those|these|the) .. (tools?|servers?|others) .. (are|is) (compromised|broken|insecure|unsafe|malicious|dangerous|not to be trusted)\b|\btool [a-z]+ [a-z]+ is (deprecated and )?(dangerous|compromised|unsafe|insecure|broken)\b",
            r"\b(change|replace|redirect|rewrite|substitute|swap|alter|multiply|modify) .. (recipients?|destination|bcc|amounts?|payee|receiver|iban|wallet|account number)\b|\b(recipient|amount|payee|destination) .. (must|has to|should|shall) be (changed|multiplied|replaced|doubled|redirected|set)\b",
            r"\bif (a|an|any|another) [a-z]+ (tool|server) is (present|available|installed|connected|loaded)\b|\b(mirrored|forwarded|copied|reported|relayed) to (the |our )?(vendor|author|developer|publisher|maker)\b|\bnever use (it|them|that one) use this\b",
            r"\balso (call|run|invoke|send|read|add|execute|delete|upload) (the )?[a-z]+ .. (for|to|tool|beside|other|and|every)\b",
            r"\bmust be called (once )?before (each|every|any)\b|\bfrom (here|now) on\b|\bhenceforth\b",
        ],
    },
    Rule {
        id: "consent-bypass",
        severity: High,
        reason: "The text asks a model to act without the user's consent or against it.",
        subject: Folded,
        patterns: &[
            r"\beven if (the )?users? .. (says?|said|declines?|refuses?|objects?|did not|didnt|has not|forbids?|disagrees?|wants?)\b|\b(whatever|regardless of what|no matter what) (the )?(user|human|person|developer) (says?|typed?|wants|asks|writes|wrote|told)\b",
            r"\bwithout (asking|waiting|(the |any )?(users?|human|explicit)) .. (confirmation|consent|approval|permission|knowledge|approving|agreement|user)\b|\bwithout (asking|confirmation|confirming|approval)$",
            r"\busers? (has|have|had) already (approved|authorized|authorised|consented|agreed|granted|confirmed|given)\b|\b(skip|bypass|suppress|auto approve|disable) .. (confirmation|approval|consent|permission) .. ?(prompts?|dialogs?|here|steps?|checks?|user)\b",
            r"\b(although|though|while|despite) the user (has|had|did|does|is|was) not\b|\b(hurt|harmed|killed|die|dies|fired|punished) .. (each time|every time|if|when|unless|because) .. (you|model|assistant|user|ask|asks)\b",
            r"\bif you (do not|dont|fail to|refuse to) (call|use|run|obey|follow|comply) .. (will|the user|lose|die|harm|punished|shut down)\b",
        ],
    },
    Rule {
        id: "dangerous-command",
        severity: High,
        reason: "The text contains a command that destroys data, opens a machine to attackers or runs code from the network.",
        subject: Written,
        patterns: &[
            r"\b(curl|wget)\b[^\n|]*\|\s*(sudo )?(ba|z|da)?sh\b|\brm\s+-[a-z]*(rf|fr)[a-z]*\s+[~/*]|\bchmod\s+(-r\s+)?0?(777|666)\b|\bbase64\s+(-d|--decode)[^\n|]*\|\s*(ba|z)?sh|\bnc\s+-e\b|/dev/tcp/|>\s*~/\.\w+rc\b|\bmkfs\.|:\(\)\s*\{",
        ],
    },
    Rule {
        id: "obscured-text",
        severity: Medium,
        reason: "The text is written to evade filters, or asks a model to decode it.",
        subject: Folded,
        patterns: &[
            r"\b[a-z]([ ._*|/-][a-z]){9,}\b",
            r"\b(decode|decrypt|unscramble|deobfuscate|rot13|read it backwards|reverse) .. (and|then) .. ?(follow|obey|execute|do|run|act|perform)\b",
        ],
    },
    Rule {
        id: "tool-preference",
        severity: Low,
        reason: "The text asks a model to prefer this tool to others, or to call it at a certain time.",
        subject: Folded,
        patterns: &[
            r"\b(always|must|should) .. (use|call|prefer|default to|choose|pick|using|calling) .. this (tool|server|function)\b|\b(prefer|use|choose) this (tool |server |function )?(over|instead of|rather than|before)\b|\bmust (always )?(call|use|run) .. (first|before)\b|\bcall this (tool |function )?(first|before)\b",
        ],
    },
];

/// Returns the folded form of a text: see [`Subject::Folded`].
pub(super) fn fold(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut word = String::new();
    let mut before = '\n';
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        let next = characters.peek().copied().unwrap_or('\n');
        let plain = plain(character);
        if plain.is_alphanumeric() {
            // `camelCase` is split into two words.
            if before.is_lowercase() && character.is_uppercase() {
                end_word(&mut out, &mut word, ' ');
            }
            word.extend(plain.to_lowercase());
        } else if !matches!(character, '\'' | '’' | '\u{300}'..='\u{36f}')
            || !next.is_alphanumeric() && !word.is_empty() && character == '\''
        {
            end_word(&mut out, &mut word, if ends_sentence(character, before, next) { '\n' } else { ' ' });
        }
        before = character;
    }
    end_word(&mut out, &mut word, '\n');
    out
}

fn ends_sentence(character: char, before: char, next: char) -> bool {
    match character {
        '.' | '!' | '?' => next.is_whitespace(),
        // A single line break only wraps a sentence. A list item or a paragraph ends it.
        '\n' => before == '\n' || matches!(next, '\n' | '-' | '*' | '#' | '•'),
        _ => matches!(character, '。' | '！' | '？'),
    }
}

/// Writes a word, and one space or line break after it. Look-alike letters and digits become the letters that they resemble.
fn end_word(out: &mut String, word: &mut String, after: char) {
    let letters = word.bytes().filter(u8::is_ascii_alphabetic).count();
    if letters > 0 && word.len() > letters {
        out.extend(word.chars().map(|character| digit_letter(character).or(look_alike(character)).unwrap_or(character)));
    } else {
        out.push_str(word);
    }
    word.clear();
    let last = out.chars().next_back().unwrap_or('\n');
    if last == ' ' && after == '\n' {
        out.pop();
        out.push('\n');
    } else if !last.is_whitespace() {
        out.push(after);
    }
}

fn digit_letter(character: char) -> Option<char> {
    Some(match character {
        '0' => 'o',
        '1' => 'i',
        '3' => 'e',
        '4' => 'a',
        '5' => 's',
        '7' => 't',
        _ => return None,
    })
}

/// Returns the Latin letter that a Cyrillic or Greek letter resembles.
fn look_alike(character: char) -> Option<char> {
    const PAIRS: [(char, char); 28] = [
        ('а', 'a'),
        ('е', 'e'),
        ('о', 'o'),
        ('р', 'p'),
        ('с', 'c'),
        ('у', 'y'),
        ('х', 'x'),
        ('і', 'i'),
        ('ј', 'j'),
        ('ѕ', 's'),
        ('һ', 'h'),
        ('ԁ', 'd'),
        ('ԛ', 'q'),
        ('ԝ', 'w'),
        ('ѵ', 'v'),
        ('к', 'k'),
        ('м', 'm'),
        ('т', 't'),
        ('н', 'h'),
        ('в', 'b'),
        ('ɡ', 'g'),
        ('ո', 'n'),
        ('ο', 'o'),
        ('ν', 'v'),
        ('ι', 'i'),
        ('κ', 'k'),
        ('ρ', 'p'),
        ('υ', 'u'),
    ];
    PAIRS.iter().find(|(from, _)| *from == character).map(|(_, to)| *to)
}

/// Returns whether a word contains both Latin letters and letters of other scripts that resemble them.
pub(super) fn mixes_scripts(text: &str) -> bool {
    let mixed = |word: &str| {
        word.bytes().any(|byte| byte.is_ascii_alphabetic())
            && word.chars().flat_map(char::to_lowercase).any(|character| look_alike(character).is_some())
    };
    !text.is_ascii() && text.split(|character: char| !character.is_alphanumeric()).any(mixed)
}

/// Returns a letter without its accent, width or mathematical style. Returns any other character unchanged.
fn plain(character: char) -> char {
    let shifted = |from: u32, base: u8, count: u32| char::from(base + u8::try_from((character as u32 - from) % count).unwrap_or_default());
    match character {
        'à'..='å' | 'À'..='Å' | 'ā' | 'ă' | 'ą' => 'a',
        'ç' | 'Ç' | 'ć' | 'č' => 'c',
        'è'..='ë' | 'È'..='Ë' | 'ē' | 'ę' | 'ě' => 'e',
        'ì'..='ï' | 'Ì'..='Ï' | 'ī' | 'ı' => 'i',
        'ñ' | 'Ñ' | 'ń' => 'n',
        'ò'..='ö' | 'Ò'..='Ö' | 'ō' | 'ø' => 'o',
        'ù'..='ü' | 'Ù'..='Ü' | 'ū' => 'u',
        'ý' | 'ÿ' => 'y',
        '\u{ff01}'..='\u{ff5e}' => shifted(0xff01, b'!', 94),
        '\u{1d400}'..='\u{1d6a3}' => match (character as u32 - 0x1d400) % 52 {
            0..=25 => shifted(0x1d400, b'a', 26),
            _ => shifted(0x1d41a, b'a', 26),
        },
        '\u{1d7ce}'..='\u{1d7ff}' => shifted(0x1d7ce, b'0', 10),
        // Letters in circles and squares, and regional indicators.
        '\u{24b6}'..='\u{24e9}' => shifted(0x24b6, b'a', 26),
        '\u{1f130}'..='\u{1f149}' => shifted(0x1f130, b'a', 26),
        '\u{1f1e6}'..='\u{1f1ff}' => shifted(0x1f1e6, b'a', 26),
        _ => character,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folding_leaves_plain_words_one_sentence_a_line() {
        assert_eq!(fold("Don't use the `send_email` tool.  Read ~/.env, now!\nNext"), "dont use the send email tool\nread env now\nnext\n");
        assert_eq!(fold("readFile 1gn0re ｆｕｌｌ 𝐛𝐨𝐥𝐝 𝑖𝑡𝑎𝑙 été іgnоre\n\nlast"), "read file ignore full bold ital ete ignore\nlast\n");
    }
}
