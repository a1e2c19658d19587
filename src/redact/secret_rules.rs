//! Decides which values are secrets. The first rule in the table that applies to a value decides.
//!
//! If a rule is too strict, half of every message is redacted. If a rule is too lax, a token is leaked. The tests cover both.

/// Minimum length in characters of a value that is redacted. Shorter values are never redacted, because they occur by chance in any text.
pub(crate) const FEWEST_CHARACTERS: usize = 8;

/// The decision of a rule about a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    /// The value is always redacted.
    Secret,
    /// The value is redacted if it came from a variable or a file. It is not redacted if the config itself contains it.
    Literal,
    /// The value is never redacted, because replacing it would damage unrelated text.
    Plain,
}

struct Rule {
    verdict: Verdict,
    applies: fn(name: &str, value: &str) -> bool,
}

const fn rule(verdict: Verdict, applies: fn(&str, &str) -> bool) -> Rule {
    Rule { verdict, applies }
}

/// Rules in the order in which they are tried. Rules for values that are certainly secrets come before rules for values that look plain.
/// Rules about names come before rules about the look of values.
const RULES: &[Rule] = &[
    rule(Verdict::Plain, |_, value| value.chars().count() < FEWEST_CHARACTERS),
    rule(Verdict::Secret, |_, value| is_known_token(value)),
    rule(Verdict::Secret, |_, value| has_credentials(value)),
    rule(Verdict::Secret, |_, value| assigns_a_secret(value)),
    rule(Verdict::Plain, |_, value| is_boolean(value)),
    rule(Verdict::Plain, |_, value| is_a_line_or_mask(value)),
    rule(Verdict::Plain, |_, value| is_path_of_this_machine(value)),
    // A password may be a word or a number, or may look like a path. A URL is excluded here, because `TOKEN_URL` names an address from
    // which tokens come. A later rule decides about URLs.
    rule(Verdict::Secret, |name, value| is_named_for_a_secret(name) && !is_url(value)),
    rule(Verdict::Plain, |_, value| is_number(value)),
    rule(Verdict::Plain, |_, value| value.split(':').all(is_locale)),
    rule(Verdict::Plain, |_, value| is_path(value)),
    // A key may be a word. But if the name is the name of a key, a number or a path is more often something else.
    rule(Verdict::Secret, |name, value| is_key_name(name) && !is_url(value)),
    rule(Verdict::Plain, |_, value| is_a_word_or_two(value)),
    // A URL with credentials or with a secret parameter was already found by the rules above.
    rule(Verdict::Secret, |_, value| {
        is_url(value) && value.split(['/', '?', '&', '=', '#']).any(|part| is_known_token(part) || is_random(part))
    }),
    rule(Verdict::Literal, |_, value| is_url(value)),
    rule(Verdict::Secret, |name, _| is_secret_name(name)),
    // A UUID is far more often an identifier than a key. If the name is the name of a secret, a rule above has already decided.
    rule(Verdict::Literal, |_, value| is_uuid(value)),
    // A person's e-mail address is private. But error messages are often about it, and it is not sufficient for a login.
    rule(Verdict::Literal, |_, value| is_email(value)),
    // Names of models and hosts, versions and regions are long and mix different classes of characters. But a person can read them.
    rule(Verdict::Literal, |_, value| parts(value).all(|part| is_word(part) || is_short_tag(part))),
    rule(Verdict::Secret, |_, value| is_random(value)),
];

fn verdict(name: &str, value: &str) -> Verdict {
    let value = value.trim();
    RULES.iter().find(|rule| (rule.applies)(name, value)).map_or(Verdict::Literal, |rule| rule.verdict)
}

/// Returns whether a value that is written in the config (an environment variable, a header) looks like a secret. Its name, its form and
/// its entropy are considered.
///
/// ```
/// use hyperlight_mcp::redact::is_secret;
/// assert!(is_secret("API_KEY", "correct-horse-battery-staple"));
/// assert!(is_secret("X", "ghp_16C7e42F292c6912E7710c838347Ae178B4a"));
/// assert!(!is_secret("DEBUG", "1"));
/// assert!(!is_secret("TOKEN_FILE", "/run/secrets/token"));
/// ```
#[must_use]
pub fn is_secret(name: &str, value: &str) -> bool {
    verdict(name, value) == Verdict::Secret
}

