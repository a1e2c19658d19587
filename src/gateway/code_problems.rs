//! Removes secrets from the problems that a check finds in agent code. The code may contain a secret, for example one that a model has read
//! somewhere, and the problems quote the code.

use crate::redact::Redactor;
use crate::sandbox::Problem;

/// The maximum number of characters of a line that replaces an excerpt.
const MAX_LINE_CHARS: usize = 120;
/// The line that replaces an excerpt if the place of the excerpt is not known in the redacted code.
const NOT_SHOWN: &str = "[redacted]";

/// Returns the problems without the secrets in the code.
pub(super) fn without_secrets(redactor: &Redactor, code: &str, problems: Vec<Problem>) -> Vec<Problem> {
    if problems.is_empty() {
        return problems;
    }
    let redacted = redactor.without_secrets(code);
    if redacted == code {
        return problems;
    }
    let lines = Lines { given: code.split('\n').collect(), redacted: redacted.split('\n').collect() };
    let change = |problem: Problem| Problem {
        message: redactor.without_secrets(&problem.message).into_owned(),
        excerpt: lines.excerpt(redactor, problem.line, problem.excerpt),
        suggestion: problem.suggestion.map(|name| redactor.without_secrets(&name).into_owned()),
        ..problem
    };
    problems.into_iter().map(change).collect()
}

/// The lines of code, as given and without secrets.
struct Lines<'a> {
    given: Vec<&'a str>,
    redacted: Vec<&'a str>,
}

impl Lines<'_> {
    /// Returns the excerpt. If its line contains a secret, returns the redacted line instead, without the second line with carets. An
    /// excerpt may contain a part of a secret, which the redactor would not find, so the whole line is redacted before it is cut.
    fn excerpt(&self, redactor: &Redactor, line: u32, excerpt: String) -> String {
        let index = usize::try_from(line).ok().and_then(|line| line.checked_sub(1));
        // A secret of several lines is one mark, so the lines after it have other numbers.
        let is_moved = self.given.len() != self.redacted.len();
        match index.and_then(|index| Some((self.given.get(index)?, self.redacted.get(index)?))) {
            Some((given, redacted)) if !is_moved && given == redacted => excerpt,
            Some((_, redacted)) if !is_moved => {
                format!("{line} | {}", redactor.readable(redacted).chars().take(MAX_LINE_CHARS).collect::<String>())
            }
            _ => format!("{line} | {NOT_SHOWN}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::ProblemKind;

    fn problem(line: u32, message: &str, excerpt: &str) -> Problem {
        Problem {
            kind: ProblemKind::Syntax,
            message: message.to_owned(),
            line,
            column: 1,
            end_line: line,
            end_column: 2,
            excerpt: excerpt.to_owned(),
            suggestion: Some("a".to_owned()),
        }
    }

    #[test]
    fn a_problem_does_not_repeat_a_secret_of_the_code_or_a_part_of_it() {
        let redactor = Redactor::new(None, None);
        redactor.add([&"correct-horse-battery".to_owned().into()]);
        let code = "const key = 'correct-horse-battery' +\nnext()";
        let excerpt = "1 | st key = 'correct-hor\n  |                     ^";
        let problems = vec![problem(1, "\"correct-horse-battery\" is wrong", excerpt), problem(2, "m", "2 | next()\n  | ^")];
        let shown = without_secrets(&redactor, code, problems.clone());
        assert_eq!(shown[0].message, "\"[redacted]\" is wrong");
        assert_eq!(shown[0].excerpt, "1 | const key = '[redacted]' +");
        assert_eq!(shown[1], problems[1]);
        assert_eq!(without_secrets(&redactor, "const key = 1 +\nnext()", problems.clone()), problems);
    }

    #[test]
    fn after_a_secret_of_several_lines_no_line_of_the_code_is_shown() {
        let redactor = Redactor::new(None, None);
        redactor.add([&"correct-horse\nbattery-staple".to_owned().into()]);
        let problems = vec![problem(3, "m", "3 | battery-staple`")];
        let shown = without_secrets(&redactor, "x\nconst key = `correct-horse\nbattery-staple`", problems);
        assert_eq!(shown[0].excerpt, "3 | [redacted]");
    }
}
