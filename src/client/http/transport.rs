//! The HTTP transport. It connects rmcp's worker with the HTTP client, and closes both.

use std::collections::HashMap;
use std::sync::Arc;

use rmcp::RoleClient;
use rmcp::model::{ClientRequest, JsonRpcMessage, RequestId};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::common::client_side_sse::NeverRetry;
use rmcp::transport::streamable_http_client::{StreamableHttpClientTransport, StreamableHttpClientTransportConfig};
use tokio_util::sync::CancellationToken;

use super::cancellation::{Farewell, cancelled};
use super::client::HttpClient;
use super::failure::HttpFailure;
use super::target::{CONTROL_TIMEOUT, Endpoint, HttpLimits, HttpTarget};
use super::tls::client_for;
use crate::client::inbound::notification::Interceptor;
use crate::client::inbound::owner::OwnerOf;
use crate::error::{Error, Result};
use crate::network::NetworkRuntime;

/// Maximum number of open requests. A call is open while it waits for its answer.
const CONCURRENT_REQUESTS: usize = 1_024;
/// Number of messages that may wait to be handled. A server that sends more messages must wait.
const QUEUE: usize = 64;

/// Makes the transport of a connection. Also returns a [`Farewell`], which must be used before the transport is closed. The transport
/// connects when the first message is sent. The client and rmcp's worker run on the threads of the target's `network`, so that reading a
/// server's bytes takes no processor time of other threads.
///
/// # Errors
/// `ERR_INSECURE_URL`, or `ERR_CONNECT_FAILED` for an invalid url or header.
pub(in crate::client) fn http_transport(
    target: &HttpTarget,
    interceptor: Interceptor,
    owner_of: OwnerOf,
    limits: HttpLimits,
) -> Result<(impl Transport<RoleClient> + use<>, Farewell)> {
    let endpoint = Endpoint::of(target)?;
    let web = client_for(&endpoint.url, &limits)
        .map_err(|problem| Error::ConnectFailed { server: target.server.clone(), problem: problem.into() })?;
    let stop = CancellationToken::new();
    let network = Arc::clone(&target.network);
    let handle = network
        .handle()
        .map_err(|unavailable| Error::ConnectFailed { server: target.server.clone(), problem: unavailable.to_string().into() })?;
    // rmcp gets a placeholder instead of the URL, because it would write the URL to its log.
    let mut config = StreamableHttpClientTransportConfig::with_uri("http:")
        .max_concurrent_requests(CONCURRENT_REQUESTS)
        .control_request_timeout(CONTROL_TIMEOUT)
        .session_recovery_timeout(limits.connect)
        .max_sse_event_size(limits.message_bytes)
        .reinit_on_expired_session(true);
    config.channel_buffer_capacity = QUEUE;
    config.retry_config = Arc::new(NeverRetry::default());
    let client = HttpClient::new(endpoint, web, interceptor, owner_of, limits, (stop.clone(), handle.clone()));
    // rmcp starts its worker on the current runtime.
    let entered = handle.enter();
    let inner = StreamableHttpClientTransport::with_client(client.clone(), config);
    drop(entered);
    let farewell = Farewell::of(&client);
    Ok((HttpTransport { inner, client, discovering: None, overtaken: None, is_older: false, stop, _network: network }, farewell))
}

struct HttpTransport {
    inner: StreamableHttpClientTransport<HttpClient>,
    client: HttpClient,
    /// Id of the last `server/discover` request.
    discovering: Option<RequestId>,
    /// Id of a `server/discover` request that was still unanswered when rmcp began the handshake with `initialize`.
    overtaken: Option<RequestId>,
    /// True once the `initialize` handshake (MCP versions before 2026-07-28) has begun.
    is_older: bool,
    stop: CancellationToken,
    /// The runtime of the transport. It is kept here, because the runtime ends when its last owner is dropped.
    _network: Arc<NetworkRuntime>,
}

impl Drop for HttpTransport {
    fn drop(&mut self) {
        self.stop.cancel();
        self.client.unanswered.end();
        // rmcp does not end the session if a handshake is abandoned, so the session is ended here. After a normal close, there is no
        // session left.
        let client = self.client.clone();
        self.client.network.spawn(async move { client.bye(&HashMap::new()).await });
    }
}

impl Transport<RoleClient> for HttpTransport {
    type Error = HttpFailure;

    fn send(
        &mut self,
        message: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = std::result::Result<(), HttpFailure>> + Send + 'static {
        if let JsonRpcMessage::Request(request) = &message {
            match &request.request {
                ClientRequest::DiscoverRequest(_) => self.discovering = Some(request.id.clone()),
                ClientRequest::InitializeRequest(_) => (self.overtaken, self.is_older) = (self.discovering.take(), true),
                _ => {}
            }
        }
        // The cancelled request is looked up now, because rmcp drops it when the message is sent.
        let id = cancelled(&message).filter(|_| self.is_older).cloned();
        let cancelling = id.map(|id| self.client.cancel(&id, message.clone()));
        let sending = self.inner.send(message);
        async move {
            match cancelling {
                // rmcp's own future is dropped. Creating the future has already ended the request in rmcp's worker. Awaiting it would
                // send the cancellation a second time.
                Some(cancelling) => {
                    drop(sending);
                    cancelling.await;
                    Ok(())
                }
                None => sending.await.map_err(HttpFailure::from),
            }
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            let message = self.inner.receive().await?;
            let id = match &message {
                JsonRpcMessage::Response(response) => Some(&response.id),
                JsonRpcMessage::Error(error) => error.id.as_ref(),
                _ => None,
            };
            // rmcp would treat this late answer to `server/discover` as the answer to `initialize`, and fail.
            if id.is_none() || id != self.overtaken.as_ref() {
                return Some(message);
            }
        }
    }

    async fn close(&mut self) -> std::result::Result<(), HttpFailure> {
        // Running requests are stopped first. rmcp's worker can then end the session.
        self.stop.cancel();
        self.inner.close().await.map_err(HttpFailure::from)
    }
}
