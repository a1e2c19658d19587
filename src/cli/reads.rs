//! Asks a person which tools without annotations are reads, so that their calls need no question.

use serde_json::json;

use super::terminal::Dialog;
use crate::command::{Style, joined, one_line};

/// Names the tools that sound like reads, and returns those that the person chooses.
pub(super) async fn chosen_reads(dialog: &Dialog<'_>, names: &[String], style: &Style) -> Vec<String> {
    if names.is_empty() {
        return Vec::new();
    }
    let told = told(names);
    // A server chooses the names. A name that could look like several is in quotes.
    let numbered = (1..).zip(names).map(|(number, name)| format!("{number} {}", joined(&[name]))).collect::<Vec<_>>().join(", ");
    dialog.say(&format!("\n{}{}", style.wrapped("", &told), style.marked("  ", &one_line(&numbered))));
    loop {
        let answer = dialog.ask("Which of them are reads, to be called without a question? [a]ll, [N]one, or numbers (1,3-5): ").await;
        match choice(answer.as_deref().unwrap_or_default(), names) {
            Some(chosen) => return chosen,
            None => dialog.say(&format!("  please answer a, n, or numbers from 1 to {}\n", names.len())),
        }
    }
}

/// Names the tools that sound like reads, if no command can write their names into the entry. Shows the line that a person can add;
/// `way_out` says where.
pub(super) fn tell_reads(dialog: &Dialog<'_>, names: &[String], way_out: &str, style: &Style) {
    let line = format!("\"reads\": {}", json!(names));
    let texts = [style.wrapped("", &told(names)), style.marked("  ", &one_line(&joined(names)))];
    dialog.say(&format!(
        "\n{}{}{}",
        texts.concat(),
        style.wrapped("", &one_line(&format!("{way_out}:"))),
        style.marked("  ", &one_line(&line))
    ));
}

/// Returns the beginning of a text about tools that sound like reads.
fn told(names: &[String]) -> String {
    let count = if names.len() == 1 { "This tool sounds like a read" } else { "These tools sound like reads" };
    format!("{count}, and the server does not say what they do. Before each call you would be asked:")
}

/// Returns the names that an answer selects. `None` if the answer is neither a word nor numbers of the list.
fn choice(answer: &str, names: &[String]) -> Option<Vec<String>> {
    match answer.trim().to_lowercase().as_str() {
        "" | "n" | "no" | "none" => return Some(Vec::new()),
        "a" | "all" => return Some(names.to_vec()),
        _ => {}
    }
    let mut chosen = vec![false; names.len()];
    for part in answer.split([',', ' ']).filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
        if first == 0 || first > last {
            return None;
        }
        chosen.get_mut(first - 1..last)?.fill(true);
    }
    Some(names.iter().zip(chosen).filter(|(_, chosen)| *chosen).map(|(name, _)| name.clone()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_chooses_all_none_or_some() {
        let names: Vec<String> = ["a", "b", "c", "d"].map(str::to_owned).to_vec();
        let chosen = |answer: &str| choice(answer, &names).map(|chosen| chosen.concat());
        for (answer, expected) in [
            ("", ""),
            ("n", ""),
            ("None", ""),
            ("a", "abcd"),
            ("ALL", "abcd"),
            ("2", "b"),
            ("4,1", "ad"),
            ("1-2, 4", "abd"),
            ("3-3 1", "ac"),
        ] {
            assert_eq!(chosen(answer).as_deref(), Some(expected), "{answer:?}");
        }
        for answer in ["0", "5", "2-1", "3-5", "b", "y", "1-", "-1", "1.5", "99999999999999999999"] {
            assert_eq!(chosen(answer), None, "{answer:?}");
        }
    }
}