/// Returns whether a value from a variable or a file should be redacted. All values should be redacted, except values that occur in any
/// text (short values, one or two words, numbers, booleans, paths, locales). If the name is the name of a secret, only short values,
/// booleans, masks and absolute paths are excepted. `name` may contain several names, separated by spaces.
///
/// ```
/// use hyperlight_mcp::redact::is_redactable;
/// assert!(is_redactable("HOST", "https://internal.example.com"));
/// assert!(is_redactable("DB_PASSWORD", "swordfish"));
/// assert!(!is_redactable("ANIMAL", "swordfish"));
/// assert!(!is_redactable("FOLDER", "/home/someone"));
/// assert!(!is_redactable("LANG", "en_US.UTF-8"));
/// ```
#[must_use]
pub fn is_redactable(name: &str, value: &str) -> bool {
    verdict(name, value) != Verdict::Plain
}

/// Returns whether a value from the config may be shown completely, if its name is not the name of a secret. This is true of a number, a
/// boolean, a locale, a path, and one or two words. Being short is not sufficient.
pub(crate) fn is_plain(value: &str) -> bool {
    let value = value.trim();
    RULES[1..].iter().find(|rule| (rule.applies)("", value)).is_some_and(|rule| rule.verdict == Verdict::Plain)
}

/// Words that make a name the name of a secret, wherever they are in it.
const SECRET_WORDS: &str = "apikey auth authorization bearer cookie cookies creds credential credentials dsn jwt mnemonic otp pass passcode passkey passphrase \
    passwd password passwords pat pw pwd salt secret secrets session sid token tokens";

/// Ends of words that make a name the name of a secret. They are needed for names whose words are not separated: `PGPASSWORD`, `SSHPASS`,
/// `APITOKEN`, `LDAPBINDPW`.
const SECRET_ENDS: &str = "apikey accesskey authkey cookie cookies credential credentials creds encryptionkey jwt licensekey masterkey pass passcode passkey \
    passphrase passwd password passwords privatekey pw pwd secret secretkey secrets servicekey sessid sessionid sharedkey signingkey token";

/// Words that end like one of `SECRET_ENDS`, but are not names of secrets.
const PLAIN_WORDS: &str = "bypass compass encompass multipass overpass surpass trespass underpass";

/// Words before `key` with which a name is not the name of a secret key (`SORT_KEY`, `PUBLICKEY`). Some of them are the beginnings of
/// words that end in `key`.
const PLAIN_KEYS: &str = "dedupe don foreign group hoc hot idempotency index jac joc lac locale map mic mon natural ordering partition primary pub public \
    routing row shard sort translation tur turn unique whis";

/// Pairs of neighbouring words that make a name the name of a secret. The word `key` alone is not sufficient, because it may mean a
/// public key or a sort key.
const SECRET_PAIRS: &[(&str, &str)] = &[
    ("access account api encryption license master private service shared signing subscription", "key keys"),
    ("connection conn", "string str url uri"),
];

/// Last words of a name that make it the name of a setting about a secret: `AUTH_TYPE`, `TOKEN_STORE`. For such a name, the rules about
/// the look of the value are used first.
const SETTING_WORDS: &str = "audience budget count domain endpoint expires expiry file folder format host issuer jar length limit method mode name path port \
    provider realm region scope scopes server size store timeout ttl type uri url";

fn is_one_of(list: &str, word: &str) -> bool {
    list.split(' ').any(|one| one == word)
}

pub(crate) fn is_secret_name(name: &str) -> bool {
    let words = name_words(name);
    let ends_as_a_secret = |word: &str| !is_one_of(PLAIN_WORDS, word) && SECRET_ENDS.split(' ').any(|end| word.ends_with(end));
    words.iter().any(|word| is_one_of(SECRET_WORDS, word) || ends_as_a_secret(word))
        || words.windows(2).any(|pair| SECRET_PAIRS.iter().any(|(first, second)| is_one_of(first, &pair[0]) && is_one_of(second, &pair[1])))
}

