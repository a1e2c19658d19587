//! Serves a gateway over one transport until it is closed.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::http::{self, HttpOptions};
use super::standard::{Input, Output};
use super::{Drain, ServeOptions, Served, serve_stdio};
use crate::blocking::blocking;
use crate::error::{Error, Result};
use crate::gateway::{Attached, Gateway};

/// The time that requests in progress have to finish when serving over standard input and output is closed.
const DRAIN: Duration = Duration::from_secs(5);
/// The time after [`DRAIN`] in which the last answers can still be written.
const LAST_WRITES: Duration = Duration::from_secs(1);

/// The transport over which hosts connect to a served gateway.
#[derive(Debug, Clone)]
pub enum Transport {
    /// Standard input and output of this process, for one host. No other code may use them while the gateway is served.
    Stdio,
    /// Streamable HTTP, for many clients.
    Http(Box<HttpOptions>),
}

/// A gateway that is being served. Serving ends with [`ServedGateway::close`], or when the gateway is closed. Over standard input and
/// output, serving also ends when the host closes its end. Serving continues if this handle is dropped. All clones control the same served
/// gateway.
#[derive(Debug, Clone)]
pub struct ServedGateway {
    url: Option<Arc<str>>,
    stop: CancellationToken,
    /// The result of serving, once serving has ended.
    ended: watch::Receiver<Option<Result<Drain>>>,
}

/// Serves a gateway to MCP hosts. All approved servers are enabled, including those that are approved later. Servers that a person has
/// disabled stay disabled. Over HTTP, one gateway can be served several times.
///
/// ```no_run
/// # async fn example(gateway: hyperlight_mcp::Gateway) -> hyperlight_mcp::Result<()> {
/// use hyperlight_mcp::serve::{ServeOptions, Transport, serve};
///
/// let served = serve(gateway, ServeOptions::default(), Transport::Http(Box::default())).await?;
/// println!("{}", served.url().unwrap_or_default());
/// served.close().await;
/// # Ok(()) }
/// ```
///
/// # Errors
/// `ERR_INVALID_OPTION`; `ERR_UNKNOWN_SERVER` for a server in `servers`, `allow_writes` or `direct`; `ERR_IO` for a file that cannot be read or a port
/// that is in use; `ERR_CLOSED`, `ERR_APPROVAL_STORE`.
pub async fn serve(gateway: Gateway, options: ServeOptions, transport: Transport) -> Result<ServedGateway> {
    let redacting = gateway.clone();
    begin(gateway, options, transport).await.map_err(|error| redacting.redacted(error))
}

async fn begin(gateway: Gateway, options: ServeOptions, transport: Transport) -> Result<ServedGateway> {
    let attached = gateway.attach()?;
    if let Transport::Http(options) = &transport {
        options.validate()?;
        let key = options.tls.as_ref().map(|files| files.key.clone());
        gateway.keep_from_boxes(&options.token_file.iter().cloned().chain(key).collect::<Vec<_>>())?;
    }
    let runtime = tokio::runtime::Handle::current();
    let starting = move || {
        let served = options.servers.iter().flat_map(|servers| servers.iter().map(String::as_str));
        let named = options.allow_writes.servers().chain(options.direct.servers()).chain(served);
        named.map(|server| gateway.server_info(server)).try_for_each(|found| found.map(drop))?;
        Served::new(gateway, options, &runtime)
    };
    let served = blocking(starting).await?;
    match transport {
        Transport::Http(options) => over_http(served, *options, attached).await,
        Transport::Stdio => over_stdio(served, attached),
    }
}

impl ServedGateway {
    /// Returns the URL of the MCP endpoint, for example `http://127.0.0.1:8080/mcp`. Returns `None` over standard input and output.
    #[must_use]
    pub fn url(&self) -> Option<&str> {
        self.url.as_deref()
    }

    /// Ends serving: accepts no new requests, gives requests in progress some time to finish, and then cancels them. Returns whether all
    /// requests have finished. A second call waits for the first.
    pub async fn close(&self) -> Drain {
        self.stop.cancel();
        self.outcome().await.unwrap_or(Drain::Complete)
    }

    /// Waits until serving has ended.
    ///
    /// # Errors
    /// `ERR_IO` if the host did not use the MCP protocol.
    pub async fn ended(&self) -> Result<()> {
        self.outcome().await.map(drop)
    }

