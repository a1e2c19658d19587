//! Finds the secrets in the arguments of a program. The program may repeat its arguments in error messages.

use std::collections::BTreeSet;

use super::composite::secrets_within;
use super::passwords::passwords_of_words;
use super::secret_rules::{is_redactable, is_secret, is_secret_name};

/// Prefixes of digests. The digest of an image or a file is public, so it is not a secret.
const DIGESTS: [&str; 4] = ["sha1:", "sha256:", "sha384:", "sha512:"];

/// Returns the secrets in a program's arguments:
///
/// - arguments that look like a secret, at any position
/// - values of options and variables whose names are names of secrets
/// - passwords of programs whose name is among the words: `mysql -pVALUE`. So pass the program as the first word
/// - everything that [`secrets_within`] finds in an argument
///
/// ```
/// use hyperlight_mcp::redact::secrets_of_arguments;
/// let secrets = |words: &[&str]| secrets_of_arguments(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
/// assert!(secrets(&["--api-key", "correct-horse"]).contains("correct-horse"));
/// assert!(secrets(&["ghp_16C7e42F292c6912E7710c838347Ae178B4a"]).contains("ghp_16C7e42F292c6912E7710c838347Ae178B4a"));
/// assert!(secrets(&["-y", "@modelcontextprotocol/server-filesystem", "/srv/data"]).is_empty());
/// ```
#[must_use]
pub fn secrets_of_arguments(arguments: &[String]) -> BTreeSet<String> {
    let mut secrets: BTreeSet<String> = arguments.iter().flat_map(|argument| secrets_within(argument)).collect();
    secrets.extend(arguments.iter().flat_map(|argument| looks(argument)).map(ToOwned::to_owned));
    for (index, value) in arguments.iter().enumerate().skip(1) {
        if is_value_of(&arguments[..index], value) {
            secrets.insert(value.clone());
        }
    }
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let passwords = passwords_of_words(&words).into_iter().map(|(index, place)| &words[index][place]);
    secrets.extend(passwords.filter(|password| is_redactable("password", password)).map(ToOwned::to_owned));
    secrets
}

/// Returns whether a word is a secret because of the name in the words before it: `--token x`, `-e TOKEN x`.
fn is_value_of(before: &[String], value: &str) -> bool {
    let Some((name, before)) = before.split_last() else { return false };
    let is_option = name.starts_with('-') && !name.contains('=');
    // Without an option before it, a plain word such as `auth` is more often a command than a variable's name.
    let is_variable = name.chars().all(|next| next.is_ascii_uppercase() || next.is_ascii_digit() || next == '_')
        && before.last().is_some_and(|option| option.starts_with('-'));
    if !(is_option || is_variable && is_secret_name(name)) {
        return false;
    }
    // A value that begins with a hyphen is usually the next option. It is only a secret if it follows the name of a secret and itself
    // looks like a secret.
    match value.strip_prefix('-') {
        Some(word) => is_secret_name(name) && looks_secret(word.trim_start_matches('-')),
        None => is_secret(name, value) && (is_secret_name(name) || !has_digest(value)),
    }
}

/// Returns the parts of a word that look like secrets although no name precedes them. These are the whole word, and the text after the
/// letter of an option (`-pTOKEN`).
fn looks(word: &str) -> impl Iterator<Item = &str> {
    let behind_letter = word.strip_prefix('-').and_then(|rest| {
        let mut letters = rest.chars();
        letters.next().filter(char::is_ascii_alphabetic).map(|_| letters.as_str())
    });
    let whole = if word.starts_with('-') { word.trim_start_matches('-') } else { word };
    [Some(whole), behind_letter].into_iter().flatten().filter(|part| looks_secret(part))
}

fn has_digest(word: &str) -> bool {
    DIGESTS.iter().any(|digest| word.contains(digest))
}

