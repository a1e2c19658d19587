//! Counters and gauges of the server in the Prometheus text format. Clients cannot choose a label value.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

/// The reason why the server refused a connection or a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    Host,
    Origin,
    Token,
    Scope,
    Rate,
    Busy,
    Sessions,
    Streams,
    BodySize,
    BodyShape,
    BodyTime,
    Connections,
    User,
    Draining,
}

const REFUSALS: [(Refusal, &str); 14] = [
    (Refusal::Host, "host"),
    (Refusal::Origin, "origin"),
    (Refusal::Token, "token"),
    (Refusal::Scope, "scope"),
    (Refusal::Rate, "rate"),
    (Refusal::Busy, "busy"),
    (Refusal::Sessions, "sessions"),
    (Refusal::Streams, "streams"),
    (Refusal::BodySize, "body_size"),
    (Refusal::BodyShape, "body_shape"),
    (Refusal::BodyTime, "body_time"),
    (Refusal::Connections, "connections"),
    (Refusal::User, "user"),
    (Refusal::Draining, "draining"),
];

/// Counters and gauges of one server.
#[derive(Debug)]
pub struct Metrics {
    started: Instant,
    by_status: Mutex<BTreeMap<u16, u64>>,
    refusals: [AtomicU64; REFUSALS.len()],
    runs: AtomicUsize,
    guests_executing: Arc<AtomicUsize>,
    sessions: AtomicUsize,
    connections: AtomicUsize,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            by_status: Mutex::default(),
            refusals: std::array::from_fn(|_| AtomicU64::new(0)),
            runs: AtomicUsize::new(0),
            guests_executing: Arc::default(),
            sessions: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
        }
    }
}

/// A run that is counted as running until this value is dropped.
#[derive(Debug)]
pub struct RunInFlight(Arc<Metrics>);

impl Drop for RunInFlight {
    fn drop(&mut self) {
        self.0.runs.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Metrics {
    /// Counts a run as running until the returned value is dropped. The MCP handler calls this function.
    #[must_use]
    pub fn run_started(self: &Arc<Self>) -> RunInFlight {
        self.runs.fetch_add(1, Ordering::Relaxed);
        RunInFlight(self.clone())
    }

    /// Returns the number of runs in flight.
    pub fn runs_in_flight(&self) -> usize {
        self.runs.load(Ordering::Relaxed)
    }

    /// Returns the counter of guests that are executing now. The sandbox updates the counter.
    pub fn guests_executing(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.guests_executing)
    }

    /// Returns the number of open sessions.
    pub fn sessions(&self) -> usize {
        self.sessions.load(Ordering::Relaxed)
    }

    pub(super) fn answered(&self, status: u16) {
        *self.by_status.lock().entry(status).or_default() += 1;
    }

    pub(super) fn refused(&self, refusal: Refusal) {
        self.refusals[refusal as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn add_session(&self) {
        self.sessions.fetch_add(1, Ordering::AcqRel);
    }

    pub(super) fn remove_session(&self) {
        self.sessions.fetch_sub(1, Ordering::AcqRel);
    }

    pub(super) fn add_connection(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn remove_connection(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns all values in the text format of Prometheus.
    pub fn render(&self) -> String {
        let mut text = String::new();
        let mut family = |name: &str, kind: &str, help: &str, samples: &[(String, String)]| {
            let _ = writeln!(text, "# HELP hyperlight_mcp_{name} {help}\n# TYPE hyperlight_mcp_{name} {kind}");
            for (labels, value) in samples {
                let _ = writeln!(text, "hyperlight_mcp_{name}{labels} {value}");
            }
        };
        let one = |value: String| [(String::new(), value)];
        let by_status: Vec<_> =
            self.by_status.lock().iter().map(|(status, count)| (format!("{{status=\"{status}\"}}"), count.to_string())).collect();
        family("http_requests_total", "counter", "HTTP requests that were answered, by status.", &by_status);
        let count = |refusal: Refusal| self.refusals[refusal as usize].load(Ordering::Relaxed).to_string();
        let refusals: Vec<_> = REFUSALS.iter().map(|(refusal, name)| (format!("{{reason=\"{name}\"}}"), count(*refusal))).collect();
        family("http_refusals_total", "counter", "Requests and connections that were refused, by reason.", &refusals);
        family("http_connections", "gauge", "Open HTTP connections.", &one(self.connections.load(Ordering::Relaxed).to_string()));
        family("sessions", "gauge", "Open MCP sessions.", &one(self.sessions().to_string()));
        family("runs_in_flight", "gauge", "Runs in flight.", &one(self.runs_in_flight().to_string()));
        let executing = self.guests_executing.load(Ordering::Relaxed).to_string();
        family("guests_executing", "gauge", "Runs whose code executes now. The others wait for a call or for their turn.", &one(executing));
        family("uptime_seconds", "gauge", "Seconds since the server started.", &one(self.started.elapsed().as_secs().to_string()));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_its_own_counter() {
        let metrics = Metrics::default();
        for (index, (refusal, name)) in REFUSALS.into_iter().enumerate() {
            assert_eq!(refusal as usize, index);
            metrics.refused(refusal);
            assert!(metrics.render().contains(&format!("hyperlight_mcp_http_refusals_total{{reason=\"{name}\"}} 1\n")));
        }
    }

    #[test]
    fn a_run_is_counted_until_it_ends() {
        let metrics = Arc::new(Metrics::default());
        let run = metrics.run_started();
        assert!(metrics.render().contains("\nhyperlight_mcp_runs_in_flight 1\n"));
        drop(run);
        assert!(metrics.render().contains("\nhyperlight_mcp_runs_in_flight 0\n"));
    }
}