    async fn outcome(&self) -> Result<Drain> {
        let mut ended = self.ended.clone();
        match ended.wait_for(Option::is_some).await {
            Ok(outcome) => outcome.clone().unwrap_or(Ok(Drain::Complete)),
            // An error means that the runtime has ended.
            Err(_) => Ok(Drain::CutOff),
        }
    }

    /// Starts `work`. The work gets a token, and must end when this token is cancelled.
    fn begin<W>(url: Option<&str>, work: impl FnOnce(CancellationToken) -> W) -> Self
    where
        W: Future<Output = Result<Drain>> + Send + 'static,
    {
        let (stop, (sender, ended)) = (CancellationToken::new(), watch::channel(None));
        let work = work(stop.clone());
        tokio::spawn(async move {
            let outcome = work.await;
            sender.send_replace(Some(outcome));
        });
        Self { url: url.map(Arc::from), stop, ended }
    }
}

async fn over_http(served: Served, options: HttpOptions, attached: Attached) -> Result<ServedGateway> {
    let (handlers, metrics) = (served.clone(), Arc::clone(served.metrics()));
    let make = move |principal: &http::Principal| handlers.handler(principal);
    let killed = CancellationToken::new();
    let server = http::listen(options, make, metrics, killed.clone()).await?;
    let url = server.url().to_owned();
    Ok(ServedGateway::begin(Some(&url), |stop| async move {
        let Attached { closed, until_dropped } = attached;
        tokio::select! {
            () = stop.cancelled() => {}
            () = closed.cancelled() => {}
        }
        // When the gateway is closed, all requests in progress end with an error. Their clients must still get this error.
        let kills = async {
            closed.cancelled().await;
            sleep(LAST_WRITES).await;
            killed.cancel();
        };
        // The run of a task has no request while its client does not poll it.
        let tasks = served.0.tasks.clone();
        let drain = tokio::select! {
            drain = server.close_after(tasks.until_idle()) => drain,
            () = kills => server.close().await,
        };
        served.close();
        drop((server, served, until_dropped));
        Ok(drain)
    }))
}

fn over_stdio(served: Served, attached: Attached) -> Result<ServedGateway> {
    let taken = Taken::take()?;
    let (input_ends, cut) = (CancellationToken::new(), CancellationToken::new());
    let failed = |error: io::Error| Error::io("standard input and output", &error);
    let input = Input::new(io::stdin(), input_ends.clone()).map_err(failed)?;
    let output = Output::new(io::stdout(), cut.clone()).map_err(failed)?;
    Ok(ServedGateway::begin(None, |stop| async move {
        let (Attached { closed, until_dropped }, cancelled) = (attached, CancellationToken::new());
        let ends = async {
            tokio::select! {
                // Requests of the host that are in progress are still answered.
                () = async { stop.cancelled().await; input_ends.cancel(); sleep(DRAIN).await } => {}
                () = closed.cancelled() => {}
            }
            // The closing of the gateway has ended all requests with an error. The host must still get this error.
            input_ends.cancel();
            for ends in [&cancelled, &cut] {
                sleep(LAST_WRITES).await;
                ends.cancel();
            }
        };
        let outcome = {
            let mut serving = Box::pin(serve_stdio(&served, input, output, cancelled.clone()));
            tokio::select! {
                outcome = &mut serving => outcome,
                () = ends => serving.await,
            }
        };
        let outcome = outcome.map_err(|error| served.0.gateway.redacted(error));
        served.close();
        drop((served, until_dropped, taken));
        if stop.is_cancelled() || closed.is_cancelled() { Ok(outcome.unwrap_or(Drain::Complete)) } else { outcome }
    }))
}

/// The exclusive right to use standard input and output for one host.
struct Taken;

static IS_TAKEN: AtomicBool = AtomicBool::new(false);

impl Taken {
    fn take() -> Result<Self> {
        if IS_TAKEN.swap(true, Ordering::AcqRel) {
            return Err(http::invalid(
                "stdio: this process serves a host on standard input and output already: close that first".to_owned(),
            ));
        }
        Ok(Self)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        IS_TAKEN.store(false, Ordering::Release);
    }
}
