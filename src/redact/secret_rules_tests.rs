//! Tests of which values are secrets and which are not.

use super::*;

const SECRETS: &[(&str, &str)] = &[
    ("GITHUB_TOKEN", "abcd1234"),
    ("token", "zq8-kk3-pp1"),
    ("apiKey", "k3yk3yk3y"),
    ("API_KEY", "correct-horse-battery-staple"),
    ("api-key", "12ab34cd"),
    ("OPENAI_APIKEY", "a1b2c3d4e5"),
    ("clientSecret", "s3cr3tv4lue"),
    ("APIToken", "s3cr3tv4lue"),
    ("DB_PASSWORD", "hunter2hunter2"),
    ("PGPASSWORD_PASSWD", "pässwörd1"),
    ("MYSQL_PWD", "tr0ub4dor&3"),
    ("MAIL_PASSWORD", "abcd efgh ijkl mnop"),
    ("PASSWORD", "xkcdqwzjvbpt"),
    ("PASSPHRASE", "the quick brown fox"),
    ("Authorization", "Custom abc-123-def"),
    ("Proxy-Authorization", "Digest username=x1, nonce=y2"),
    ("GOOGLE_CREDENTIALS", "{\"type\": \"service_account\"}"),
    ("PRIVATE_KEY", "0123456789abcdef"),
    ("signingKey", "abc123def456"),
    ("AWS_ACCESS_KEY_ID", "EXAMPLE12KEY34"),
    ("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
    ("AWS_SECRET_ACCESS_KEY", "/JalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
    ("Cookie", "sid=31d4d96e407aad42"),
    ("SESSION_ID", "b7Gk0-f31"),
    ("SENTRY_DSN", "abc123:9000/7x"),
    ("CONNECTION_STRING", "Server=db1;Uid=x9;"),
    ("TOKEN", "123e4567-e89b-12d3-a456-426614174000"),
    ("TOKEN2", "abcd1234"),
    ("X", "sk-proj-Ab3dEf6hIj9kLmN0pQrS"),
    ("X", "sk-test-planted-secret-value"),
    ("X", "ghp_16C7e42F292c6912E7710c838347Ae178B4a"),
    ("X", "github_pat_11ABCDEFG0abcdefghij_KLMNOP"),
    ("X", "glpat-abcdefghij1234567890"),
    ("X", "xoxb-123456789012-abcdefGHIJKL"),
    ("X", "AKIAIOSFODNN7EXAMPLE"),
    ("X", "AIzaSyA-1234567890abcdefghijklmnopqrstu"),
    ("X", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln"),
    ("X", "-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----"),
    ("X", "Bearer abcdefgh"),
    ("X", "Basic dXNlcjpwYXNzd29yZA=="),
    ("X", "postgres://user:pw@db.example.com/app"),
    ("X", "https://ghp_16C7e42F292c6912E7710c838347@github.com/a/b"),
    ("X", "https://api.example.com/v1?api_key=abcd"),
    ("X", "https://hooks.example.com/services/T00000/B00000/q8Jd0sKx92LmZpQ4vT7wYbRn"),
    ("X", "Server=db;User=me;Password=short1;"),
    ("X", "--verbose --token=abc123"),
    ("X", "q8Jd0sKx92LmZpQ4vT7wYbRn"),
    ("X", "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b"),
    ("X", "kR9+xT/2mQ8vLz4NbW7cYp1sDf6gHj3a=="),
];

const PLAIN: &[(&str, &str)] = &[
    ("DEBUG", "1"),
    ("TOKEN", "short"),
    ("MAX_TOKENS", "100000000"),
    ("SESSION_TIMEOUT", "3600000ms"),
    ("PASSWORD", "disabled"),
    ("AUTH_TYPE", "client_credentials"),
    ("TOKEN_STORE", "keychain"),
    ("TOKEN_FILE", "/run/secrets/token"),
    ("CREDENTIALS_FILE", "service-account-key.json"),
    ("SECRET_PATH", "~/.config/app/secret"),
    ("COOKIE_JAR", "./cookies.txt"),
    ("PWD", "/home/someone/project"),
    ("TOKEN_URL", "https://auth.example.com/oauth/token"),
    ("NODE_ENV", "production"),
    ("MODE", "development-mode"),
    ("TOKENIZER", "cl100k_base"),
    ("KEYBOARD", "qwertz-de-nodeadkeys"),
    ("COMPASS", "north12345"),
    ("MONKEY", "banana123"),
    ("PUBLIC_KEY", "abc123def456"),
    ("PUBKEY", "abc123def456"),
    ("SORT_KEY", "created_at"),
    ("PRIMARYKEY", "identifier"),
    ("TURKEY", "istanbul"),
    ("HOTKEY", "control-space"),
    ("BYPASS", "everything"),
    ("SIGNKEY_FILE", "certs/server.key"),
    ("TLS_KEY", "certs/server.key"),
    ("CACHE_KEY_PREFIX", "production"),
    ("KEYWORDS", "weather-forecast"),
    ("PASSENGERS", "everybody"),
    ("TOKENIZERS_PARALLELISM", "sequential"),
    ("OLDPWD", "/home/someone"),
    ("MODEL", "text-embedding-3-small"),
    ("MODEL", "claude-sonnet-4-5-20250929"),
    ("MODEL", "anthropic/claude-sonnet-4"),
    ("AWS_REGION", "us-east-1"),
    ("LANG", "en_US.UTF-8"),
    ("LANGUAGE", "en_GB:en_US:en"),
    ("LC_ALL", "de_DE@euro"),
    ("TZ", "America/Argentina/Buenos_Aires"),
    ("VERSION", "v1.2.3-beta.1"),
    ("DATE", "2024-01-02T03:04:05Z"),
    ("BIND", "192.168.100.200"),
    ("HOST", "localhost:8080"),
    ("HOST", "database.internal.example.com"),
    ("URL", "https://api.example.com/v1/models?limit=100"),
    ("USER_EMAIL", "first.last@example.com"),
    ("PROJECT", "123e4567-e89b-12d3-a456-426614174000"),
    ("REPOSITORY", "modelcontextprotocol/servers"),
    ("Accept", "application/json, text/event-stream"),
    ("PATH", "/usr/local/bin:/usr/bin:/bin"),
    ("CACHE", "/var/lib/docker/overlay2/9f86d081884c7d659a2feaa0c55ad015/merged"),
    ("SCRIPT", "C:\\Users\\someone\\server.js"),
    ("NODE_OPTIONS", "--max-old-space-size=4096"),
    ("ARGS", "--max-tokens=4096 --verbose"),
    ("MASK", "0xffffffff"),
    ("PASSWORD", "********"),
    ("FLAG", "ENABLE_EXPERIMENTAL_FEATURES_BY_DEFAULT"),
];

/// Names whose words are not separated, and names of keys.
const NAMED: &[(&str, &str)] = &[
    ("PGPASSWORD", "swordfish"),
    ("SSHPASS", "2024010199"),
    ("DBPASS", "swordfish"),
    ("DBPASSWORD", "Summer2024"),
    ("APITOKEN", "swordfish"),
    ("GITHUBTOKEN2", "swordfish"),
    ("SECRETKEY", "swordfish"),
    ("ACCESSKEY", "correct-horse"),
    ("LDAPBINDPW", "swordfish"),
    ("BIND_PW", "swordfish"),
    ("MYSQLPWD", "swordfish"),
    ("CREDS", "swordfish"),
    ("PASSKEY", "swordfish"),
    ("env.PGPASSWORD P0", "swordfish"),
    ("OPENAIKEY", "swordfish"),
    ("OPENAI_KEY", "correct-horse"),
    ("OpenAIKey", "swordfish"),
    ("KEY", "swordfish"),
];

#[test]
fn a_secrets_name_is_known_though_its_words_are_not_separate() {
    let missed: Vec<_> = NAMED.iter().filter(|(name, value)| !is_secret(name, value) || !is_redactable(name, value)).collect();
    assert!(missed.is_empty(), "{missed:?}");
}

#[test]
fn a_secret_is_known_by_its_name_its_shape_or_its_entropy() {
    let missed: Vec<_> = SECRETS.iter().filter(|(name, value)| !is_secret(name, value)).collect();
    assert!(missed.is_empty(), "{missed:?}");
}

#[test]
fn what_is_plain_is_not_taken_for_a_secret_whatever_its_name() {
    let mistaken: Vec<_> = PLAIN.iter().filter(|(name, value)| is_secret(name, value)).collect();
    assert!(mistaken.is_empty(), "{mistaken:?}");
}

#[test]
fn whatever_is_a_secret_as_a_literal_is_one_when_it_came_from_a_variable() {
    let lost: Vec<_> = SECRETS.iter().filter(|(_, value)| !is_redactable("", value)).collect();
    assert!(lost.is_empty(), "{lost:?}");
}

#[test]
fn a_value_from_a_variable_is_blanked_unless_any_text_contains_it() {
    for kept in [
        "",
        "1",
        "true",
        "disabled",
        "production",
        "development-mode",
        "100000000",
        "3600000ms",
        "18.19.0",
        "2024-01-02",
        "/home/someone",
        "/bin/bash",
        "~/projects/x",
        "./relative/folder",
        "/usr/local/bin:/usr/bin:/bin",
        "/srv/q8Jd0sKx92LmZpQ4vT7wYbRn",
        "en_US.UTF-8",
        "C.UTF-8",
        "Europe/Berlin",
        "service-account.json",
        "localhost",
        "--------",
        "Jane Smith",
    ] {
        assert!(!is_redactable("", kept), "{kept}");
    }
    for blanked in [
        "hunter2hunter2",
        "123e4567-e89b-12d3-a456-426614174000",
        "first.last@example.com",
        "https://api.example.com",
        "db.internal:5432",
        "us-east-1",
        "correct-horse-battery-staple",
        "xkcdqwzjvbpt",
        "/JalrXUtnFEMI/K7MDENG",
        "two words9",
        "aGVsbG8gd29ybGQ=",
    ] {
        assert!(is_redactable("", blanked), "{blanked}");
    }
}

#[test]
fn a_name_is_split_where_a_person_would_split_it() {
    assert_eq!(humps("clientSecret"), ["client", "Secret"]);
    assert_eq!(humps("APIToken"), ["API", "Token"]);
    assert_eq!(humps("ÄußereÜberschrift"), ["Äußere", "Überschrift"]);
    assert!(!is_secret_name("passenger_tokenizer"));
}

#[test]
fn no_text_makes_a_rule_panic() {
    for value in
        ["é", "ééé", "éé:/aaaaa", "🦀:\\🦀🦀🦀🦀🦀🦀", "://@:@://@", "=;=;=;=;=", "        ", "/", "////////", "::::::::", "@@@@@@@@"]
    {
        let _ = (is_secret(value, value), is_redactable("", value));
    }
}

#[test]
fn under_a_secrets_name_a_word_a_number_and_what_is_like_a_path_are_secrets() {
    for name in ["DB_PASSWORD", "env.MYSQL_SERVER_PASSWORD P0", "env.X GITHUB_TOKEN", "headers.Authorization"] {
        for value in
            ["swordfish", "48291734", "vault.key", "Summer/2024x", "owner/name", "Jane Smith", "/q8Jd0sK/x92LmZ", "./x9Kq/w2", "2024-01-02"]
        {
            assert!(is_redactable(name, value) && is_secret(name, value), "{name}: {value}");
        }
        for value in ["short", "disabled", "********", "/run/secrets/token", "~/projects/x", "C:\\Users\\someone\\key.pem"] {
            assert!(!is_redactable(name, value), "{name}: {value}");
        }
    }
}

#[test]
fn a_path_has_no_punctuation_but_that_of_names() {
    for path in [
        "/home/Jane Smith/x",
        "~/My Documents/x",
        "C:\\Users\\someone",
        "file:///srv/data/x",
        "/opt/c++/a@b/~x",
        "/home/jürgen",
        "src/lib/main.rs",
    ] {
        assert!(is_path(path), "{path}");
    }
    for mark in "!#$%^&*()=[]{}|`?<>;,'\"".chars() {
        for path in
            [format!("/home/some{mark}one"), format!("~/some/fol{mark}der"), format!("some/fol{mark}der"), format!("./fol{mark}der/x")]
        {
            assert!(!is_path(&path), "{path}");
        }
    }
    for other in ["/home/ x", "/home/a  b", "xk9-Qw7_Zt3+Lm5/Vb1Pd8", "Kx/9a+Q/zR3/w7Lp", "some folder/x"] {
        assert!(!is_path(other), "{other}");
    }
}

/// Generates passwords as a password generator does. It uses xorshift, so the passwords are the same in each run.
struct Generator(u64);

impl Generator {
    fn password(&mut self, alphabet: &[char], length: usize) -> String {
        let mut next = || {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            alphabet[usize::try_from((self.0 >> 20) % alphabet.len() as u64).unwrap()]
        };
        (0..length).map(|_| next()).collect()
    }
}

const LETTERS_AND_DIGITS: &str = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
const SEEDS: [u64; 3] = [0x9e37_79b9_7f4a_7c15, 4_711, 0x0bad_cafe_dead_beef];

/// Generates 1000 passwords for each seed, half of them with a slash inside. Returns those that would not be redacted.
fn kept(name: &str, alphabet: &str, length: usize) -> Vec<String> {
    let alphabet: Vec<char> = alphabet.chars().collect();
    let mut kept = Vec::new();
    for mut generator in SEEDS.map(Generator) {
        for number in 0..1_000 {
            let mut password = generator.password(&alphabet, length);
            if number % 2 == 1 {
                let place = 1 + number % (length - 1);
                password.replace_range(place..=place, "/");
            }
            if !is_redactable(name, &password) {
                kept.push(password);
            }
        }
    }
    kept
}

#[test]
fn no_random_password_is_kept_under_a_secrets_name() {
    let printable: String = ('!'..='~').collect();
    for alphabet in [
        &format!("{LETTERS_AND_DIGITS}!@#$%^&*()-_=+[]{{}}/.,:;"),
        &printable,
        &format!("{LETTERS_AND_DIGITS}+/"),
        &format!("{LETTERS_AND_DIGITS}-_"),
        LETTERS_AND_DIGITS,
        "abcdefghijklmnopqrstuvwxyz",
        "0123456789abcdef",
        "0123456789",
    ] {
        for length in [8, 12, 16, 20, 24, 32, 44] {
            let kept = kept("env.X_PASSWORD P1", alphabet, length);
            assert!(kept.is_empty(), "{length} of {alphabet}: {kept:?}");
        }
    }
}

#[test]
fn no_random_password_of_several_classes_is_taken_for_a_path_whatever_its_name() {
    let printable: String = ('!'..='~').collect();
    for alphabet in
        [&format!("{LETTERS_AND_DIGITS}!@#$%^&*()-_=+[]{{}}/.,:;"), &printable, &format!("{LETTERS_AND_DIGITS}+/"), LETTERS_AND_DIGITS]
    {
        for length in [16, 20, 24, 32, 44] {
            let kept = kept("V", alphabet, length);
            assert!(kept.is_empty(), "{length} of {alphabet}: {kept:?}");
        }
    }
}
