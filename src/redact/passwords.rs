//! Finds passwords that no name marks: in commands, behind an option that takes a password in one program and something else in another
//! (`mysql -pVALUE`), and in SQL (`IDENTIFIED BY 'VALUE'`). Programs and options are rows of a table.

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

use super::secret_rules::is_named_for_a_secret;

/// Maximum number of words in one text that are examined.
const MAX_WORDS: usize = 5_000;
/// Maximum depth of quotes within quotes, for example in a script that is a shell's argument.
const MAX_QUOTES: usize = 4;
/// Words that end a command.
const ENDS: [&str; 6] = ["&&", "||", "|", ";", "&", "|&"];
/// Characters before the name of a program, for example in `$(mysql -p…)`.
const BEFORE_PROGRAM: [char; 6] = ['(', '$', '`', '"', '\'', '{'];

/// An option that takes a password. Its value is the rest of its word, or the next word.
struct PasswordOption {
    /// Names of programs, separated by spaces.
    programs: &'static str,
    option: &'static str,
    /// The word that must come before the option. Without it, the option has another meaning.
    command: Option<&'static str>,
}

const fn option(programs: &'static str, option: &'static str) -> PasswordOption {
    PasswordOption { programs, option, command: None }
}

const fn option_of(programs: &'static str, command: &'static str, option: &'static str) -> PasswordOption {
    PasswordOption { programs, option, command: Some(command) }
}

const OPTIONS: &[PasswordOption] = &[
    option("mysql mysqladmin mysqlbinlog mysqlcheck mysqldump mysqlimport mysqlpump mysqlsh mysqlshow mysqlslap", "-p"),
    option("mariadb mariadb-admin mariadb-backup mariadb-binlog mariadb-check mariadb-dump mariadb-import mariadb-show", "-p"),
    option("mongo mongodump mongoexport mongoimport mongorestore mongosh mongostat", "-p"),
    option("sshpass cqlsh rabbitmqadmin 7z 7za 7zr rar unrar", "-p"),
    option("redis-cli keydb-cli valkey-cli", "-a"),
    option("sqlcmd bcp mosquitto_pub mosquitto_sub ipmitool zip unzip", "-P"),
    option("ldapadd ldapcompare ldapdelete ldapmodify ldapmodrdn ldappasswd ldapsearch ldapwhoami", "-w"),
    option_of("docker podman nerdctl buildah skopeo helm oras crane az", "login", "-p"),
];

/// The place of a password: the index of its word, and its bytes in the word.
pub(crate) type WordRange = (usize, Range<usize>);

/// Returns the places of passwords in the words of a command. The name of the program may be any of the words, as another program can start it.
pub(crate) fn passwords_of_words(words: &[&str]) -> Vec<WordRange> {
    let mut found = Vec::new();
    let mut current: Option<&PasswordOption> = None;
    let mut has_command = false;
    for (index, word) in words.iter().enumerate().take(MAX_WORDS) {
        if let Some(option) = option_of_program(word) {
            (current, has_command) = (Some(option), option.command.is_none());
            continue;
        }
        if let Some(option) = current {
            has_command |= option.command == Some(*word);
            if has_command && let Some(place) = value_of(words, index, option.option) {
                found.push(place);
            }
        }
        if ENDS.contains(word) || word.ends_with(';') {
            current = None;
        }
    }
    found
}

fn option_of_program(word: &str) -> Option<&'static PasswordOption> {
    let name = word.trim_start_matches(BEFORE_PROGRAM).trim_end_matches(['"', '\'']);
    let name = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let name = name.strip_suffix(".exe").unwrap_or(name);
    OPTIONS.iter().find(|option| !name.is_empty() && option.programs.split(' ').any(|program| program == name))
}

/// Returns the place of the value of an option, if the word at `index` is this option.
fn value_of(words: &[&str], index: usize, option: &str) -> Option<WordRange> {
    let rest = words[index].strip_prefix(option)?;
    if !rest.is_empty() {
        let start = option.len() + usize::from(rest.starts_with('='));
        return Some((index, unquoted(words[index], start)));
    }
    let next = words.get(index + 1).filter(|next| !next.starts_with('-') && !ENDS.contains(next))?;
    Some((index + 1, unquoted(next, 0)))
}

/// Returns the places of values after options with the name of a secret: `--password x`, `--token=x`.
pub(super) fn values_of_named_options(words: &[&str]) -> Vec<WordRange> {
    let place = |(index, word): (usize, &&str)| {
        let option = word.strip_prefix("--")?;
        let name = option.split('=').next().unwrap_or_default();
        let (index, place) = is_named_for_a_secret(name).then(|| value_of(words, index, &word[..2 + name.len()])).flatten()?;
        (!words[index][place.clone()].starts_with('$')).then_some((index, place))
    };
    words.iter().enumerate().take(MAX_WORDS).filter_map(place).collect()
}

/// Returns the part of a word without the quotes around it.
fn unquoted(word: &str, start: usize) -> Range<usize> {
    let text = &word[start..];
    let Some(quote) = text.chars().next().filter(|first| "'\"".contains(*first)) else { return start..word.len() };
    let end = text[1..].find(quote).map_or(word.len(), |end| start + 1 + end);
    start + 1..end
}

