//! Tests of changes and their undo, with configs as the hosts write them.

use std::fmt::Write as _;

use proptest::prelude::*;
use serde_json::{Value as Json, json};

use crate::cli::edit::{
    Change, Piece, Problem, RemovedServer, Shape, UndoFacts, change_of, digest, parsed, replaced, servers, sources, undone,
};

const SERVERS: Shape = Shape::Json("servers");
const MCP_SERVERS: Shape = Shape::Json("mcpServers");
const OURS: &str = "hyperlight-mcp";

const CORPUS: [(&str, Shape, &str); 12] = [
    ("vscode-user", SERVERS, include_str!("corpus/vscode-user.jsonc")),
    ("vscode-project", SERVERS, include_str!("corpus/vscode-project.jsonc")),
    ("claude-code-user", MCP_SERVERS, include_str!("corpus/claude-code-user.jsonc")),
    ("claude-code-project", MCP_SERVERS, include_str!("corpus/claude-code-project.jsonc")),
    ("claude-desktop", MCP_SERVERS, include_str!("corpus/claude-desktop.jsonc")),
    ("cursor", MCP_SERVERS, include_str!("corpus/cursor.jsonc")),
    ("cursor-empty-section", MCP_SERVERS, include_str!("corpus/cursor-empty-section.jsonc")),
    ("cursor-other-keys", MCP_SERVERS, include_str!("corpus/cursor-other-keys.jsonc")),
    ("codex", Shape::Toml, include_str!("corpus/codex.toml")),
    ("codex-inline", Shape::Toml, include_str!("corpus/codex-inline.toml")),
    ("codex-dotted", Shape::Toml, include_str!("corpus/codex-dotted.toml")),
    ("codex-no-servers", Shape::Toml, include_str!("corpus/codex-no-servers.toml")),
];

/// Returns the collected configs, and some files with little content.
fn corpus() -> Vec<(&'static str, Shape, &'static str)> {
    let little = [
        "",
        "\n",
        " \n\n",
        "{}",
        "{ }\n",
        "{\n}\n",
        "// only a comment",
        "/* a\n b */\n",
        "{\"mcpServers\":{}}",
        "{\"mcpServers\":{\"a\":{}}}",
    ];
    let little = little.map(|text| ("little", MCP_SERVERS, text));
    let toml = ["", "\n", "# only a comment", "[mcp_servers]\n", "[mcp_servers.a]"].map(|text| ("little", Shape::Toml, text));
    CORPUS.into_iter().chain(little).chain(toml).collect()
}

/// Returns the same text in another form: with other line ends, another indentation, a byte order mark, or without the last line end.
fn variant(text: &str, kind: usize) -> String {
    match kind {
        0 => text.to_owned(),
        1 => text.replace('\n', "\r\n"),
        2 => text.replace("    ", "\t").replace("  ", "\t"),
        3 => format!("\u{feff}{text}"),
        4 => text.trim_end().to_owned(),
        _ => format!("\u{feff}{}", text.trim_end().replace('\n', "\r\n")),
    }
}

fn entry() -> Json {
    json!({ "command": "/n/bin/node", "args": ["/p/hyperlight-mcp.mjs", "serve"] })
}

struct Installed {
    text: String,
    change: Change,
    taken: Vec<RemovedServer>,
}

/// Replaces the servers whose bits are set in the mask with our entry.
fn installed(shape: Shape, text: &str, mask: u32) -> Installed {
    let names = servers(shape, text).unwrap().into_iter().map(|(name, _)| name).enumerate();
    let names: Vec<String> = names.filter(|(index, _)| mask & (1 << index) != 0).map(|(_, name)| name).collect();
    let taken = sources(shape, text, &names).unwrap();
    assert_eq!(taken.len(), names.len());
    let new = replaced(shape, text, &names, &[Piece::Entry { name: OURS.to_owned(), entry: entry() }]).unwrap();
    Installed { change: change_of(text, &new), text: new, taken }
}

fn undo(shape: Shape, before: &str, installed: &Installed, now: &str) -> (String, bool) {
    let after = digest(&installed.text);
    let done = UndoFacts { before, after: &after, change: &installed.change, name: OURS, taken: &installed.taken };
    let undone = undone(shape, now, &done).unwrap();
    (undone.text, undone.exact)
}

/// Returns the comments outside of the servers that were replaced.
fn comments(text: &str) -> Vec<&str> {
    [
        "// Servers of this machine",
        "// remote",
        "/* local ones */",
        "// \"off\"",
        "// the end",
        "// none yet",
        "// Written by hand",
        "# Codex of Ada",
        "# ask",
        "# Documentation",
        "# Files of the home",
        "# end of the file",
        "// only a comment",
        "# only a comment",
    ]
    .into_iter()
    .filter(|comment| text.contains(comment))
    .collect()
}

