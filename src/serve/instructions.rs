//! The instructions for a host: the system message of the host's own agent.

use std::sync::Arc;

use super::handler::Handler;
use super::session::Session;
use crate::gateway::ApprovalRead;

impl Handler {
    /// Returns the instructions for the caller of a session. They describe only the servers that the caller's agent is granted. Returns
    /// `None` if the instructions cannot be made, because a host can work without them. Also returns `None` if the tools of this program
    /// are not served, because the instructions are about these tools. They can take as long as a list of all tools, so they are made in the
    /// caller's turn. A request whose client leaves before its turn makes none.
    pub(super) async fn instructions_of(&self, session: Arc<Session>) -> Option<String> {
        if !self.served.0.options.direct.has_own_tools() {
            return None;
        }
        let (agent, errors) = (session.agent.clone(), self.served.0.options.errors());
        let message = move || agent.system_message_by(None, errors, ApprovalRead::Cached);
        self.served.0.items.in_turn(&self.caller.key, message).await.ok()
    }
}
