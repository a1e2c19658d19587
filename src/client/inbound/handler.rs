//! Answers a server's requests, and gives rmcp the client's name and capabilities.

use std::sync::Arc;

use rmcp::RoleClient;
use rmcp::model::{
    ClientCapabilities, ClientConfig, ClientResult, CustomResult, ErrorCode, ErrorData, Implementation, ProtocolVersion,
    ServerNotification, ServerRequest,
};
use rmcp::service::{InboundStreamOrigin, NotificationContext, RequestContext, Service};
use serde_json::{Value as Json, json};

use super::calls::{Calls, QuestionKind, QuestionRecipient};
use super::questions::{NO_MODEL, NOBODY_ASKED, Questions, declined};
use super::routing::Origin;

/// Answers a server's requests. It ignores notifications, because the interceptor has already handled all notifications that are needed.
pub(in crate::client) struct Handler {
    pub(in crate::client) questions: Questions,
    pub(in crate::client) calls: Arc<Calls>,
    pub(in crate::client) version: ProtocolVersion,
}

impl Handler {
    fn origin(&self, context: &RequestContext<RoleClient>) -> Origin {
        match context.extensions.get::<InboundStreamOrigin>() {
            Some(InboundStreamOrigin::OutboundRequest(id)) => self.calls.origin(id),
            // Servers before MCP 2026-07-28 also send a call's questions on the stream that belongs to no call.
            Some(InboundStreamOrigin::Unassociated) | None => Origin::Unknown,
        }
    }

    /// Finds the recipient of a question. If this is the server's first question that does not name a call, reports this to the observer.
    fn ask(&self, context: &RequestContext<RoleClient>, kind: QuestionKind) -> QuestionRecipient {
        let knew = self.calls.asks_anybody();
        let asked = self.calls.ask(self.origin(context), kind, Some(&context.id));
        if !knew && self.calls.asks_anybody() {
            self.questions.observer.elicited(&self.questions.server);
        }
        asked
    }

    async fn elicit(&self, params: Json, context: &RequestContext<RoleClient>) -> Json {
        let questions = &self.questions;
        if !questions.may_ask() {
            self.calls.forget_question(&context.id);
            return declined();
        }
        match self.ask(context, QuestionKind::Person) {
            QuestionRecipient::Call(call) => {
                let answer = questions.elicit(Some(call.clone()), &params, &context.ct).await;
                call.end_reported().await;
                answer
            }
            QuestionRecipient::Outside(_question) => questions.elicit(None, &params, &context.ct).await,
            QuestionRecipient::Nobody => declined(),
            QuestionRecipient::Ambiguous => questions.ambiguous(),
            QuestionRecipient::TooMany { tool, is_first } => questions.too_many(tool.as_deref(), is_first),
        }
    }

    async fn sample(&self, params: Json, context: &RequestContext<RoleClient>) -> Result<Json, ErrorData> {
        if !self.questions.may_ask() {
            self.calls.forget_question(&context.id);
            return Err(refused(NOBODY_ASKED.to_owned()));
        }
        let answer = match self.ask(context, QuestionKind::Model) {
            QuestionRecipient::Call(call) => {
                let answer = self.questions.sample(Some(call.clone()), params, &context.ct).await;
                call.end_reported().await;
                answer
            }
            QuestionRecipient::Outside(_question) => self.questions.sample(None, params, &context.ct).await,
            QuestionRecipient::Nobody => Err(NO_MODEL.to_owned()),
            QuestionRecipient::TooMany { tool, is_first } => {
                self.questions.too_many(tool.as_deref(), is_first);
                Err("this server has sent too many questions".to_owned())
            }
            QuestionRecipient::Ambiguous => {
                self.questions.ambiguous();
                Err("the client cannot tell which call this request belongs to".to_owned())
            }
        };
        answer.map_err(refused)
    }
}

impl Service<RoleClient> for Handler {
    async fn handle_request(&self, request: ServerRequest, context: RequestContext<RoleClient>) -> Result<ClientResult, ErrorData> {
        let answer = match request {
            ServerRequest::PingRequest(_) => json!({}),
            ServerRequest::ElicitRequest(request) => self.elicit(json!(request.params), &context).await,
            ServerRequest::CreateMessageRequest(request) => self.sample(json!(request.params), &context).await?,
            ServerRequest::ListRootsRequest(_) => self.questions.roots(),
            // rmcp's types cannot parse this question, but it may still be valid enough to be asked.
            ServerRequest::CustomRequest(request) if request.method == "elicitation/create" => {
                self.elicit(request.params.unwrap_or_default(), &context).await
            }
            ServerRequest::CustomRequest(request) if request.method == "sampling/createMessage" => {
                self.sample(request.params.unwrap_or_default(), &context).await?
            }
            ServerRequest::CustomRequest(request) => return Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, request.method, None)),
            _ => return Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "this client does not know the method", None)),
        };
        Ok(ClientResult::CustomResult(CustomResult::new(answer)))
    }

    async fn handle_notification(
        &self,
        _notification: ServerNotification,
        _context: NotificationContext<RoleClient>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    fn get_info(&self) -> ClientConfig {
        let implementation = Implementation::new("hyperlight-mcp", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(capabilities(!self.questions.roots.is_empty()), implementation).with_protocol_version(self.version.clone())
    }
}

/// Returns the client's capabilities. They are the same for every caller, even for a caller that cannot be asked. A server's tools may
/// depend on the capabilities, and approved tools must not change. Roots are announced only if the config contains some. The reason is
/// that a server may replace the folders in its command by the client's roots.
fn capabilities(has_roots: bool) -> ClientCapabilities {
    let mut wire = json!({
        "sampling": {},
        "elicitation": { "form": { "schemaValidation": true }, "url": {} },
        "extensions": { rmcp::model::TASKS_EXTENSION_ID: {} },
    });
    if has_roots {
        wire["roots"] = json!({});
    }
    // The capabilities are parsed from MCP's JSON form, because rmcp may name its own fields differently.
    serde_json::from_value(wire).unwrap_or_default()
}

fn refused(reason: String) -> ErrorData {
    ErrorData::new(ErrorCode::INVALID_REQUEST, reason, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_offered_is_told_and_roots_only_where_there_are_some() {
        let told = json!(capabilities(false));
        assert!(told["elicitation"]["form"].is_object() && told["elicitation"]["url"].is_object(), "{told}");
        assert!(told["sampling"].is_object() && told.get("roots").is_none(), "{told}");
        assert!(told["extensions"][rmcp::model::TASKS_EXTENSION_ID].is_object(), "{told}");
        assert!(json!(capabilities(true))["roots"].is_object());
    }
}
