//! Names of agents: where a name comes from, and its form in texts for the operator.

use sha2::{Digest as _, Sha256};

use crate::config::check_label;
use crate::error::{Error, Result};
use crate::redact::Redactor;
use crate::text::escaped;

/// Start of a name in the audit that only the agent's own client has given. No name of the operator contains a colon, so no client passes for
/// an agent of the operator.
const CLIENT_MARK: &str = "client:";
/// Start of a verified subject in the audit that is not well-formed as a name.
const SUBJECT_MARK: &str = "subject:";
/// Start of the digest that follows a subject which is not shown unchanged.
const DIGEST_MARK: &str = " (sha256:";
/// Number of hexadecimal digits of this digest.
const DIGEST_CHARS: usize = 32;
/// Maximum number of characters that are shown of a subject, with its mark. With its digest too, a subject is shorter than the longest name of
/// the audit.
const MAX_SHOWN_CHARS: usize = 128;

/// The origin of an agent's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NameOrigin {
    /// The operator chose the name, or a token that the operator issued contains it. Grants for this name apply to the agent.
    #[default]
    Operator,
    /// The agent's own client chose the name. The name is only used in texts for the operator, after `client:`: a client must not get the
    /// grants of another agent by using its name.
    Client,
    /// The name belongs to the caller's token, but is not well-formed, so nothing can be granted to it. It can be any text. The name is only
    /// used in texts for the operator, after `subject:`.
    Subject,
}

impl NameOrigin {
    /// Refuses a name that is not safe in a log line or a file name. The name of a token can be any text, because it is never shown unchanged.
    pub(super) fn check(self, name: &str) -> Result<()> {
        let checked = match self {
            Self::Operator | Self::Client => check_label(name),
            Self::Subject => Ok(()),
        };
        checked.map_err(|problem| Error::InvalidOption { method: "Gateway.agent", problem: problem.into() })
    }

    /// Returns the name under which grants apply to the agent.
    pub(super) fn granted_name(self, name: &str) -> Option<&str> {
        match self {
            Self::Operator => Some(name),
            Self::Client | Self::Subject => None,
        }
    }

    /// Returns the form of a name in texts for the operator. Two names of different origins never have the same form, and neither have two
    /// different subjects.
    pub(super) fn shown(self, name: &str, redactor: &Redactor) -> String {
        match self {
            Self::Operator => name.to_owned(),
            Self::Client => format!("{CLIENT_MARK}{name}"),
            Self::Subject => shown_subject(name, redactor),
        }
    }
}

/// Returns the readable form of a subject, after its mark. If this form is not the subject itself, a digest of the subject follows, so that
/// subjects with the same readable form differ.
fn shown_subject(subject: &str, redactor: &Redactor) -> String {
    let readable = redactor.readable_line(&format!("{SUBJECT_MARK}{}", escaped(subject)), MAX_SHOWN_CHARS);
    // A blank can be seen only between two words.
    let is_seen = subject.split(' ').all(|word| !word.is_empty() && !word.contains(char::is_whitespace));
    if is_seen && readable.strip_prefix(SUBJECT_MARK) == Some(subject) && !subject.contains(DIGEST_MARK) {
        return readable;
    }
    let digest = hex::encode(Sha256::digest(subject));
    format!("{readable}{DIGEST_MARK}{})", &digest[..DIGEST_CHARS])
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    /// The maximum length of a name in a row of the audit.
    const MAX_ROW_CHARS: usize = 256;

    fn redactor() -> Redactor {
        let redactor = Redactor::new(Some("/home/ada".as_ref()), None);
        redactor.add([&"correct-horse".to_owned().into()]);
        redactor
    }

    fn shown(subject: &str) -> String {
        NameOrigin::Subject.shown(subject, &redactor())
    }

    #[test]
    fn an_agents_name_can_stand_in_a_line_of_a_log() {
        assert!(["researcher", "a", "0.b-c_D", &"n".repeat(64)].into_iter().all(|name| NameOrigin::Operator.check(name).is_ok()));
        for name in ["", "-a", ".a", "a b", "a\nb", "é", "a/b", "subject:a", &"n".repeat(65)] {
            for origin in [NameOrigin::Operator, NameOrigin::Client] {
                assert_eq!(origin.check(name).unwrap_err().code(), "ERR_INVALID_OPTION", "{name}");
            }
            assert!(NameOrigin::Subject.check(name).is_ok());
        }
    }

    #[test]
    fn a_name_shows_its_origin_and_a_readable_subject_is_shown_unchanged() {
        let ada = |origin: NameOrigin| origin.shown("ada", &redactor());
        assert_eq!([NameOrigin::Operator, NameOrigin::Client, NameOrigin::Subject].map(ada), ["ada", "client:ada", "subject:ada"]);
        for subject in ["ada@example.com", "auth0|5f7c8ec7c33c6c004bbafe82", "Анна", "client:ci", "spiffe://a.example/ns/b/sa/c", "a b"]
        {
            assert_eq!(shown(subject), format!("subject:{subject}"));
        }
    }

    #[test]
    fn subjects_that_look_the_same_when_they_are_shown_have_different_digests() {
        let long = |end| format!("user-{}{end}", "x".repeat(200));
        let path = |start| format!("/o={start}/ou=users/cn=ada");
        let pairs = [
            (long(1), long(2)),
            (path("a"), path("b")),
            ("/home/ada/x".into(), "~/x".into()),
            ("a\u{200b}b".into(), "a\\u{200b}b".into()),
            ("a".into(), "a ".into()),
            ("a b".into(), "a\u{a0}b".into()),
            ("a b".into(), "a\nb".into()),
            ("correct-horse".into(), "[redacted]".into()),
        ];
        for (one, other) in pairs {
            let (one, other) = (shown(&one), shown(&other));
            assert_ne!(one, other);
            assert!(one.contains("(sha256:") || other.contains("(sha256:"), "{one} {other}");
        }
        let cut = shown(&long(1));
        assert_ne!(shown(cut.strip_prefix("subject:").unwrap()), cut, "no subject has the form of another one that was cut");
    }

    proptest! {
        #[test]
        fn a_shown_subject_fits_into_a_row_which_changes_nothing_and_is_that_of_no_other(
            subjects in prop::collection::hash_set("([/~ …a\u{200b}b]|correct-horse|\\PC){0,300}", 2..6),
        ) {
            let redactor = redactor();
            let forms: Vec<_> = subjects.iter().map(|subject| NameOrigin::Subject.shown(subject, &redactor)).collect();
            for form in &forms {
                prop_assert!(form.chars().count() <= MAX_ROW_CHARS);
                prop_assert_eq!(&redactor.readable_line(form, MAX_ROW_CHARS), form);
            }
            let rows: HashSet<_> = forms.iter().collect();
            prop_assert_eq!(rows.len(), subjects.len());
        }
    }
}
