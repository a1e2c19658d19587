//! The requests of the host that have no answer yet. When the input ends, rmcp waits some seconds for the answers to these requests. But
//! rmcp does not report whether all requests were answered.

use std::collections::HashSet;
use std::future::Future;
use std::sync::Arc;

use parking_lot::Mutex;
use rmcp::RoleServer;
use rmcp::model::{ClientJsonRpcMessage, ClientNotification, ClientRequest, RequestId, ServerJsonRpcMessage};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;

use super::Drain;

/// The ids of the requests without an answer. All clones share the same set.
#[derive(Debug, Clone, Default)]
pub(super) struct Unanswered(Arc<Mutex<HashSet<RequestId>>>);

impl Unanswered {
    /// Returns whether all requests were answered.
    pub(super) fn drain(&self) -> Drain {
        if self.0.lock().is_empty() { Drain::Complete } else { Drain::CutOff }
    }

    /// Remembers a request. If the message cancels a request, forgets that request, because it gets no answer.
    fn received(&self, message: &ClientJsonRpcMessage) {
        match message {
            // A stream of updates always lasts until the server ends, so its end is not counted as cut off.
            ClientJsonRpcMessage::Request(request) if !matches!(request.request, ClientRequest::SubscriptionsListenRequest(_)) => {
                self.0.lock().insert(request.id.clone());
            }
            ClientJsonRpcMessage::Notification(notification) => {
                if let ClientNotification::CancelledNotification(cancelled) = &notification.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    self.0.lock().remove(id);
                }
            }
            _ => {}
        }
    }
}

fn answered(message: &ServerJsonRpcMessage) -> Option<RequestId> {
    match message {
        ServerJsonRpcMessage::Response(response) => Some(response.id.clone()),
        ServerJsonRpcMessage::Error(error) => error.id.clone(),
        _ => None,
    }
}

/// A transport that records which requests have no answer. A request is answered when its answer has been written.
pub(super) struct Counting<T> {
    pub(super) transport: T,
    pub(super) unanswered: Unanswered,
}

impl<T: Transport<RoleServer>> Transport<RoleServer> for Counting<T> {
    type Error = T::Error;

    fn send(&mut self, message: TxJsonRpcMessage<RoleServer>) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let (id, unanswered) = (answered(&message), self.unanswered.clone());
        let sending = self.transport.send(message);
        async move {
            sending.await?;
            if let Some(id) = id {
                unanswered.0.lock().remove(&id);
            }
            Ok(())
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        let message = self.transport.receive().await?;
        self.unanswered.received(&message);
        Some(message)
    }

    fn close(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send {
        self.transport.close()
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use rmcp::model::ServerResult;
    use serde_json::{Value as Json, json};

    use super::*;

    /// A host that sends these messages. Its end can be closed.
    struct Host {
        sends: Vec<Json>,
        is_closed: bool,
    }

    impl Transport<RoleServer> for Host {
        type Error = io::Error;

        fn send(&mut self, _: ServerJsonRpcMessage) -> impl Future<Output = io::Result<()>> + Send + 'static {
            let is_closed = self.is_closed;
            async move { if is_closed { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) } }
        }

        async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
            self.sends.pop().map(|message| serde_json::from_value(message).unwrap())
        }

        async fn close(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    async fn having_sent(sends: Vec<Json>, is_closed: bool) -> Counting<Host> {
        let host = Host { sends: sends.into_iter().rev().collect(), is_closed };
        let mut counting = Counting { transport: host, unanswered: Unanswered::default() };
        while counting.receive().await.is_some() {}
        counting
    }

    fn answer() -> ServerJsonRpcMessage {
        ServerJsonRpcMessage::response(ServerResult::empty(()), RequestId::Number(1))
    }

    #[tokio::test]
    async fn a_request_is_open_until_its_answer_is_written_or_it_is_cancelled() {
        let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
        let mut open = having_sent(vec![list.clone()], false).await;
        assert_eq!(open.unanswered.drain(), Drain::CutOff);
        open.send(answer()).await.unwrap();
        assert_eq!(open.unanswered.drain(), Drain::Complete);

        let mut unwritten = having_sent(vec![list.clone()], true).await;
        assert!(unwritten.send(answer()).await.is_err());
        assert_eq!(unwritten.unanswered.drain(), Drain::CutOff);

        let cancelled = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 1 } });
        assert_eq!(having_sent(vec![list, cancelled], false).await.unanswered.drain(), Drain::Complete);
    }

    #[tokio::test]
    async fn a_stream_of_updates_is_not_waited_for() {
        let params = json!({ "notifications": { "toolsListChanged": true } });
        let listen = json!({ "jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params });
        assert_eq!(having_sent(vec![listen], false).await.unanswered.drain(), Drain::Complete);
    }
}
