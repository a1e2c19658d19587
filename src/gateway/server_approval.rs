//! Asks the operator to approve a server that somebody wants to enable, instead of returning an error.

use super::Gateway;
use crate::error::{Error, Result};

impl Gateway {
    /// Enables a server for a person. If the server is not approved and the operator's callbacks can ask (`Callbacks::approve_server`),
    /// first asks about each stage (the command, then the manifest). Approves exactly the requests that were shown.
    ///
    /// # Errors
    /// The errors of [`Gateway::enable`], [`Gateway::approval_request`] and [`Gateway::approve`]. `ERR_NOT_APPROVED` if nobody can be asked, or the
    /// answer is no.
    pub async fn enable_asking(&self, name: &str) -> Result<()> {
        let mut shown: Vec<String> = Vec::new();
        loop {
            let not_approved = match self.enable(name) {
                Err(error @ Error::NotApproved { .. }) if self.core.people.callbacks.can_approve_server() => error,
                outcome => return outcome,
            };
            let request = self.approval_request(name).await?;
            if request.is_approved() {
                // Somebody else has approved the server in the meantime.
                return self.enable(name);
            }
            let digest = request.digest().to_owned();
            // If an approval had no effect, the same request would be shown again and again. So each digest is shown only once.
            if shown.contains(&digest) {
                return Err(Error::DigestChanged { server: name.to_owned() });
            }
            let Some(answer) = self.core.people.callbacks.approve_server(&request) else { return Err(not_approved) };
            if !answer.await.map_err(|error| self.core.redacted(error))? {
                return Err(not_approved);
            }
            self.approve(name, Some(&digest), None).await?;
            shown.push(digest);
        }
    }
}
