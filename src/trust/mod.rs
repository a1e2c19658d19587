//! Decides whether a server may run and whether a model may read its texts: digests, approvals, the write gate, the audit of texts, and the
//! approval requests for a person.

mod allowed_writes;
mod approval_status;
mod approvals;
mod digest;
mod document;
mod drift;
mod executable;
mod fetch_approval;
mod folder;
mod gate;
mod processes;
mod reads;
mod request;
mod resources_and_prompts;
mod revocations;
mod shown;
mod shown_environment;
mod shown_value;
mod subject;
mod text_audit;

pub use crate::store::{Canonical, MachineKey};
pub use allowed_writes::AllowedWrites;
pub use approval_status::{ApprovalStatus, NotApprovedReason};
pub use approvals::{ApprovalSnapshot, ApprovalStore, IncidentListener};
pub use digest::{manifest_digest, tool_digest};
pub use document::{Approval, Approvals, Content, NamedFiles, read as read_approvals};
pub use drift::{Changes, Difference, Drift, Item, ToolComparison, compare_tool, differences};
pub use executable::{Executable, Executables, locate_program};
pub use fetch_approval::{FetchApproval, FetchHosts, fetch_row};
pub use folder::{command_depends_on_workspace, deciding_folder};
pub use gate::{Decision, Gate, gate, read_gate};
pub use reads::is_read;
pub use request::{Added, ApprovalRequest, CommandRequest, ManifestChanges, ManifestRequest, ToolSummary};
pub use resources_and_prompts::{
    HostFieldsSummary, PromptSummary, ResourceSummary, ResourceTemplateSummary, filter_manifest, filter_warnings, shown_prompt,
    shown_resource, shown_template,
};
pub use revocations::ApprovalBasis;
pub(crate) use shown::{METADATA_FIELD, address_of, input_lines, oauth_lines, shown_header};
pub use shown::{addresses_of, shown_variable};
pub(crate) use shown_environment::{HIDDEN_IN_CODE, InCode, in_code, shown_variable_of};
pub use subject::{Circumstances, Subject};
#[cfg(test)]
pub(crate) use text_audit::texts_read;
pub use text_audit::{Finding, Severity, audit_generated, audit_manifest, audit_manifest_among, audit_text};
