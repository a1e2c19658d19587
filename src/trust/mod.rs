//! May it run, and may a model read it: digests of what was shown, and the approvals that hold them.

mod approvals;
mod digest;
mod request;

pub use approvals::{Approval, ApprovalStore, Standing};
pub use digest::{command_digest, manifest_digest};
pub use request::{ApprovalRequest, CommandRequest, ManifestChanges, ManifestRequest, ToolSummary};
