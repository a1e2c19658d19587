//! Listener for the redirect URI. It serves one path on 127.0.0.1, accepts one answer from the browser, and then closes.

use std::collections::VecDeque;
use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use secrecy::{ExposeSecret as _, SecretString};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};
use url::Url;

use super::failure::Refusal;

/// Path of the redirect URI for a client id that other authorization servers may know too. The path is the same for all of these servers.
pub(super) const PATH: &str = "/callback";
const MAX_REQUEST_BYTES: usize = 16 * 1024;
const REQUEST_TIME: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(50);
/// Maximum number of connections that are open at the same time. A browser opens a few connections. If there are too many, the oldest
/// connection is closed, so that another program of this machine cannot keep the browser waiting.
const MAX_CONNECTIONS: usize = 16;
const RECEIVED: &str = "The answer was received. You can close this page and go back to your agent.";
const NOT_FOUND: &str = "There is nothing here.";

/// The authorization server's answer. The browser sends it in the redirect URL.
#[derive(Debug, Clone)]
pub(super) enum Answer {
    Code {
        code: SecretString,
        /// Issuer in the parameter `iss` (RFC 9207).
        issuer: Option<String>,
    },
    Refused {
        refusal: Refusal,
        issuer: Option<String>,
    },
}

/// Parses the answer to the authorization request that has this `state`. Returns `None` for any other URL.
fn read_answer(url: &Url, state: &SecretString) -> Option<Answer> {
    let mut found = [const { None::<String> }; 5];
    for (key, value) in url.query_pairs() {
        let index = ["state", "code", "error", "error_description", "iss"].iter().position(|known| *known == key);
        // A parameter must not occur twice (RFC 6749, 3.1), because it would be unclear which of its values to use.
        if index.is_some_and(|index| found[index].replace(value.into_owned()).is_some()) {
            return None;
        }
    }
    let [given, code, error, description, issuer] = found;
    if given.as_deref() != Some(state.expose_secret()) {
        return None;
    }
    match (code, error) {
        (None, Some(error)) => Some(Answer::Refused { refusal: Refusal { error, description }, issuer }),
        (Some(code), None) => Some(Answer::Code { code: SecretString::from(code), issuer }),
        _ => None,
    }
}

/// Parses the answer like [`read_answer`]. `target` is a URL, or the part of one after its origin. Returns `None` if it leads to another place
/// than `redirect_uri`. The path belongs to one issuer: an answer of another issuer must not be used, because its code would be sent to this
/// one.
pub(super) fn answer_at(redirect_uri: &Url, target: &str, state: &SecretString) -> Option<Answer> {
    let url = redirect_uri.join(target).ok()?;
    let is_ours = url.origin() == redirect_uri.origin() && url.path() == redirect_uri.path();
    if is_ours { read_answer(&url, state) } else { None }
}

/// Listener for one answer. Dropping the listener closes its port.
pub(super) struct Callback {
    listener: TcpListener,
    redirect_uri: Url,
}

impl Callback {
    /// Listens for answers at a path. Uses the given port. If no port is given, uses a free port that the system chooses.
    pub(super) async fn bind(port: Option<u16>, path: &str) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port.unwrap_or_default())).await?;
        let port = listener.local_addr()?.port();
        let redirect_uri = Url::parse(&format!("http://127.0.0.1:{port}{path}")).map_err(io::Error::other)?;
        Ok(Self { listener, redirect_uri })
    }

    pub(super) fn redirect_uri(&self) -> &Url {
        &self.redirect_uri
    }

    /// Waits for the answer that has this `state`. All other requests get HTTP 404.
    pub(super) async fn answer(self, state: &SecretString) -> Answer {
        let (mut connections, mut open) = (JoinSet::new(), VecDeque::new());
        loop {
            tokio::select! {
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, _)) => {
                        let (base, state) = (self.redirect_uri.clone(), state.clone());
                        let serve = async move { timeout(REQUEST_TIME, serve(stream, &base, &state)).await.ok().flatten() };
                        open.push_back(connections.spawn(serve));
                        open.retain(|connection: &AbortHandle| !connection.is_finished());
                        if open.len() > MAX_CONNECTIONS && let Some(oldest) = open.pop_front() {
                            oldest.abort();
                        }
                    }
                    // The error is usually temporary, for example a lack of file descriptors.
                    Err(_) => sleep(PAUSE).await,
                },
                Some(joined) = connections.join_next(), if !connections.is_empty() => {
                    if let Ok(Some(answer)) = joined {
                        return answer;
                    }
                }
            }
        }
    }
}

/// Answers one request of a browser with a page. Returns the authorization server's answer if the request contains it.
async fn serve(mut stream: TcpStream, base: &Url, state: &SecretString) -> Option<Answer> {
    let request = read_request(&mut stream).await?;
    let answer = target(&request).and_then(|target| answer_at(base, target, state));
    let (status, text) = if answer.is_some() { ("200 OK", RECEIVED) } else { ("404 Not Found", NOT_FOUND) };
    // The page must not contain any part of the request.
    let page = format!("<!doctype html><meta charset=\"utf-8\"><title>hyperlight-mcp</title><p>{text}</p>\n");
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\nCache-Control: no-store\r\n\
         Referrer-Policy: no-referrer\r\nX-Content-Type-Options: nosniff\r\nContent-Security-Policy: default-src 'none'\r\nConnection: close\r\n\r\n",
        page.len()
    );
    // The answer is used even if the browser has already closed the connection.
    if stream.write_all(format!("{head}{page}").as_bytes()).await.is_ok() {
        let _ = stream.shutdown().await;
    }
    answer
}