#[test]
fn every_file_of_every_host_comes_back_to_the_byte() {
    for (name, shape, text) in corpus() {
        for kind in 0..6 {
            let before = variant(text, kind);
            for mask in 0..8 {
                let installed = installed(shape, &before, mask);
                let (after, exact) = undo(shape, &before, &installed, &installed.text);
                assert!(exact && after == before, "{name} {kind} {mask}");
                let all = parsed(shape, &installed.text).unwrap();
                assert_eq!(all[shape.section()][OURS], entry(), "{name} {kind} {mask}");
                assert_eq!(comments(&installed.text), comments(&before), "{name} {kind} {mask}\n{}", installed.text);
                let crlf = |text: &str| (text.matches("\r\n").count(), text.matches('\n').count());
                let (with_return, all) = crlf(&installed.text);
                let (had_return, had_all) = crlf(&before);
                assert!(had_return != had_all || had_all == 0 || with_return == all, "{name} {kind}: line ends are mixed");
                assert_eq!(before.starts_with('\u{feff}'), installed.text.starts_with('\u{feff}'));
            }
        }
    }
}

#[test]
fn strict_json_stays_strict_json() {
    for name in ["claude-code-user", "claude-code-project", "claude-desktop"] {
        let (_, shape, text) = CORPUS.into_iter().find(|(known, ..)| *known == name).unwrap();
        for mask in 0..4 {
            let new = installed(shape, text, mask).text;
            assert!(serde_json::from_str::<Json>(&new).is_ok(), "{name} {mask}\n{new}");
        }
    }
}

#[test]
fn our_entry_takes_the_place_and_the_form_of_the_servers() {
    let (_, shape, text) = CORPUS[5];
    insta::assert_snapshot!("cursor", installed(shape, text, 0b11).text);
    let (_, shape, text) = CORPUS[8];
    insta::assert_snapshot!("codex", installed(shape, text, 0b111).text);
    let (_, shape, text) = CORPUS[0];
    insta::assert_snapshot!("vscode", installed(shape, text, 0b11).text);
}

/// Returns the text after a change that somebody else makes after the installation.
fn edited_by_others(shape: Shape, text: &str, kind: usize) -> Option<String> {
    let toml = shape == Shape::Toml;
    let body = text.trim_start_matches('\u{feff}');
    let mark = &text[..text.len() - body.len()];
    let theirs = Piece::Entry { name: "theirs".to_owned(), entry: json!({ "command": "theirs" }) };
    match (kind, toml) {
        (0, false) => Some(format!("{mark}// theirs\n{body}")),
        (0, true) => Some(format!("{mark}# theirs\n{body}")),
        (1, _) => replaced(shape, text, &[], &[theirs]).ok(),
        (2, false) => body.rfind('}').map(|end| format!("{mark}{}\n// theirs\n{}", &body[..end], &body[end..])),
        (2, true) => Some(format!("{text}\n[theirs]\nx = 1\n")),
        (3, _) => text.contains("/n/bin/node").then(|| text.replace("/n/bin/node", "/other/node")),
        (4, false) => Some(format!("{:#}\n", parsed(shape, text).ok()?)),
        (4, true) => Some(text.replace("\r\n", "\n").replace('\n', "\r\n")),
        _ => {
            let stays = servers(shape, text).ok()?.into_iter().map(|(name, _)| name).find(|name| name != OURS)?;
            replaced(shape, text, &[stays], &[theirs]).ok()
        }
    }
}

/// Returns the content that an undo must produce: the current content without our entry, and with the servers that are missing.
fn expected(shape: Shape, before: &str, now: &str, taken: &[RemovedServer]) -> Json {
    let old = servers(shape, before).unwrap();
    let mut all = parsed(shape, now).unwrap();
    let section = all[shape.section()].as_object_mut().unwrap();
    section.remove(OURS);
    for RemovedServer { name, text: _ } in taken {
        section.entry(name.clone()).or_insert_with(|| old[name].clone());
    }
    all
}

fn without_empty_section(shape: Shape, mut all: Json) -> Json {
    if all.is_null() {
        all = json!({});
    }
    if all[shape.section()].as_object().is_none_or(serde_json::Map::is_empty) {
        all.as_object_mut().unwrap().remove(shape.section());
    }
    all
}

#[test]
fn an_undo_keeps_the_changes_of_others() {
    for (name, shape, text) in corpus() {
        for (kind, edit, mask) in all_of(6, 6, 8) {
            let before = variant(text, kind);
            let installed = installed(shape, &before, mask);
            let Some(now) = edited_by_others(shape, &installed.text, edit) else { continue };
            let (after, exact) = undo(shape, &before, &installed, &now);
            let place = format!("{name}, variant {kind}, edit {edit}, mask {mask:b}\nnow:\n{now}\nafter:\n{after}");
            assert!(!exact || now == installed.text, "{place}");
            let is = without_empty_section(shape, parsed(shape, &after).unwrap());
            assert_eq!(is, without_empty_section(shape, expected(shape, &before, &now, &installed.taken)), "{place}");
            assert!(edit != 0 || after.contains("theirs"), "{place}");
            if edit != 4 {
                assert_eq!(comments(&after), comments(&before), "{place}");
            }
        }
    }
}

