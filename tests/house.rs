//! Rules about the source code: which modules ("rooms") a module may use, and how long files and functions may be.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

const MAX_FILE_LINES: usize = 500;
const MAX_FUNCTION_LINES: usize = 60;
/// The word of a comment that gives the reason why a file has a longer function.
const REASON: &str = "long:";

/// A source file without its comments, and without the contents of its string and character literals. Line numbers do not change.
#[derive(Clone)]
struct Source {
    /// The path, relative to the repository.
    path: String,
    text: String,
    code: String,
}

impl Source {
    /// Returns the room of the file: `sandbox` for `src/sandbox/run.rs`, `error` for `src/error.rs`.
    fn room(&self) -> &str {
        let inside = self.path.strip_prefix("src/").unwrap_or(&self.path);
        inside.split(['/', '.']).next().unwrap_or_default()
    }

    /// Returns the rooms that the code names.
    fn rooms_named(&self) -> BTreeSet<String> {
        ["crate::", "hyperlight_mcp::"].into_iter().flat_map(|root| paths_after(&self.code, root)).collect()
    }

    fn names(&self, word: &str) -> bool {
        words(&self.code).any(|found| found == word)
    }
}

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the sources of a folder. They are read only once.
fn sources(folder: &'static str) -> Vec<Source> {
    static READ: Mutex<BTreeMap<&str, Vec<Source>>> = Mutex::new(BTreeMap::new());
    READ.lock().unwrap().entry(folder).or_insert_with(|| read_sources(folder)).clone()
}

fn read_sources(folder: &str) -> Vec<Source> {
    let mut files = Vec::new();
    collect(&repository().join(folder), &mut files);
    files.sort();
    let read = |file: PathBuf| {
        let text = fs::read_to_string(&file).unwrap();
        let path = file.strip_prefix(repository()).unwrap().display().to_string();
        Source { code: bare(&text), path, text }
    };
    files.into_iter().map(read).collect()
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// Removes everything that is not code.
fn bare(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = skipped(rest, code.chars().next_back());
        if length == 0 {
            code.push(first);
            rest = &rest[first.len_utf8()..];
        } else {
            code.push(' ');
            code.extend(rest[..length].chars().filter(|character| *character == '\n'));
            rest = &rest[length..];
        }
    }
    code
}

/// Returns the length in bytes of a comment or literal that begins here, or 0 if there is none.
fn skipped(rest: &str, before: Option<char>) -> usize {
    let up_to = |end: &str, from: usize| rest[from..].find(end).map_or(rest.len(), |at| from + at + end.len());
    let in_word = before.is_some_and(|before| before.is_alphanumeric() || before == '_');
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return up_to("*/", 2);
    }
    if !in_word && (rest.starts_with("r\"") || rest.starts_with("r#")) {
        let marks = rest[1..].bytes().take_while(|byte| *byte == b'#').count();
        if rest[1 + marks..].starts_with('"') {
            return up_to(&format!("\"{}", "#".repeat(marks)), marks + 2);
        }
    }
    match rest.as_bytes() {
        [b'"', ..] => end_of_literal(rest, '"'),
        // This is a lifetime, which has no closing quote.
        [b'\'', b'\\', ..] => end_of_literal(rest, '\''),
        [b'\'', ..] => rest.chars().nth(2).filter(|third| *third == '\'').map_or(0, |_| rest.chars().take(3).map(char::len_utf8).sum()),
        _ => 0,
    }
}

fn end_of_literal(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (index, character) in rest.char_indices().skip(1) {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if character == quote => return index + 1,
            _ => {}
        }
    }
    rest.len()
}

fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|character: char| !character.is_alphanumeric() && character != '_').filter(|word| !word.is_empty())
}

/// Returns the first names after a root: `crate::a::B` gives `a`, `crate::{a::B, c}` gives `a` and `c`.
fn paths_after(code: &str, root: &str) -> Vec<String> {
    let mut names = Vec::new();
    for (index, _) in code.match_indices(root) {
        let rest = &code[index + root.len()..];
        let name = |text: &str| words(text.trim_start()).next().unwrap_or_default().to_owned();
        match rest.strip_prefix('{') {
            None => names.push(name(rest)),
            Some(group) => names.extend(top_level(group).into_iter().map(|item| name(&item))),
        }
    }
    names
}

/// Returns the items of a group up to its closing brace, without the groups inside.
fn top_level(group: &str) -> Vec<String> {
    let mut items = vec![String::new()];
    let mut depth = 0;
    for character in group.chars() {
        match character {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => items.push(String::new()),
            _ if depth == 0 => items.last_mut().unwrap().push(character),
            _ => {}
        }
    }
    items.retain(|item| !item.trim().is_empty());
    items
}