async fn read_request(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut request = Vec::new();
    let mut chunk = [0; 2048];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let count = stream.read(&mut chunk).await.ok()?;
        if count == 0 || request.len() + count > MAX_REQUEST_BYTES {
            return None;
        }
        request.extend_from_slice(&chunk[..count]);
    }
    Some(request)
}

/// Returns the request target of a GET request. Returns `None` for other requests.
fn target(request: &[u8]) -> Option<&str> {
    let line = request.split(|byte| *byte == b'\r').next()?;
    let (target, version) = std::str::from_utf8(line).ok()?.strip_prefix("GET ")?.split_once(' ')?;
    (target.starts_with('/') && version.starts_with("HTTP/1.")).then_some(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Option<Answer> {
        read_answer(&Url::parse(url).unwrap(), &SecretString::from("st4te"))
    }

    async fn get(url: &Url, request: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", url.port().unwrap())).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer).await;
        answer
    }

    #[test]
    fn only_the_answer_to_our_own_question_counts() {
        assert!(matches!(read("http://x/?code=c&state=st4te&iss=i"), Some(Answer::Code { issuer: Some(issuer), .. }) if issuer == "i"));
        let refused = read("http://x/?error=access_denied&error_description=no&state=st4te");
        assert!(matches!(refused, Some(Answer::Refused { refusal, .. }) if refusal.error == "access_denied"));
        for url in ["?code=c", "?code=c&state=other", "?state=st4te", "?code=c&error=e&state=st4te", "?code=c&code=d&state=st4te", ""] {
            assert!(read(&format!("http://x/{url}")).is_none(), "{url}");
        }
    }

    #[test]
    fn no_debug_output_shows_a_code() {
        assert!(!format!("{:?}", read("http://x/?code=c0de&state=st4te")).contains("c0de"));
    }

    #[tokio::test]
    async fn whatever_else_comes_is_turned_away_and_the_listener_is_closed_after_its_answer() {
        let callback = Callback::bind(None, PATH).await.unwrap();
        let url = callback.redirect_uri().clone();
        let waiting = tokio::spawn(async move { callback.answer(&SecretString::from("st4te")).await });
        for request in [
            "GET /favicon.ico HTTP/1.1\r\n\r\n",
            "GET /callback?code=c&state=wrong HTTP/1.1\r\n\r\n",
            "GET /callbackx?code=c&state=st4te HTTP/1.1\r\n\r\n",
            "GET //evil.example/callback?code=c&state=st4te HTTP/1.1\r\n\r\n",
            "POST /callback?code=c&state=st4te HTTP/1.1\r\n\r\n",
            "\u{1}\r\n\r\n",
        ] {
            assert!(get(&url, request).await.starts_with("HTTP/1.1 404"), "{request}");
        }
        let page = get(&url, "GET /callback?code=c0de&state=st4te HTTP/1.1\r\nHost: x\r\n\r\n").await;
        assert!(page.starts_with("HTTP/1.1 200") && page.contains("no-store") && !page.contains("c0de"), "{page}");
        assert!(matches!(waiting.await.unwrap(), Answer::Code { code, .. } if code.expose_secret() == "c0de"));
        assert!(TcpStream::connect(("127.0.0.1", url.port().unwrap())).await.is_err(), "the listener is still open");
    }

    #[tokio::test]
    async fn one_that_says_nothing_or_too_much_keeps_nobody_waiting() {
        let callback = Callback::bind(None, PATH).await.unwrap();
        let url = callback.redirect_uri().clone();
        let waiting = tokio::spawn(async move { callback.answer(&SecretString::from("st4te")).await });
        let _silent = TcpStream::connect(("127.0.0.1", url.port().unwrap())).await.unwrap();
        assert_eq!(get(&url, &format!("GET /{} HTTP/1.1\r\n", "x".repeat(2 * MAX_REQUEST_BYTES))).await, "");
        get(&url, "GET /callback?code=c&state=st4te HTTP/1.1\r\n\r\n").await;
        waiting.await.unwrap();
    }

    #[tokio::test]
    async fn many_that_say_nothing_do_not_keep_the_browser_waiting() {
        let callback = Callback::bind(None, PATH).await.unwrap();
        let url = callback.redirect_uri().clone();
        let waiting = tokio::spawn(async move { callback.answer(&SecretString::from("st4te")).await });
        let mut silent = Vec::new();
        for _ in 0..4 * MAX_CONNECTIONS {
            silent.push(TcpStream::connect(("127.0.0.1", url.port().unwrap())).await.unwrap());
        }
        let asked = std::time::Instant::now();
        // Connections that were dropped before their time limit did not delay the answer.
        assert!(get(&url, "GET /callback?code=c&state=st4te HTTP/1.1\r\n\r\n").await.starts_with("HTTP/1.1 200"));
        assert!(asked.elapsed() < REQUEST_TIME, "{:?}", asked.elapsed());
        waiting.await.unwrap();
    }

    #[tokio::test]
    async fn a_port_that_is_taken_is_an_error() {
        let first = Callback::bind(None, PATH).await.unwrap();
        assert!(Callback::bind(first.redirect_uri().port(), PATH).await.is_err());
    }
}