/// Returns whether one of the names is the name of a key that may be secret: `OPENAI_KEY`, `OPENAIKEY`. The names are separated by
/// spaces.
pub(crate) fn is_key_name(names: &str) -> bool {
    names.split_whitespace().map(name_words).any(|words| {
        let mut words = words.iter().rev().filter(|word| !word.is_empty()).map(String::as_str);
        let Some(start) = words.next().and_then(|word| word.strip_suffix("keys").or(word.strip_suffix("key"))) else { return false };
        // The word before the final `key` is either the beginning of the same word or the previous word.
        let before = if start.is_empty() { words.next().unwrap_or_default() } else { start };
        !is_one_of(PLAIN_KEYS, before)
    })
}

/// Returns whether one of the names names a secret, and not a setting about a secret.
pub(super) fn is_named_for_a_secret(names: &str) -> bool {
    names.split_whitespace().filter(|name| is_secret_name(name)).map(name_words).any(|words| {
        let ends_as_a_setting = words.last().is_some_and(|word| is_one_of(SETTING_WORDS, word));
        // `MAX_TOKENS` names a number of tokens, not a token.
        let counts = words.windows(2).any(|pair| is_one_of("max min", &pair[0]) && pair[1] == "tokens");
        !ends_as_a_setting && !counts
    })
}

fn name_words(name: &str) -> Vec<String> {
    let words = name.split(|character: char| !character.is_alphanumeric()).flat_map(humps).map(str::to_lowercase);
    // A number at the end of a word only distinguishes several variables: `TOKEN2`.
    words.map(|word| word.trim_end_matches(|character: char| character.is_ascii_digit()).to_owned()).collect()
}

/// Splits names such as `clientSecret` and `APIToken` where a new word begins.
fn humps(text: &str) -> Vec<&str> {
    let characters: Vec<(usize, char)> = text.char_indices().collect();
    let mut words = Vec::new();
    let mut start = 0;
    for (index, &(position, character)) in characters.iter().enumerate().skip(1) {
        let after_lower = characters[index - 1].1.is_lowercase() || characters[index - 1].1.is_ascii_digit();
        let before_lower = characters.get(index + 1).is_some_and(|(_, next)| next.is_lowercase());
        if character.is_uppercase() && (after_lower || before_lower) {
            words.push(&text[start..position]);
            start = position;
        }
    }
    words.push(&text[start..]);
    words
}

/// Prefixes of well-known tokens, with the minimum length of such a token in bytes. A shorter value may be an ordinary word with the same
/// prefix.
const TOKEN_PREFIXES: &[(usize, &str)] = &[
    (16, "gho_ ghp_ ghr_ ghs_ ghu_ github_pat_ glpat- rk_live_ rk_test_ sk- sk_live_ sk_test_ xapp- xoxa- xoxb- xoxp- xoxr- xoxs-"),
    (20, "-----BEGIN AGE-SECRET-KEY- AKIA ASIA dop_v1_ eyJ figd_ gsk_ hvs. lin_api_ shpat_ ya29."),
    (30, "AIza SG. hf_ ntn_ pypi-"),
    (36, "npm_"),
];

pub(crate) fn is_known_token(value: &str) -> bool {
    let one_word = !value.contains(char::is_whitespace) || value.starts_with("-----BEGIN");
    one_word
        && TOKEN_PREFIXES
            .iter()
            .any(|(least, prefixes)| value.len() >= *least && prefixes.split(' ').any(|prefix| value.starts_with(prefix)))
}

/// Returns whether the value is the value of an `Authorization` header, or a URL with a password or a token before its host.
fn has_credentials(value: &str) -> bool {
    if after_scheme(value).is_some() {
        return true;
    }
    let Some((_, rest)) = value.split_once("://") else { return false };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let Some((user, _)) = authority.rsplit_once('@') else { return false };
    // In `ssh://git@host`, the user name is not a secret. A password or a long random user name is a credential.
    user.split_once(':').is_some_and(|(_, password)| !password.is_empty()) || is_known_token(user) || is_random(user)
}