/// Returns the places of the passwords in a text. The text may contain commands, also within quotes, and statements of SQL. No two places
/// overlap.
pub(super) fn passwords_in(text: &str, find: impl Fn(&[&str]) -> Vec<WordRange> + Copy) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    in_commands(text, 0, MAX_QUOTES, find, &mut found);
    for pattern in SQL.iter() {
        found.extend(pattern.captures_iter(text).filter_map(|captures| captures.name("value")).map(|value| value.range()));
    }
    found.retain(|place| !place.is_empty());
    found.sort_by_key(|place| (place.start, std::cmp::Reverse(place.end)));
    let mut end = 0;
    found.retain(|place| {
        let is_next = place.start >= end;
        end = end.max(place.end);
        is_next
    });
    found
}

fn in_commands(text: &str, offset: usize, quotes: usize, find: impl Fn(&[&str]) -> Vec<WordRange> + Copy, found: &mut Vec<Range<usize>>) {
    let places = shell_words(text);
    let words: Vec<&str> = places.iter().map(|place| &text[place.clone()]).collect();
    let within = |(index, place): WordRange| {
        let start = offset + places[index].start;
        start + place.start..start + place.end
    };
    found.extend(find(&words).into_iter().map(within));
    if quotes == 0 {
        return;
    }
    for (place, word) in places.iter().zip(&words) {
        let Some(quote) = word.find(['"', '\'']).filter(|_| word.contains(char::is_whitespace)) else { continue };
        let inner = unquoted(word, quote);
        in_commands(&word[inner.clone()], offset + place.start + inner.start, quotes - 1, find, found);
    }
}

/// Splits a text into words at white space outside of quotes. Quotes stay parts of the words.
fn shell_words(text: &str) -> Vec<Range<usize>> {
    let mut words = Vec::new();
    let (mut start, mut quote) = (None, None);
    for (at, character) in text.char_indices() {
        match quote {
            Some(open) if character == open => quote = None,
            Some(_) => {}
            None if character.is_whitespace() => words.extend(start.take().map(|start| start..at)),
            None => {
                start.get_or_insert(at);
                quote = Some(character).filter(|character| "'\"".contains(*character));
            }
        }
        if words.len() == MAX_WORDS {
            return words;
        }
    }
    words.extend(start.map(|start| start..text.len()));
    words
}

/// Statements of SQL with a password in quotes. The quotes may be escaped, as in JSON.
static SQL: LazyLock<Vec<Regex>> = LazyLock::new(|| {
    let quotes =
        [r"'(?<value>(?:[^'\\]|\\.|'')*)'", r#""(?<value>(?:[^"\\]|\\.|"")*)""#, r#"\\"(?<value>[^"\\]*)\\""#, r"\\'(?<value>[^'\\]*)\\'"];
    let starts = [
        r"(?i)\bidentified\s+(?:with\s+\S+\s+)?(?:by|as|using)\s+(?:password\s+|values\s+)?",
        r"(?i)\bpassword\s*(?:for\s+\S+\s*)?[=(]\s*",
        r"(?i)\bpassword\s+",
    ];
    let patterns = starts.iter().flat_map(|start| quotes.iter().map(move |quoted| format!("{start}{quoted}")));
    // A test compiles all of them.
    patterns.filter_map(|pattern| Regex::new(&pattern).ok()).collect()
});

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<&str> {
        passwords_in(text, passwords_of_words).into_iter().map(|place| &text[place]).collect()
    }

    #[test]
    fn every_pattern_compiles() {
        assert_eq!(SQL.len(), 12);
    }

    #[test]
    fn a_password_is_found_as_its_program_takes_it() {
        for (text, password) in [
            ("mysql -u root -px shop", "x"),
            ("mysql -p x", "x"),
            ("(cd /srv; /usr/bin/mysqldump -p\"x y\" shop)", "x y"),
            ("bash -lc 'sudo mysql -p\"x\" shop'", "x"),
            ("{\"command\": \"sshpass -p x ssh host\"}", "x"),
            ("redis-cli -h cache -a x ping", "x"),
            ("docker login registry.example -u ada -p x", "x"),
            ("echo $(mysqladmin.exe -px ping)", "x"),
            ("ALTER USER 'ada'@'%' IDENTIFIED BY 'x'", "x"),
            ("alter user ada identified with sha256_password by \"x\"", "x"),
            ("CREATE ROLE ada LOGIN ENCRYPTED PASSWORD 'it''s'", "it''s"),
            ("SET PASSWORD FOR 'ada'@'%' = PASSWORD('x')", "x"),
            ("{\"sql\": \"IDENTIFIED BY \\\"x\\\"\"}", "x"),
        ] {
            let found: Vec<_> = found(text).into_iter().map(|found| found.trim_end_matches(')')).collect();
            assert_eq!(found, [password], "{text}");
        }
    }

    #[test]
    fn the_same_option_of_another_program_has_no_password() {
        for text in [
            "mkdir -p x && mysql shop",
            "mysql shop; mkdir -p x",
            "docker run -p 80:80 image",
            "ssh -p 22 host",
            "mysql -p -u root",
            "{\"password\": \"x\"}",
            "select password from users where name = 'ada'",
            "identified by its name",
            "don't ask for -p x",
        ] {
            assert!(found(text).is_empty(), "{text}: {:?}", found(text));
        }
    }

    #[test]
    fn a_text_of_many_parts_costs_little() {
        for part in ["mysql -p ", "'", "\" ", "mysql '", "password ", "identified by '", "-p\"x ", "password (\\'"] {
            let _ = found(&part.repeat(20_000));
        }
    }
}
