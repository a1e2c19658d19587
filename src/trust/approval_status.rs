//! Compares an approval with the current config of a server. Does not access the disk.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use super::document::Approval;
use super::executable::MAX_PROGRAM_BYTES;
use super::subject::Subject;
use crate::catalog::Manifest;
use crate::error::{Error, Result};

/// The degree to which an approval is valid for a server's current config.
#[derive(Debug, Clone, PartialEq)]
pub enum ApprovalStatus {
    /// Nothing may be started.
    Unapproved(NotApprovedReason),
    /// The server may be started so that its tools are read. They may not be called.
    Command,
    /// The server may be started, and its tools may be called.
    Full(Arc<Manifest>),
}

impl ApprovalStatus {
    /// Returns the approved manifest if both stages are approved.
    ///
    /// # Errors
    /// `ERR_NOT_APPROVED`, with the reason.
    pub fn require_full(self, server: &str) -> Result<Arc<Manifest>> {
        match self {
            Self::Full(manifest) => Ok(manifest),
            Self::Command => Err(Error::NotApproved { server: server.to_owned(), reason: "its tools are not approved".into() }),
            Self::Unapproved(lack) => Err(lack.refusal(server)),
        }
    }

    /// Fails if the server may not be started.
    ///
    /// # Errors
    /// `ERR_NOT_APPROVED`, with the reason.
    pub fn require_command(&self, server: &str) -> Result<()> {
        match self {
            Self::Command | Self::Full(_) => Ok(()),
            Self::Unapproved(lack) => Err(lack.refusal(server)),
        }
    }
}

/// The reason why a server is not approved, so that nothing may be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotApprovedReason {
    /// Nobody has approved the server, or the approval was revoked.
    Never,
    /// The command is not the approved one.
    Changed,
    /// The command is not the approved one, or the user's package manager uses another registry.
    ChangedOrRegistry,
    /// The command is not the approved one, and it depends on the workspace folder. The approval may be for another folder.
    Elsewhere,
    /// The approval has expired.
    Expired,
    /// The program's content has changed, and the config contains `pinExecutable`.
    Executable,
    /// The program, its interpreters or its packages are in folders that were not shown at the approval.
    Places,
    /// A link leads a program out of a project, to another place than at the approval.
    Links,
    /// The program cannot be compared with the approved one, and the config contains `pinExecutable`.
    Unreadable,
}

impl NotApprovedReason {
    pub(crate) fn refusal(self, server: &str) -> Error {
        Error::NotApproved { server: server.to_owned(), reason: self.to_string().into() }
    }
}

impl fmt::Display for NotApprovedReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Never => "nobody has approved it",
            Self::Changed => "its entry in the config changed after it was approved",
            Self::ChangedOrRegistry => {
                "its entry in the config, or the registry that your package manager's settings name, changed after it was approved"
            }
            Self::Elsewhere => {
                "its entry in the config changed after it was approved, or was approved in another workspace folder, where its paths name other files"
            }
            Self::Expired => "its approval has expired",
            Self::Executable => "its program changed on disk after it was approved (pinExecutable)",
            Self::Places => {
                "its program, runtime or package is in other folders than when it was approved, and its box would have these folders: approve it again"
            }
            Self::Links => {
                "a link leads its program out of the project, to another place than when it was approved: approve it again, or name the file itself"
            }
            Self::Unreadable => {
                return write!(
                    formatter,
                    "its program is not there, is not a regular file, cannot be read or has more than {} MiB, so it cannot be compared with the \
                     approved program (pinExecutable)",
                    MAX_PROGRAM_BYTES >> 20
                );
            }
        };
        formatter.write_str(text)
    }
}

/// Compares an approval with a subject.
pub(super) fn approval_status(approval: Option<&Approval>, subject: &Subject, now: SystemTime) -> ApprovalStatus {
    let Some(approval) = approval else { return ApprovalStatus::Unapproved(NotApprovedReason::Never) };
    if approval.command_digest != subject.digest {
        return ApprovalStatus::Unapproved(match subject {
            Subject { folder: Some(_), .. } => NotApprovedReason::Elsewhere,
            Subject { registry, .. } if !registry.hosts.is_empty() => NotApprovedReason::ChangedOrRegistry,
            _ => NotApprovedReason::Changed,
        });
    }
    if approval.is_expired(now) {
        return ApprovalStatus::Unapproved(NotApprovedReason::Expired);
    }
    match &subject.executable {
        _ if !subject.pin_executable => {}
        None => return ApprovalStatus::Unapproved(NotApprovedReason::Unreadable),
        now if *now != approval.executable => return ApprovalStatus::Unapproved(NotApprovedReason::Executable),
        Some(_) => {}
    }
    if subject.places.as_ref().is_some_and(|places| !approval.covers_places(places)) {
        return ApprovalStatus::Unapproved(NotApprovedReason::Places);
    }
    if !approval.covers_linked(&subject.linked) {
        return ApprovalStatus::Unapproved(NotApprovedReason::Links);
    }
    match (&approval.manifest, &approval.manifest_digest) {
        (Some(manifest), Some(_)) => ApprovalStatus::Full(Arc::clone(manifest)),
        _ => ApprovalStatus::Command,
    }
}
