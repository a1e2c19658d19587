//! Backpressure: while a client does not read the messages for it, nothing is read from this client. This limits the memory for unsent
//! messages.

use std::future::Future;
use std::sync::Arc;

use rmcp::service::{RxJsonRpcMessage, ServiceRole, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::sync::watch;

/// The maximum number of unsent messages. While this many messages are unsent, nothing is read from the client.
const MAX_UNSENT: usize = 256;

/// A transport that reads from its client only while the client reads the messages that are sent to it.
pub(super) struct Backpressure<T> {
    transport: T,
    unsent: Arc<watch::Sender<usize>>,
}

/// A message that is not sent yet.
struct Unsent(Arc<watch::Sender<usize>>);

impl Drop for Unsent {
    fn drop(&mut self) {
        self.0.send_modify(|unsent| *unsent -= 1);
    }
}

impl<T> Backpressure<T> {
    pub(super) fn new(transport: T) -> Self {
        Self { transport, unsent: Arc::new(watch::Sender::new(0)) }
    }
}

impl<R: ServiceRole, T: Transport<R>> Transport<R> for Backpressure<T> {
    type Error = T::Error;

    fn send(&mut self, message: TxJsonRpcMessage<R>) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.unsent.send_modify(|unsent| *unsent += 1);
        let (unsent, sending) = (Unsent(Arc::clone(&self.unsent)), self.transport.send(message));
        async move {
            let sent = sending.await;
            drop(unsent);
            sent
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<R>> {
        // The sender belongs to this value, so the channel is never closed.
        let _ = self.unsent.subscribe().wait_for(|unsent| *unsent < MAX_UNSENT).await;
        self.transport.receive().await
    }

    fn close(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send {
        self.transport.close()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::convert::Infallible;

    use futures::FutureExt as _;
    use futures::future::BoxFuture;
    use rmcp::RoleServer;
    use rmcp::model::{ClientJsonRpcMessage, ClientNotification, RequestId, ServerJsonRpcMessage, ServerResult};
    use tokio::sync::oneshot;

    use super::*;

    /// A client that sends endlessly. It reads a message only when the test tells it to.
    #[derive(Default)]
    struct Client {
        unread: Vec<oneshot::Sender<()>>,
    }

    impl Transport<RoleServer> for Client {
        type Error = Infallible;

        fn send(&mut self, _: ServerJsonRpcMessage) -> impl Future<Output = Result<(), Infallible>> + Send + 'static {
            let (read, is_read) = oneshot::channel();
            self.unread.push(read);
            async move {
                let _ = is_read.await;
                Ok(())
            }
        }

        async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
            let initialized = serde_json::json!({ "method": "notifications/initialized" });
            Some(ClientJsonRpcMessage::notification(serde_json::from_value::<ClientNotification>(initialized).unwrap()))
        }

        async fn close(&mut self) -> Result<(), Infallible> {
            Ok(())
        }
    }

    fn send(transport: &mut Backpressure<Client>) -> BoxFuture<'static, Result<(), Infallible>> {
        transport.send(ServerJsonRpcMessage::response(ServerResult::empty(()), RequestId::Number(1))).boxed()
    }

    #[test]
    fn a_client_that_does_not_read_is_not_read_from_until_it_does() {
        let mut transport = Backpressure::new(Client::default());
        let mut sending = VecDeque::new();
        for _ in 1..MAX_UNSENT {
            sending.push_back(send(&mut transport));
        }
        assert!(transport.receive().now_or_never().is_some());
        sending.push_back(send(&mut transport));
        assert!(transport.receive().now_or_never().is_none());
        transport.transport.unread.remove(0).send(()).unwrap();
        assert!(sending.pop_front().unwrap().now_or_never().is_some());
        assert!(transport.receive().now_or_never().is_some());
        sending.push_back(send(&mut transport));
        assert!(transport.receive().now_or_never().is_none());
        // Dropping the futures drops the messages. The same happens at the end of a connection.
        drop(sending);
        assert!(transport.receive().now_or_never().is_some());
    }
}
