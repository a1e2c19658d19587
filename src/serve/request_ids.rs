//! The ids of the requests of one session, or of the connection over standard input and output. rmcp stores its state of a request under the request's id. If a second request has the same id,
//! rmcp loses the state of the first request, which then never ends. So an id must be unique among the requests in progress. An id must
//! also be short.

use std::collections::HashSet;
use std::future::Future;
use std::sync::Arc;

use parking_lot::Mutex;
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, GetMeta as _, JsonRpcRequest, NumberOrString, RequestId, ServerJsonRpcMessage,
};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::{RoleServer, model::ClientRequest};

use super::answers::refused as answered;
use crate::error::Error;

/// The maximum length of a request id and of a progress token, in bytes.
const MAX_BYTES: usize = 256;

/// The ids of the requests in progress. Clones are cheap.
#[derive(Debug, Clone, Default)]
pub(super) struct RequestIds(Arc<Mutex<HashSet<RequestId>>>);

impl RequestIds {
    /// Reserves the id of a request.
    ///
    /// # Errors
    /// The error response for a request whose id is in use or too long, or whose progress token is too long.
    pub(super) fn take(&self, request: &JsonRpcRequest<ClientRequest>) -> Result<(), Box<ServerJsonRpcMessage>> {
        let refused = |id: Option<RequestId>, problem: String| {
            let error = answered(&Error::InvalidRequest { problem: problem.into() });
            Err(Box::new(ServerJsonRpcMessage::error(error, id)))
        };
        if is_long(&request.id) {
            return refused(None, format!("the id can have at most {MAX_BYTES} bytes"));
        }
        let id = || Some(request.id.clone());
        if request.request.get_meta().get_progress_token().is_some_and(|token| is_long(&token.0)) {
            return refused(id(), format!("the progressToken can have at most {MAX_BYTES} bytes"));
        }
        if self.0.lock().insert(request.id.clone()) {
            return Ok(());
        }
        refused(id(), "id: another request in progress in this session has the same id; give each request a different id".to_owned())
    }

    /// Releases the id of a request that was not started.
    pub(super) fn give_back(&self, id: &RequestId) {
        self.0.lock().remove(id);
    }

    /// Releases the id of a request that the client has cancelled, because such a request gets no answer.
    pub(super) fn received(&self, message: &ClientJsonRpcMessage) {
        if let ClientJsonRpcMessage::Notification(notification) = message
            && let ClientNotification::CancelledNotification(cancelled) = &notification.notification
            && let Some(id) = &cancelled.params.request_id
        {
            self.give_back(id);
        }
    }

    /// Releases the id of a request that is being answered.
    pub(super) fn sent(&self, message: &ServerJsonRpcMessage) {
        match message {
            ServerJsonRpcMessage::Response(response) => self.give_back(&response.id),
            ServerJsonRpcMessage::Error(error) => error.id.iter().for_each(|id| self.give_back(id)),
            _ => {}
        }
    }
}

fn is_long(id: &NumberOrString) -> bool {
    matches!(id, NumberOrString::String(text) if text.len() > MAX_BYTES)
}

/// The transport of a session. It releases the ids of answered requests.
pub(super) struct Answering<T> {
    pub(super) transport: T,
    pub(super) ids: RequestIds,
}

impl<T: Transport<RoleServer>> Transport<RoleServer> for Answering<T> {
    type Error = T::Error;

    fn send(&mut self, message: TxJsonRpcMessage<RoleServer>) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.ids.sent(&message);
        self.transport.send(message)
    }

    fn receive(&mut self) -> impl Future<Output = Option<RxJsonRpcMessage<RoleServer>>> + Send {
        self.transport.receive()
    }

    fn close(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send {
        self.transport.close()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::*;

    fn request(id: &Json, token: &Json) -> JsonRpcRequest<ClientRequest> {
        let meta = json!({ "progressToken": token });
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/list", "params": { "_meta": meta } });
        let ClientJsonRpcMessage::Request(request) = serde_json::from_value(message).unwrap() else { panic!("no request") };
        request
    }

    #[test]
    fn an_id_is_in_use_until_its_request_is_answered_or_cancelled() {
        let ids = RequestIds::default();
        let take = |id: Json| ids.take(&request(&id, &json!(1)));
        assert!(take(json!(7)).is_ok() && take(json!("7")).is_ok() && take(json!(8)).is_ok());
        let Some(ServerJsonRpcMessage::Error(refused)) = take(json!(7)).err().map(|refused| *refused) else { panic!("it is taken") };
        assert!(refused.id == Some(NumberOrString::Number(7)) && refused.error.message.contains("in progress"));
        ids.sent(&ServerJsonRpcMessage::error(rmcp::ErrorData::internal_error("", None), Some(NumberOrString::Number(7))));
        assert!(take(json!(7)).is_ok() && take(json!(8)).is_err());
        let cancelled = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 8 } });
        ids.received(&serde_json::from_value(cancelled).unwrap());
        assert!(take(json!(8)).is_ok());
    }

    #[test]
    fn a_long_id_and_a_long_token_are_refused() {
        let (long, ids) = (json!("x".repeat(MAX_BYTES + 1)), RequestIds::default());
        assert!(ids.take(&request(&long, &json!(1))).is_err() && ids.take(&request(&json!(1), &long)).is_err());
        assert!(ids.take(&request(&json!("x".repeat(MAX_BYTES)), &json!("y".repeat(MAX_BYTES)))).is_ok());
        assert_eq!(ids.0.lock().len(), 1);
    }
}