/// Returns whether a whole word looks like a secret. The parts of an assignment, a pair or an address are not checked here, but by
/// [`secrets_within`].
fn looks_secret(word: &str) -> bool {
    let is_one = !word.trim_end_matches('=').contains(|next: char| next.is_whitespace() || "=:".contains(next));
    is_one && !has_digest(word) && is_secret("", word)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "q7Xv2LmZ9tRb4KcWn8Yp3HsDf6Jg";

    fn found(words: &[&str]) -> BTreeSet<String> {
        secrets_of_arguments(&words.iter().map(|word| word.replace("SECRET", SECRET)).collect::<Vec<_>>())
    }

    #[test]
    fn a_secret_is_found_wherever_it_stands() {
        for words in [
            &["SECRET"][..],
            &["serve", "SECRET", "--verbose"],
            &["--token", "-SECRET"],
            &["--token", "SECRET"],
            &["--token=SECRET"],
            &["--api-key", "--", "SECRET"],
            &["-e", "TOKEN=SECRET"],
            &["-e", "TOKEN", "SECRET"],
            &["-pSECRET"],
            &["bob:SECRET"],
            &["--header", "X-Api-Key:SECRET"],
        ] {
            let found = found(words);
            assert!(found.iter().any(|secret| secret.trim_start_matches('-') == SECRET), "{words:?}: {found:?}");
        }
        for (words, secret) in [
            (["--password", "swordfish", ""], "swordfish"),
            (["-e", "DB_PASSWORD", "swordfish"], "swordfish"),
            (["run", "ghp_16C7e42F292c6912E7710c838347Ae178B4a", ""], "ghp_16C7e42F292c6912E7710c838347Ae178B4a"),
        ] {
            assert!(found(&words).contains(secret), "{words:?}");
        }
    }

    #[test]
    fn the_password_of_a_program_is_found_by_the_option_that_it_has_for_it() {
        for words in [
            &["mysql", "-u", "root", "-pswordfish", "shop"][..],
            &["mysql", "-u", "root", "-p", "swordfish"],
            &["/usr/bin/mysqldump", "-uroot", "-pswordfish", "--all-databases"],
            &["docker", "exec", "db", "mariadb", "-pswordfish"],
            &["sshpass", "-p", "swordfish", "ssh", "host"],
            &["sshpass", "-pswordfish", "ssh", "host"],
            &["redis-cli", "-a", "swordfish"],
            &["docker", "login", "-u", "ada", "-p", "swordfish"],
            &["mongosh", "-p", "swordfish"],
            &["sqlcmd", "-P", "swordfish"],
            &["ldapsearch", "-w", "swordfish"],
            &["tool", "--password", "swordfish"],
            &["sh", "-c", "mysql -u root -pswordfish shop"],
            &["sh", "-c", "mysql -u root -p 'swordfish' shop"],
            &["sh", "-c", "cd /x && sudo mysqladmin -p\"swordfish\" status"],
            &["mysql", "-e", "CREATE USER 'ada'@'%' IDENTIFIED BY 'swordfish'"],
            &["psql", "-c", "ALTER ROLE ada WITH ENCRYPTED PASSWORD 'swordfish'"],
        ] {
            assert!(found(words).contains("swordfish"), "{words:?}: {:?}", found(words));
        }
        for words in [
            &["mkdir", "-p", "production"][..],
            &["ssh", "-p", "production", "host"],
            &["docker", "run", "-p", "8080:production", "image"],
            &["cp", "-a", "swordfish", "there"],
            &["sh", "-c", "mkdir -p swordfish && mysql shop"],
            &["psql", "-c", "select 'swordfish' from fish"],
        ] {
            assert!(found(words).is_empty(), "{words:?}: {:?}", found(words));
        }
    }

    #[test]
    fn a_value_behind_a_hyphen_is_found_with_and_without_it() {
        let found = found(&["--token", "-SECRET"]);
        assert!(found.contains(SECRET) && found.contains(&format!("-{SECRET}")), "{found:?}");
    }

    #[test]
    fn what_is_no_secret_is_not_found() {
        for words in [
            &["-y", "@modelcontextprotocol/server-filesystem", "/srv/data"][..],
            &["auth", "production"],
            &["token", "production-eu"],
            &["--token", "--verbose-output-of-everything"],
            &["--auth", "-v"],
            &["run", "-i", "--rm", "mcp/time@sha256:9c46a918633fb474bf8035e3ee90ebac6bcf2b18ccb00679ac4c179cba0ebfcf"],
            &["--max-old-space-size=4096", "-Xmx2048m", "--port", "8080"],
            &["3f2b8c1e-8a54-4c6b-9d55-0f1e2d3c4b5a"],
            &["-c", "import server; server.main()"],
            &["mcp-server-fetch==2025.4.7", "--ignore-robots-txt"],
            &["-Dserver.loglevel=error", "-jar", "/opt/server-1.2.3-all.jar"],
            &["--directory", "/home/ada/Projects/weather-server-2024"],
        ] {
            assert!(found(words).is_empty(), "{words:?}: {:?}", found(words));
        }
    }
}