/// Returns the credentials in a value such as `Bearer xyz` or `Basic xyz`, and whether the scheme is Basic.
pub(crate) fn after_scheme(value: &str) -> Option<(&str, bool)> {
    let (scheme, rest) = value.trim().split_once(' ')?;
    let rest = rest.trim();
    let known = ["basic", "bearer", "token", "apikey"].iter().any(|known| scheme.eq_ignore_ascii_case(known));
    // A sentence may also begin with one of these words, but it has more than two words.
    (known && !rest.is_empty() && !rest.contains(' ')).then(|| (rest, scheme.eq_ignore_ascii_case("basic")))
}

/// Returns whether the value assigns a secret, for example `Server=x;Password=y`, `https://host/?api_key=y` or `--token=y`.
fn assigns_a_secret(value: &str) -> bool {
    value.split([';', '&', '?', '#', ',']).flat_map(str::split_whitespace).any(|part| {
        part.split_once('=').is_some_and(|(name, value)| {
            is_secret_name(name) && value.len() >= 4 && !is_number(value) && !is_boolean(value) && !is_path(value)
        })
    })
}

fn is_boolean(value: &str) -> bool {
    ["true", "false", "yes", "no", "on", "off", "enabled", "disabled"].iter().any(|known| value.eq_ignore_ascii_case(known))
}

/// Returns whether the value only repeats one mark: `--------`, `********`. Such a value is not a secret, and occurs in any text.
fn is_a_line_or_mask(value: &str) -> bool {
    value.chars().next().is_some_and(|first| !first.is_alphanumeric() && value.chars().all(|character| character == first))
}

