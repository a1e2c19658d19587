//! The limits of fetches in one session.

use std::time::Duration;

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// The maximum size in bytes of a chunk of a body that a session returns at once.
pub const MAX_CHUNK_BYTES: usize = 64 * KIB;

/// The limits of one session. A session lasts for one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchLimits {
    /// Maximum number of requests in a session. Each redirect that is followed counts as a request.
    pub requests: usize,
    /// Maximum number of requests that wait for their response at the same time. More requests must wait.
    pub parallel: usize,
    /// Longest time of one request, from the start of the first connection to the end of the body. It includes the waits for servers and
    /// the decompression of bodies. It does not include time in which the code does not read the body.
    pub request_time: Duration,
    /// Longest time to connect to one server, TLS included.
    pub connect_time: Duration,
    /// Maximum number of bytes in the body of a request.
    pub request_body_bytes: usize,
    /// Maximum number of bytes in the body of a response. The limit applies to the body as it is received, and also to the decompressed
    /// body.
    pub response_body_bytes: usize,
    /// Maximum number of bytes in all headers of a request or of a response. Names and values are counted.
    pub header_bytes: usize,
    /// Maximum number of headers in a request or a response.
    pub headers: usize,
    /// Maximum number of bytes in a URL.
    pub url_bytes: usize,
    /// Maximum number of redirects for one request.
    pub redirects: usize,
}

impl Default for FetchLimits {
    fn default() -> Self {
        Self {
            requests: 100,
            parallel: 8,
            request_time: Duration::from_secs(30),
            connect_time: Duration::from_secs(10),
            request_body_bytes: 16 * MIB,
            response_body_bytes: 16 * MIB,
            header_bytes: 64 * KIB,
            headers: 100,
            url_bytes: 16 * KIB,
            redirects: 20,
        }
    }
}