/// Returns each function's name, first line and length in lines. Counts braces to find its end.
fn functions(code: &str) -> Vec<(String, usize, usize)> {
    let mut found = Vec::new();
    for (index, _) in code.match_indices("fn ") {
        let in_word = code[..index].chars().next_back().is_some_and(|before| before.is_alphanumeric() || before == '_');
        let Some(name) = words(&code[index + 3..]).next().filter(|_| !in_word) else { continue };
        if let Some(length) = body_end(&code[index..]) {
            let line = code[..index].matches('\n').count() + 1;
            found.push((name.to_owned(), line, code[index..index + length].matches('\n').count() + 1));
        }
    }
    found
}

/// Returns the position where a function's body ends, or `None` if it has no body.
fn body_end(code: &str) -> Option<usize> {
    let (mut depth, mut brackets) = (0_usize, 0_usize);
    for (index, character) in code.char_indices() {
        match character {
            '(' | '[' => brackets += 1,
            ')' | ']' => brackets = brackets.checked_sub(1)?,
            ';' if depth == 0 && brackets == 0 => return None,
            '{' => depth += 1,
            '}' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(index);
                }
            }
            _ => {}
        }
    }
    None
}

/// Fails with a list of everything that breaks a rule.
fn none(rule: &str, broken: &[String]) {
    assert!(broken.is_empty(), "{rule}:\n  {}", broken.join("\n  "));
}

/// Returns the files of a room that name one of the forbidden rooms.
fn trespasses(room: &str, forbidden: &[&str]) -> Vec<String> {
    let inside = sources("src").into_iter().filter(|source| source.room() == room);
    inside
        .flat_map(|source| {
            let named = source.rooms_named();
            forbidden
                .iter()
                .filter(|other| named.contains(**other))
                .map(|other| format!("{} names {other}", source.path))
                .collect::<Vec<_>>()
        })
        .collect()
}

/// Returns the files outside these rooms that name a crate. The tests of a room may name its crates.
fn strangers(word: &str, rooms: &[&str]) -> Vec<String> {
    let of_a_room = |path: &str| rooms.iter().any(|room| path.starts_with(&format!("tests/{room}")));
    let all = sources("src").into_iter().chain(sources("tests").into_iter().filter(|source| !of_a_room(&source.path)));
    all.filter(|source| !rooms.contains(&source.room()) && source.names(word)).map(|source| source.path).collect()
}

#[test]
fn the_sandbox_knows_nothing_of_mcp() {
    none("sandbox", &trespasses("sandbox", &["client", "registry", "trust", "bridge", "gateway", "catalog", "config", "node"]));
}

#[test]
fn the_client_knows_nothing_of_the_sandbox() {
    none("client", &trespasses("client", &["sandbox", "bridge", "gateway", "registry", "trust", "node"]));
}

#[test]
fn fetch_knows_only_the_basic_rooms() {
    let basic = ["text", "redact", "error", "limits", "files", "clock", "queue", "tls", "network", "schema_engine"];
    let plan = plan();
    let others: Vec<_> = plan["fetch"].iter().filter(|room| !basic.contains(&room.as_str())).cloned().collect();
    none("fetch", &others);
}

#[test]
fn only_the_bridge_and_the_gateway_may_know_both_client_and_sandbox() {
    let rooms: BTreeSet<_> = sources("src").iter().map(|source| source.room().to_owned()).collect();
    let knows = |room: &str, other: &str| !trespasses(room, &[other]).is_empty();
    let both = rooms.into_iter().filter(|room| !matches!(room.as_str(), "bridge" | "gateway"));
    none("both", &both.filter(|room| knows(room, "client") && knows(room, "sandbox")).collect::<Vec<_>>());
}

#[test]
fn the_library_is_built_without_node() {
    let lib = fs::read_to_string(repository().join("src/lib.rs")).unwrap();
    assert!(!lib.contains("mod node;"), "the classes for Node are a package of their own");
    let manifest = fs::read_to_string(repository().join("Cargo.toml")).unwrap();
    let dependencies = manifest.split("[profile").next().unwrap();
    assert!(!dependencies.contains("napi"), "a program of the library would be linked with all that napi exports");
}

/// The rooms that each room names.
type Plan = BTreeMap<String, BTreeSet<String>>;

/// Returns the rooms that are part of a cycle, or that depend on one. Repeatedly removes rooms that name no remaining room; the rest is
/// returned.
fn circles(mut plan: Plan) -> Plan {
    loop {
        let ground: Vec<_> = plan.iter().filter(|(_, named)| named.is_empty()).map(|(room, _)| room.clone()).collect();
        if ground.is_empty() {
            return plan;
        }
        plan.retain(|room, _| !ground.contains(room));
        for named in plan.values_mut() {
            named.retain(|room| !ground.contains(room));
        }
    }
}