/// Returns whether the value is a number, perhaps with a unit (`60000ms`). Dates, times, versions that only consist of numbers, and IP
/// addresses are also numbers.
fn is_number(value: &str) -> bool {
    let digits = value.trim_end_matches(|character: char| character.is_ascii_alphabetic() || character == '%');
    let hexadecimal = value.strip_prefix("0x").is_some_and(|rest| rest.len() <= 16 && rest.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let of_numbers = |character: char| character.is_ascii_digit() || " .,_:+-/T".contains(character);
    hexadecimal
        || (value.len() - digits.len() <= 3
            && digits.contains(|character: char| character.is_ascii_digit())
            && digits.trim_start_matches('v').chars().all(of_numbers))
}

/// Returns whether the value is a locale, for example `en_US.UTF-8` or `de_DE@euro`.
fn is_locale(value: &str) -> bool {
    let (value, modifier) = value.split_once('@').unwrap_or((value, ""));
    let (language, encoding) = value.split_once('.').unwrap_or((value, ""));
    let (language, country) = language.split_once(['_', '-']).unwrap_or((language, ""));
    let encoding = encoding.to_ascii_lowercase();
    let language_is_known_form =
        matches!(language, "C" | "POSIX") || (matches!(language.len(), 2 | 3) && language.bytes().all(|byte| byte.is_ascii_lowercase()));
    language_is_known_form
        && matches!(country.len(), 0 | 2)
        && country.bytes().all(|byte| byte.is_ascii_uppercase())
        && (encoding.is_empty()
            || ["utf", "iso", "cp", "koi", "euc", "gb", "big5", "ansi"].iter().any(|known| encoding.starts_with(known))
                && encoding.len() <= 12)
        && modifier.len() <= 10
        && modifier.bytes().all(|byte| byte.is_ascii_lowercase())
}

/// File extensions. A value that ends with one of them is the name of a file.
const FILE_ENDINGS: &str = "cfg cjs conf crt db env html ini js json jsonc key log md mjs pem py sh sock sqlite toml ts txt xml yaml yml";

/// Names of top-level folders. A value that begins with one of them is a path, even if its name is the name of a secret. It is then the
/// path of a file that contains the secret.
const ROOTS: &str = "Applications Library System Users Volumes app bin boot data dev etc home lib lib64 media mnt nix opt private proc \
    project projects root run sbin snap srv sys tmp usr var workspace workspaces";

/// Returns whether the value is an absolute or relative path, a list of paths or a file name, or has the form of a path: `owner/name`,
/// `Europe/Berlin`.
fn is_path(value: &str) -> bool {
    let one = |path: &str| is_path_of_this_machine(path) || is_readable_path(path);
    one(value) || (value.contains(':') && !value.contains("://") && value.split(':').all(|part| part.is_empty() || one(part)))
}

/// Returns whether the value is a usual absolute path. It may have spaces between words.
fn is_path_of_this_machine(value: &str) -> bool {
    if let Some(path) = value.strip_prefix("file:/") {
        return is_of_path_characters(path);
    }
    if value.get(1..3).is_some_and(|drive| matches!(drive, ":\\" | ":/")) && value.as_bytes()[0].is_ascii_alphabetic() {
        let path = value[3..].replace('\\', "/");
        return is_of_path_characters(&path) && is_readable(&path);
    }
    if let Some(path) = value.strip_prefix("~/") {
        return is_of_path_characters(path) && is_readable(path);
    }
    let root = value.strip_prefix('/').map(|path| path.split('/').next().unwrap_or_default());
    root.is_some_and(|root| is_one_of(ROOTS, root)) && is_of_path_characters(value)
}

/// Returns whether the value is a path whose names are readable. Each name is checked, because a key in base64 may begin with a slash or
/// contain several slashes.
fn is_readable_path(value: &str) -> bool {
    let is_file = value.rsplit_once('.').is_some_and(|(_, ending)| is_one_of(FILE_ENDINGS, ending));
    (is_file || value.contains('/'))
        && !value.contains("//")
        && !value.contains(char::is_whitespace)
        && is_of_path_characters(value)
        // The name of an npm package may begin with an at sign: `@scope/name`.
        && value.split('/').all(|name| !name.trim_start_matches('@').contains(['@', '+', '~']))
        && is_readable(value)
}

/// Returns whether a text only contains characters that are usual in paths. Passwords contain all kinds of punctuation, but paths contain
/// little. A space is only allowed between two words.
fn is_of_path_characters(path: &str) -> bool {
    path.chars().all(|character| character.is_alphanumeric() || "._@~+-/ ".contains(character))
        && path.split('/').all(|name| name.trim() == name && !name.contains("  "))
}

/// Returns whether a path is readable. Each of its parts must be a word or a short tag of one case, and words must make up at least half
/// of the characters.
fn is_readable(path: &str) -> bool {
    let is_tag = |part: &str| is_short_tag(part) && !(part.contains(char::is_uppercase) && part.contains(char::is_lowercase));
    let (mut of_words, mut all) = (0, 0);
    for part in parts(path) {
        if !is_word(part) && !is_tag(part) {
            return false;
        }
        all += part.len();
        of_words += if is_word(part) && part.len() >= 3 { part.len() } else { 0 };
    }
    of_words * 2 >= all
}

/// Returns whether the value is one word or two words. Three or more words may be a passphrase.
fn is_a_word_or_two(value: &str) -> bool {
    let words: Vec<&str> = parts(value).flat_map(humps).collect();
    let joined = value.chars().all(|character| character.is_alphabetic() || "-_. ".contains(character));
    joined && !words.is_empty() && words.len() <= 2 && words.into_iter().all(is_word)
}

fn parts(value: &str) -> impl Iterator<Item = &str> {
    value.split(|character: char| !character.is_alphanumeric()).filter(|part| !part.is_empty())
}

/// Returns whether a text can be pronounced and has only one case. Random letters seldom fulfil this.
fn is_word(text: &str) -> bool {
    let mut consonants = 0;
    let mut vowels = 0;
    let mut longest_run = 0;
    for character in text.chars() {
        let vowel = !character.is_ascii() || "aeiouyAEIOUY".contains(character);
        vowels += usize::from(vowel);
        consonants = if vowel { 0 } else { consonants + 1 };
        longest_run = longest_run.max(consonants);
    }
    let rest_is_lower = text.chars().skip(1).all(char::is_lowercase);
    let length = text.chars().count();
    let one_case = rest_is_lower || text.chars().all(char::is_uppercase);
    text.chars().all(char::is_alphabetic) && one_case && (length <= 4 || vowels * 6 >= length) && longest_run <= 5 && length <= 24
}

/// Returns whether a text is a short part of the name of a version or a model: `4o`, `v2`, `20250929`.
fn is_short_tag(text: &str) -> bool {
    text.len() <= 3
        || (text.len() <= 8 && text.bytes().all(|byte| byte.is_ascii_digit()))
        || (text.len() <= 5 && text.trim_end_matches(|digit: char| digit.is_ascii_digit()).chars().all(char::is_alphabetic))
}

fn is_url(value: &str) -> bool {
    value.split_once("://").is_some_and(|(scheme, rest)| {
        !rest.is_empty()
            && !value.contains(char::is_whitespace)
            && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
    })
}

fn is_uuid(value: &str) -> bool {
    let groups: Vec<usize> = value.split('-').map(str::len).collect();
    groups == [8, 4, 4, 4, 12] && value.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit())
}

