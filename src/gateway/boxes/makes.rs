//! Programs of other servers that do not exist now, and that a box could create. An approval request names the programs that are missing
//! when a person approves a server. If a program is removed later, for example before it is built again, no box may create it.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::links::is_as_approved;
use crate::boxes::{Changes, place_of};
use crate::config::{ServerDefinition, server_of_key};
use crate::error::{Error, Result};
use crate::gateway::core::Core;
use crate::trust::{Approval, NamedFiles};

impl Core {
    /// Fails if the box of a server could create a missing program of another approved server, and no approval request has named this
    /// program.
    ///
    /// # Errors
    /// `ERR_BOX_FAILED`, `ERR_APPROVAL_STORE`.
    pub(super) fn check_makes(&self, server: &ServerDefinition, changes: &Changes) -> Result<()> {
        let makes: Vec<&PathBuf> = changes.makes().collect();
        if makes.is_empty() {
            return Ok(());
        }
        let (approvals, own_key) = (self.trust.approvals.snapshot()?, server.key());
        let valid: Vec<(&str, &Approval)> = approvals.valid(SystemTime::now()).collect();
        // Without an approval, the start does not get here: the check of the command has already failed.
        let Some((_, own)) = valid.iter().find(|(key, _)| *key == own_key) else { return Ok(()) };
        let others = valid.iter().filter(|(key, _)| *key != own_key).copied();
        let projects = self.projects();
        // A server does not start with a program to which a link leads that was changed since the approval.
        let place = |named: &NamedFiles, path: &Path| is_as_approved(named, path, &projects).then(|| place_of(path));
        let Some((path, key)) = unsaid(&makes, own, others, &place) else { return Ok(()) };
        let problem = format!(
            "{}, which the server \"{}\" runs, does not exist now, and this box could make it. No approval request has said this. Make the program \
             again, or revoke this server and approve it again",
            path.display(),
            server_of_key(key)
        );
        Err(Error::BoxFailed { server: server.name.clone(), problem: problem.into() })
    }
}

/// Returns the first missing program that a box can create and that no request has named, and the key of the program's server. `place_of`
/// follows links, and returns `None` for a program that counts no more. If the program was missing when the later of the two servers was approved, the request of that server has named it. A
/// server that is not approved has no programs here: its own request will name them.
fn unsaid<'m, 'a>(
    makes: &[&'m PathBuf],
    own: &Approval,
    others: impl Iterator<Item = (&'a str, &'a Approval)>,
    place_of: &dyn Fn(&NamedFiles, &Path) -> Option<PathBuf>,
) -> Option<(&'m PathBuf, &'a str)> {
    let makes: Vec<&&PathBuf> = makes.iter().filter(|path| own.makes.iter().all(|said| Path::new(said) != path.as_path())).collect();
    if makes.is_empty() {
        return None;
    }
    for (key, other) in others {
        let is_later = other.approved_at >= own.approved_at;
        let is_said = |program: &String| is_later && other.named.missing.contains(program);
        for program in other.named.programs.iter().filter(|program| !is_said(program)) {
            let place = place_of(&other.named, Path::new(program));
            if let Some(path) = makes.iter().find(|path| Some(path.as_path()) == place.as_deref()) {
                return Some((path, key));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn approval(approved_at: u64, programs: &[&str], missing: &[&str], makes: &[&str]) -> Approval {
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let named = NamedFiles { programs: texts(programs), missing: texts(missing), ..NamedFiles::default() };
        let json = serde_json::json!({ "commandDigest": "1", "approvedAt": approved_at, "makes": makes });
        Approval { named, ..serde_json::from_value(json).unwrap() }
    }

    #[test]
    fn a_program_that_is_gone_since_both_approvals_is_made_by_no_box() {
        let (made, programs) = (PathBuf::from("/ws/bin/b"), ["/link/b", "/ws/other"]);
        let place_of = |_: &NamedFiles, path: &Path| {
            let place = path.strip_prefix("/link").map_or_else(|_| path.to_owned(), |rest| Path::new("/ws/bin").join(rest));
            (path != Path::new("/changed/b")).then_some(place)
        };
        let unsaid = |own: Approval, other: Approval| {
            unsaid(&[&made], &own, [("b", &other)].into_iter(), &place_of).map(|(path, key)| (path.clone(), key.to_owned()))
        };
        let refused = Some((made.clone(), "b".to_owned()));
        for (own_time, time) in [(1, 2), (2, 1), (1, 1)] {
            assert_eq!(unsaid(approval(own_time, &[], &[], &[]), approval(time, &programs, &[], &[])), refused, "it existed");
            assert_eq!(
                unsaid(approval(own_time, &[], &[], &["/ws/bin/b"]), approval(time, &programs, &[], &[])),
                None,
                "its request says it"
            );
        }
        assert_eq!(unsaid(approval(1, &[], &[], &[]), approval(2, &programs, &["/link/b"], &[])), None, "the later request says it");
        assert_eq!(
            unsaid(approval(2, &[], &[], &[]), approval(1, &programs, &["/link/b"], &[])),
            refused,
            "it existed at the later request"
        );
        assert_eq!(unsaid(approval(1, &[], &[], &[]), approval(1, &["/changed/b"], &[], &[])), None, "its link was changed since");
        assert_eq!(unsaid(approval(1, &[], &[], &[]), approval(1, &["/ws/other"], &[], &[])), None, "a server without an approval");
    }
}