fn all_of(kinds: usize, edits: usize, masks: u32) -> impl Iterator<Item = (usize, usize, u32)> {
    (0..kinds).flat_map(move |kind| (0..edits).flat_map(move |edit| (0..masks).map(move |mask| (kind, edit, mask))))
}

#[test]
fn a_comment_of_another_person_elsewhere_leaves_the_old_bytes_as_they_were() {
    for (name, shape, text) in CORPUS {
        let installed = installed(shape, text, 0b111);
        for edit in [0, 2] {
            let now = edited_by_others(shape, &installed.text, edit).unwrap();
            let (after, _) = undo(shape, text, &installed, &now);
            assert_eq!(after, edited_by_others(shape, text, edit).unwrap(), "{name} {edit}");
        }
    }
}

#[test]
fn a_server_that_somebody_added_again_under_its_old_name_stays_theirs() {
    let (before, shape) = (r#"{ "mcpServers": { "a": { "command": "old" }, "b": { "command": "b" } } }"#, MCP_SERVERS);
    let installed = installed(shape, before, 0b11);
    let theirs = Piece::Entry { name: "a".to_owned(), entry: json!({ "command": "new" }) };
    let now = replaced(shape, &installed.text, &[], &[theirs]).unwrap();
    let (after, _) = undo(shape, before, &installed, &now);
    assert_eq!(parsed(shape, &after).unwrap(), json!({ "mcpServers": { "a": { "command": "new" }, "b": { "command": "b" } } }));
}

#[test]
fn a_problem_has_its_place_and_no_value() {
    let of = |shape, text: &str| servers(shape, text).unwrap_err();
    let secret = "sk-0123456789abcdef";
    assert!(
        matches!(of(MCP_SERVERS, &format!("{{\n  \"a\": \"{secret}\"\n  ]\n")), Problem::Syntax { line: 3, column: 3, what } if !what.contains(secret))
    );
    assert!(matches!(of(Shape::Toml, &format!("a = 1\nb = {secret}\n")), Problem::Syntax { line: 2, what, .. } if !what.contains(secret)));
    assert!(matches!(of(MCP_SERVERS, "[]"), Problem::Shape(_)));
    let put =
        |shape, text: &str| replaced(shape, text, &[], &[Piece::Entry { name: OURS.to_owned(), entry: entry() }]).unwrap_err().to_string();
    assert!(put(MCP_SERVERS, r#"{ "mcpServers": [] }"#).contains("is not an object"));
    assert!(put(MCP_SERVERS, r#"{ "mcpServers": {}, "mcpServers": {} }"#).contains("twice"));
    assert!(put(MCP_SERVERS, r#"{ "mcpServers": { "a": {}, "a": {} } }"#).contains("twice"));
    assert!(put(Shape::Toml, "mcp_servers = {}").contains("[mcp_servers.NAME]"));
}

fn blanks() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["", " ", "\n", "\n  ", "\r\n\t", " // c\n", " /* c, } */ ", "\n\n"])
}

prop_compose! {
    /// Generates a JSON text with comments and blanks at any place.
    fn any_text()(count in 0_usize..5, blanks in prop::collection::vec(blanks(), 40), trailing: bool, others in 0_usize..3) -> String {
        let mut blanks = blanks.into_iter().cycle();
        let mut blank = || blanks.next().unwrap();
        let mut text = format!("{}{{{}", blank(), blank());
        for index in 0..others {
            let _ = write!(text, "\"o{index}\"{}:{}[1, {{\"mcpServers\": {{}}}}]{},{}", blank(), blank(), blank(), blank());
        }
        let _ = write!(text, "\"mcpServers\"{}:{}{{{}", blank(), blank(), blank());
        for index in 0..count {
            let comma = if index + 1 < count || trailing { "," } else { "" };
            // A comment within a server is part of the server, and is removed with it.
            let _ = write!(text, "\"s{index}\" /* d */:\n{{\"command\": // d\n\"c\"}}{}{comma}{}", blank(), blank());
        }
        text + &format!("}}{}}}{}", blank(), blank())
    }
}

proptest! {
    #[test]
    fn any_text_is_changed_without_a_loss_and_comes_back(text in any_text(), mask in 0_u32..32, edit in 0_usize..6) {
        let shape = MCP_SERVERS;
        let installed = installed(shape, &text, mask);
        prop_assert_eq!(undo(shape, &text, &installed, &installed.text), (text.clone(), true));
        for comment in ["// c", "/* c, } */"] {
            prop_assert_eq!(text.matches(comment).count(), installed.text.matches(comment).count(), "{}", installed.text);
        }
        if let Some(now) = edited_by_others(shape, &installed.text, edit) {
            let (after, _) = undo(shape, &text, &installed, &now);
            prop_assert_eq!(parsed(shape, &after).unwrap(), expected(shape, &text, &now, &installed.taken), "{}", after);
        }
    }
}