fn is_email(value: &str) -> bool {
    value.split_once('@').is_some_and(|(user, host)| {
        let plain =
            |text: &str| !text.is_empty() && text.chars().all(|character| character.is_alphanumeric() || "._+-".contains(character));
        plain(user) && plain(host) && host.contains('.') && !is_random(user)
    })
}

/// Returns whether a part of an address looks like a secret, for example the identifier in a webhook's path, or a parameter's value. UUIDs
/// and groups of random characters are treated as secrets here, because secret addresses consist of them. Elsewhere they are usually
/// identifiers.
pub(crate) fn is_secret_segment(segment: &str) -> bool {
    is_known_token(segment) || is_random(segment) || is_uuid(segment) || is_dense(segment)
}

/// Returns whether a text contains digits, capitals and small letters, and words make up less than half of it.
fn is_dense(text: &str) -> bool {
    let has = |class: fn(&u8) -> bool| text.bytes().any(|byte| class(&byte));
    let of_words: usize = parts(text).flat_map(humps).filter(|part| part.len() >= 3 && is_word(part)).map(str::len).sum();
    text.len() >= 16
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_~".contains(&byte))
        && has(u8::is_ascii_digit)
        && has(u8::is_ascii_lowercase)
        && has(u8::is_ascii_uppercase)
        && of_words * 2 < text.len()
}

/// Returns whether a value looks random. It must have at least twenty characters of at least two classes, and a higher entropy than
/// prose.
fn is_random(value: &str) -> bool {
    let of_tokens = value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=_-.~!@#$%^&*:".contains(&byte));
    let classes = [u8::is_ascii_lowercase, u8::is_ascii_uppercase, u8::is_ascii_digit]
        .iter()
        .filter(|class| value.bytes().any(|byte| class(&byte)))
        .count();
    let readable = parts(value).all(|part| is_word(part) || is_short_tag(part));
    let hexadecimal = value.len() >= 32 && value.bytes().all(|byte| byte.is_ascii_hexdigit());
    // Hexadecimal text only has sixteen different digits, so its entropy is lower than the entropy of random letters.
    value.len() >= 20 && of_tokens && classes >= 2 && !readable && entropy(value) >= if hexadecimal { 3.0 } else { 3.5 }
}

/// Returns the Shannon entropy of a text in bits per byte.
fn entropy(value: &str) -> f64 {
    let mut counts = [0_u32; 256];
    for byte in value.bytes() {
        counts[usize::from(byte)] += 1;
    }
    let length: f64 = counts.iter().copied().map(f64::from).sum();
    counts.iter().filter(|count| **count > 0).map(|count| f64::from(*count) / length).map(|share| -share * share.log2()).sum()
}

#[cfg(test)]
#[path = "secret_rules_tests.rs"]
mod tests;