fn plan() -> Plan {
    let mut plan = Plan::new();
    for source in sources("src").into_iter().filter(|source| !matches!(source.room(), "lib" | "bin")) {
        let named = source.rooms_named().into_iter().filter(|room| room != source.room() && room.starts_with(char::is_lowercase));
        plan.entry(source.room().to_owned()).or_default().extend(
            named.filter(|room| repository().join("src").join(room).exists() || repository().join(format!("src/{room}.rs")).exists()),
        );
    }
    plan
}

#[test]
fn rooms_form_no_circle() {
    let left = circles(plan());
    assert!(left.is_empty(), "{left:#?}");
    let circle =
        [("a", "b"), ("b", "a"), ("c", "a"), ("d", "e")].map(|(room, named)| (room.to_owned(), BTreeSet::from([named.to_owned()])));
    let left: Vec<_> = circles(circle.into_iter().chain([("e".to_owned(), BTreeSet::new())]).collect()).into_keys().collect();
    assert_eq!(left, ["a", "b", "c"]);
}

/// Returns the wings of the room `client` that each of its wings names, without its tests.
fn wings() -> Plan {
    let mut plan = Plan::new();
    let is_test = |source: &Source| source.path.split('/').any(|part| part.contains("test"));
    for source in sources("src/client").into_iter().filter(|source| !is_test(source)) {
        let wing = source.path["src/client/".len()..].split(['/', '.']).next().unwrap().to_owned();
        let code = source.code.split("#[cfg(test)]").next().unwrap();
        let named =
            paths_after(code, "crate::client::").into_iter().filter(|named| *named != wing && named.starts_with(char::is_lowercase));
        let named: Vec<_> = named.collect();
        plan.entry(wing).or_default().extend(named);
    }
    plan
}

#[test]
fn the_wings_of_the_client_form_no_circle() {
    let plan = wings();
    assert!(plan["stdio"].contains("wire") && plan["connection"].contains("inbound"), "these rules see the wings: {plan:#?}");
    let left = circles(plan);
    assert!(left.is_empty(), "{left:#?}");
}

#[test]
fn the_ground_knows_nothing_above_it() {
    let ground = [
        "text",
        "redact",
        "error",
        "limits",
        "files",
        "clock",
        "blocking",
        "queue",
        "turns",
        "caller_memory",
        "off_runtime",
        "tls",
        "network",
        "store",
        "telemetry",
    ];
    let above: Vec<_> = plan()
        .into_iter()
        .filter(|(room, _)| ground.contains(&room.as_str()))
        .flat_map(|(room, named)| {
            named.into_iter().filter(|other| !ground.contains(&other.as_str())).map(move |other| format!("{room} names {other}"))
        })
        .collect();
    none("ground", &above);
}

#[test]
fn each_foreign_crate_is_known_to_few_rooms() {
    for (word, rooms) in [
        ("rmcp", &["client", "serve"][..]),
        ("axum", &["serve"]),
        ("napi", &["node"]),
        ("napi_derive", &["node"]),
        ("hyperlight_host", &["sandbox"]),
        ("hyperlight_js_common", &["sandbox"]),
        ("dom_query", &["boot"]),
        ("dom_smoothie", &["boot"]),
        ("flate2", &["fetch"]),
        ("landlock", &["boxes"]),
        ("seccompiler", &["boxes"]),
    ] {
        none(&format!("{word} belongs to {}", rooms.join(" and ")), &strangers(word, rooms));
        for room in rooms {
            assert!(sources("src").iter().any(|source| source.room() == *room && source.names(word)), "{room} does not use {word}");
        }
    }
}

#[test]
fn only_the_store_knows_sqlite() {
    // Tests are left out, because they change the database like another program.
    let sources = sources("src").into_iter().filter(|source| !source.path.ends_with("tests.rs") && source.room() != "store");
    none("rusqlite", &sources.filter(|source| source.names("rusqlite")).map(|source| source.path).collect::<Vec<_>>());
}

#[test]
fn serve_stands_above_gateway_and_agent_and_only_programs_import_it() {
    let importing = sources("src").into_iter().filter(|source| !matches!(source.room(), "serve" | "cli" | "node"));
    let importing = importing.filter(|source| source.rooms_named().contains("serve"));
    none("serve", &importing.map(|source| source.path).collect::<Vec<_>>());
    none("serve", &trespasses("serve", &["cli", "node"]));
}

#[test]
fn tools_are_made_without_a_server_or_a_vm() {
    let above = ["agent", "bridge", "catalog", "cli", "client", "command", "gateway", "node", "registry", "sandbox", "serve", "trust"];
    none("boot", &trespasses("boot", &above));
}

