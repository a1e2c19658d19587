//! The limits of the HTTP server, in the form in which the author of an agent sets them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::options::HttpLimits;

/// [`HttpLimits`] as plain numbers: sizes in bytes, times in milliseconds. A missing field has its default value.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ServeLimits {
    max_body_bytes: usize,
    max_buffered_bytes: usize,
    max_http_connections: usize,
    max_connections_per_address: usize,
    max_sessions: usize,
    max_sessions_per_client: usize,
    max_requests: usize,
    max_requests_per_client: usize,
    requests_per_second: u32,
    header_timeout_ms: u64,
    body_timeout_ms: u64,
    write_timeout_ms: u64,
    session_idle_ms: u64,
    drain_ms: u64,
}

impl Default for ServeLimits {
    fn default() -> Self {
        Self::from(HttpLimits::default())
    }
}

impl From<HttpLimits> for ServeLimits {
    fn from(limits: HttpLimits) -> Self {
        let HttpLimits {
            max_body_bytes,
            max_buffered_bytes,
            max_connections,
            max_connections_per_address,
            max_sessions,
            max_sessions_per_client,
            max_requests,
            max_requests_per_client,
            requests_per_second,
            header_timeout,
            body_timeout,
            write_timeout,
            session_idle,
            drain,
        } = limits;
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Self {
            max_body_bytes,
            max_buffered_bytes,
            max_http_connections: max_connections,
            max_connections_per_address,
            max_sessions,
            max_sessions_per_client,
            max_requests,
            max_requests_per_client,
            requests_per_second,
            header_timeout_ms: ms(header_timeout),
            body_timeout_ms: ms(body_timeout),
            write_timeout_ms: ms(write_timeout),
            session_idle_ms: ms(session_idle),
            drain_ms: ms(drain),
        }
    }
}

impl From<ServeLimits> for HttpLimits {
    fn from(limits: ServeLimits) -> Self {
        let ServeLimits {
            max_body_bytes,
            max_buffered_bytes,
            max_http_connections,
            max_connections_per_address,
            max_sessions,
            max_sessions_per_client,
            max_requests,
            max_requests_per_client,
            requests_per_second,
            header_timeout_ms,
            body_timeout_ms,
            write_timeout_ms,
            session_idle_ms,
            drain_ms,
        } = limits;
        Self {
            max_body_bytes,
            max_buffered_bytes,
            max_connections: max_http_connections,
            max_connections_per_address,
            max_sessions,
            max_sessions_per_client,
            max_requests,
            max_requests_per_client,
            requests_per_second,
            header_timeout: Duration::from_millis(header_timeout_ms),
            body_timeout: Duration::from_millis(body_timeout_ms),
            write_timeout: Duration::from_millis(write_timeout_ms),
            session_idle: Duration::from_millis(session_idle_ms),
            drain: Duration::from_millis(drain_ms),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::super::options::HttpOptions;
    use super::*;

    #[test]
    fn each_limit_goes_where_its_name_says() {
        let Json::Object(mut numbers) = json!(ServeLimits::default()) else { unreachable!("limits are an object") };
        for (index, value) in numbers.values_mut().enumerate() {
            *value = json!(5000 + index);
        }
        let given: ServeLimits = serde_json::from_value(Json::Object(numbers.clone())).unwrap();
        let there = HttpLimits::from(given);
        assert_eq!(json!(ServeLimits::from(there)), Json::Object(numbers.clone()));
        for name in numbers.keys() {
            let too_much: ServeLimits = serde_json::from_value(json!({ name: u64::from(u32::MAX) + 2 })).unwrap_or_default();
            let refused = HttpOptions { limits: too_much.into(), ..HttpOptions::default() }.validate();
            // A number that is too large for this field was refused earlier, when it was parsed.
            if name != "requestsPerSecond" {
                assert!(refused.unwrap_err().to_string().contains(&format!("limits.{name} ")), "{name}");
            }
        }
    }
}
