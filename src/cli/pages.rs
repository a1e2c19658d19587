//! Shows a long text to a person page by page, with the question that follows at its end.

use super::terminal::Dialog;

/// The number of lines that are shown without a pause. These are about two screens, so a person can scroll back.
const AT_ONCE: usize = 80;
/// The number of lines of a page.
const PAGE: usize = 40;

/// A person's choice after a page.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Page,
    Rest,
    Question,
}

fn next(answer: Option<&str>) -> Next {
    match answer.map(str::to_lowercase).as_deref() {
        Some("a" | "all") => Next::Rest,
        Some("s" | "skip" | "q") | None => Next::Question,
        Some(_) => Next::Page,
    }
}

/// Shows a text. `all` shows it without a pause.
pub(super) async fn show(dialog: &Dialog<'_>, text: &str, all: bool) {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    if all || lines.len() <= AT_ONCE {
        return dialog.say(text);
    }
    let mut shown = 0;
    while shown < lines.len() {
        let end = (shown + PAGE).min(lines.len());
        dialog.say(&lines[shown..end].concat());
        shown = end;
        if shown == lines.len() {
            return;
        }
        let question = format!("-- {} of {} lines. Enter: next page, [a]ll, [s]kip to the question: ", shown, lines.len());
        match next(dialog.ask(&question).await.as_deref()) {
            Next::Page => {}
            Next::Rest => return dialog.say(&lines[shown..].concat()),
            Next::Question => {
                return dialog
                    .say(&format!("  {} lines were not shown; `approve --all` shows them without a pause\n", lines.len() - shown));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_decides_what_comes_next() {
        assert_eq!((next(Some("")), next(Some("y"))), (Next::Page, Next::Page));
        assert_eq!((next(Some("A")), next(Some("all"))), (Next::Rest, Next::Rest));
        assert_eq!((next(Some("s")), next(None)), (Next::Question, Next::Question));
    }
}
