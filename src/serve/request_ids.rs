//! The ids of the requests of one session, or of the connection over standard input and output. rmcp stores its state of a request under
//! the request's id. If a second request has the same id, rmcp loses the state of the first request, which then never ends. So an id must
//! be unique among the requests in progress. An id must also be short.
//!
//! Also the ids of the questions to the client that have no answer yet. When a client asks for a stream again, rmcp repeats its last
//! messages, and a person must not be asked again what has been answered.

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::sync::Arc;

use parking_lot::Mutex;
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, GetExtensions as _, GetMeta as _, JsonRpcRequest, NumberOrString, RequestId,
    ServerJsonRpcMessage,
};
use rmcp::service::{OriginatingRequestId, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::{RoleServer, model::ClientRequest};

use super::answers::refused as answered;
use crate::error::Error;

/// The maximum length of a request id and of a progress token, in bytes.
const MAX_BYTES: usize = 256;

/// The ids of the requests in progress and of the open questions. Clones are cheap.
#[derive(Debug, Clone, Default)]
pub(super) struct RequestIds(Arc<Mutex<Ids>>);

#[derive(Debug, Default)]
struct Ids {
    /// The requests of the client that are in progress.
    requests: HashSet<RequestId>,
    /// The questions to the client that have no answer yet, each with the request of the client to which it belongs.
    questions: HashMap<RequestId, Option<RequestId>>,
}

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
        if self.0.lock().requests.insert(request.id.clone()) {
            return Ok(());
        }
        refused(id(), "id: another request in progress in this session has the same id; give each request a different id".to_owned())
    }

    /// Releases the id of a request that was not started or that has ended. Its questions need no answer any more.
    pub(super) fn give_back(&self, id: &RequestId) {
        let mut ids = self.0.lock();
        ids.requests.remove(id);
        ids.questions.retain(|_, origin| origin.as_ref() != Some(id));
    }

    /// Releases the id of a request that the client has cancelled, because such a request gets no answer, and the id of a question that the
    /// client answers.
    pub(super) fn received(&self, message: &ClientJsonRpcMessage) {
        match message {
            ClientJsonRpcMessage::Notification(notification) => {
                if let ClientNotification::CancelledNotification(cancelled) = &notification.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    self.give_back(id);
                }
            }
            ClientJsonRpcMessage::Response(response) => {
                self.0.lock().questions.remove(&response.id);
            }
            ClientJsonRpcMessage::Error(error) => {
                let mut ids = self.0.lock();
                error.id.iter().for_each(|id| drop(ids.questions.remove(id)));
            }
            ClientJsonRpcMessage::Request(_) => {}
        }
    }

    /// Releases the id of a request that is being answered, and remembers the id of a question that is being sent. Returns whether the
    /// message is sent. A question about a request that has ended is not sent: nobody waits for its answer, and on another stream rmcp
    /// would keep it.
    pub(super) fn sent(&self, message: &ServerJsonRpcMessage) -> bool {
        match message {
            ServerJsonRpcMessage::Response(response) => self.give_back(&response.id),
            ServerJsonRpcMessage::Error(error) => error.id.iter().for_each(|id| self.give_back(id)),
            ServerJsonRpcMessage::Request(question) => {
                let origin = question.request.extensions().get::<OriginatingRequestId>().map(|origin| origin.0.clone());
                let mut ids = self.0.lock();
                if origin.as_ref().is_some_and(|origin| !ids.requests.contains(origin)) {
                    return false;
                }
                ids.questions.insert(question.id.clone(), origin);
            }
            ServerJsonRpcMessage::Notification(_) => {}
        }
        true
    }

    /// Returns whether a message may be sent again to a client that asks for a stream again: every message except a question that has been
    /// answered or that nobody waits for.
    pub(super) fn is_current(&self, message: &ServerJsonRpcMessage) -> bool {
        match message {
            ServerJsonRpcMessage::Request(question) => self.0.lock().questions.contains_key(&question.id),
            _ => true,
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
        let sending = self.ids.sent(&message).then(|| self.transport.send(message));
        async move {
            match sending {
                Some(sending) => sending.await,
                None => Ok(()),
            }
        }
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
        assert_eq!(ids.0.lock().requests.len(), 1);
    }

    fn question(id: i64, origin: i64) -> ServerJsonRpcMessage {
        let mut message = serde_json::from_value(json!({ "jsonrpc": "2.0", "id": id, "method": "roots/list" })).unwrap();
        if let ServerJsonRpcMessage::Request(question) = &mut message {
            question.request.extensions_mut().insert(OriginatingRequestId(NumberOrString::Number(origin)));
        }
        message
    }

    #[test]
    fn a_question_is_open_until_it_is_answered_or_its_request_ends() {
        let ids = RequestIds::default();
        let received = |message: Json| ids.received(&serde_json::from_value(message).unwrap());
        ids.take(&request(&json!(1), &json!(1))).unwrap();
        ids.take(&request(&json!(2), &json!(2))).unwrap();
        let questions = [question(10, 1), question(11, 1), question(12, 2)];
        assert!(questions.iter().all(|question| ids.sent(question) && ids.is_current(question)));
        received(json!({ "jsonrpc": "2.0", "id": 10, "result": { "roots": [] } }));
        assert!(!ids.is_current(&questions[0]) && ids.is_current(&questions[1]));
        received(json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 1 } }));
        assert!(!ids.is_current(&questions[1]) && ids.is_current(&questions[2]));
        received(json!({ "jsonrpc": "2.0", "id": 12, "error": { "code": -1, "message": "no" } }));
        assert!(!ids.is_current(&questions[2]) && ids.0.lock().questions.is_empty());
    }

    #[test]
    fn a_question_about_a_request_that_has_ended_is_not_sent() {
        let ids = RequestIds::default();
        ids.take(&request(&json!(1), &json!(1))).unwrap();
        assert!(ids.sent(&question(10, 1)) && !ids.sent(&question(11, 2)));
        ids.sent(&ServerJsonRpcMessage::error(rmcp::ErrorData::internal_error("", None), Some(NumberOrString::Number(1))));
        assert!(!ids.sent(&question(12, 1)) && ids.0.lock().questions.is_empty());
    }
}