#[test]
fn no_file_is_too_long() {
    let all = sources("src").into_iter().chain(sources("tests"));
    let lengths = all.map(|source| (source.text.lines().count(), source.path)).filter(|(lines, _)| *lines > MAX_FILE_LINES);
    none("too long", &lengths.map(|(lines, path)| format!("{path}: {lines} lines")).collect::<Vec<_>>());
}

#[test]
fn no_function_is_too_long_without_a_reason() {
    let mut long = Vec::new();
    for source in sources("src").into_iter().chain(sources("tests")) {
        let reason = source.text.lines().any(|line| line.trim_start().starts_with("//") && line.to_lowercase().contains(REASON));
        let too_long = functions(&source.code).into_iter().filter(|(_, _, lines)| *lines > MAX_FUNCTION_LINES && !reason);
        long.extend(too_long.map(|(name, line, lines)| format!("{}:{line}: {name} has {lines} lines", source.path)));
    }
    none("too long", &long);
}

#[test]
fn property_tests_try_the_same_cases_in_each_run() {
    use proptest::test_runner::{Config, RngSeed};
    let seed = Config::default().rng_seed;
    assert!(matches!(seed, RngSeed::Fixed(_)), "{seed}: .cargo/config.toml names the seed, and only `cargo test` reads that file");
}

#[test]
fn these_rules_can_see() {
    let text = "use crate::{a::{b, c}, d}; // crate::x\nfn f<'a>(x: &'a str) -> char { r#\"crate::y }\"#; '}' }\ntrait T { fn g(); }\n";
    let code = bare(text);
    assert_eq!(paths_after(&code, "crate::"), ["a", "d"]);
    assert_eq!(functions(&code), [("f".to_owned(), 2, 1)]);
    assert_eq!(code.lines().count(), text.lines().count());
    assert!(trespasses("gateway", &["sandbox", "client"]).len() > 2);
    let lengths: Vec<_> = sources("src").iter().flat_map(|source| functions(&source.code)).collect();
    assert!(lengths.len() > 200 && lengths.iter().any(|(_, _, lines)| *lines > 30), "{}", lengths.len());
}

/// Returns the paragraph of each room in the plan of rooms. A paragraph begins with the name of the room, two columns from the margin.
fn paragraphs(plan: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut paragraphs = BTreeMap::<String, BTreeSet<String>>::new();
    let mut room = String::new();
    for line in plan.lines() {
        if let Some(begin) = line.strip_prefix("  ").filter(|begin| begin.starts_with(|first: char| first.is_ascii_lowercase())) {
            words(begin).next().unwrap_or_default().clone_into(&mut room);
        }
        paragraphs.entry(room.clone()).or_default().extend(words(line).map(str::to_owned));
    }
    paragraphs
}

#[test]
fn the_plan_of_rooms_names_each_file_in_the_paragraph_of_its_room() {
    let text = fs::read_to_string(repository().join("docs/ARCHITECTURE.md")).unwrap();
    let plan = &text[text.find("\nsrc/\n").unwrap()..text.find("\ntests/ ").unwrap()];
    let paragraphs = paragraphs(plan);
    assert!(paragraphs.len() > 20, "{:?}", paragraphs.keys());
    let is_test = |path: &str| path.contains("tests") || path.contains("testing");
    let is_named = |source: &Source| {
        let stem = Path::new(&source.path).file_stem().unwrap().to_string_lossy().into_owned();
        ["mod", "lib", "build"].contains(&stem.as_str()) || paragraphs.get(source.room()).is_some_and(|paragraph| paragraph.contains(&stem))
    };
    let files = sources("src").into_iter().filter(|source| !is_test(&source.path) && !is_named(source));
    none("not named in the paragraph of its room", &files.map(|source| source.path).collect::<Vec<_>>());
}

#[test]
fn every_source_file_that_a_document_names_exists() {
    let documents = fs::read_dir(repository().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let is_part = |character: char| character.is_ascii_alphanumeric() || "_-./".contains(character);
    let mut missing = Vec::new();
    for document in documents.filter(|path| path.extension().is_some_and(|extension| extension == "md")) {
        let text = fs::read_to_string(&document).unwrap();
        for (start, _) in text.match_indices("`src/") {
            let named: String = text[start + 1..].chars().take_while(|character| is_part(*character)).collect();
            // A pattern such as `src/node/*.d.ts` names no single file. `NAME` stands for any room, and JavaScript in examples belongs to others.
            let is_example = named.contains("NAME") || Path::new(&named).extension().is_some_and(|extension| extension == "js");
            let is_whole = !is_example && text[start + 1 + named.len()..].starts_with(['`', ':']);
            if is_whole && !repository().join(&named).exists() {
                missing.push(format!("{}: {named}", document.display()));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}
