//! The settings of the export. The settings come from environment variables that OpenTelemetry defines.

use std::collections::BTreeMap;

use percent_encoding::percent_decode_str;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use secrecy::SecretString;
use url::{Host, Url};

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";
const SERVICE: &str = "OTEL_SERVICE_NAME";
const DISABLED: &str = "OTEL_SDK_DISABLED";
const DEFAULT_SERVICE: &str = "hyperlight-mcp";

/// The address to which spans are sent, the headers of the requests, and the name of the service.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) url: Url,
    pub(super) headers: HeaderMap,
    pub(super) service: String,
}

impl Settings {
    /// Reads the settings. Returns `None` if nothing is to be exported.
    ///
    /// # Errors
    /// A sentence that names the wrong variable, but never contains the value of the variable.
    pub(super) fn read(environment: &BTreeMap<String, String>) -> Result<Option<Self>, String> {
        let given = |name: &str| environment.get(name).map(|value| value.trim()).filter(|value| !value.is_empty());
        let is_disabled = given(DISABLED).is_some_and(|value| value.eq_ignore_ascii_case("true"));
        let Some(endpoint) = given(ENDPOINT).filter(|_| !is_disabled) else { return Ok(None) };
        let wrong = || format!("{ENDPOINT} must be an http: or https: address, so no traces are exported");
        let mut url: Url = endpoint.parse().map_err(|_| wrong())?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(wrong());
        }
        // The path is added as the specification of the OTLP exporter requires for an endpoint that all signals share.
        url.path_segments_mut().map_err(|()| wrong())?.pop_if_empty().extend(["v1", "traces"]);
        let headers = given(HEADERS).map(headers).transpose()?.unwrap_or_default();
        Ok(Some(Self { url, headers, service: given(SERVICE).unwrap_or(DEFAULT_SERVICE).to_owned() }))
    }

    /// Returns the secrets of the settings: the values of the headers, and the password in the address. These secrets must not appear in
    /// any text.
    pub(super) fn secrets(&self) -> Vec<SecretString> {
        let values = self.headers.values().filter_map(|value| value.to_str().ok());
        values.chain(self.url.password()).map(SecretString::from).collect()
    }

    /// Returns whether the receiver is on this machine.
    pub(super) fn is_local(&self) -> bool {
        match self.url.host() {
            Some(Host::Domain(name)) => name == "localhost",
            Some(Host::Ipv4(address)) => address.is_loopback(),
            Some(Host::Ipv6(address)) => address.is_loopback(),
            None => false,
        }
    }
}

/// Parses `name=value,name=value`. The values may be percent-encoded.
fn headers(text: &str) -> Result<HeaderMap, String> {
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=')?;
        let value = percent_decode_str(value.trim()).decode_utf8().ok()?;
        let mut value = HeaderValue::from_str(&value).ok()?;
        value.set_sensitive(true);
        Some((HeaderName::try_from(name.trim()).ok()?, value))
    };
    let wrong = || format!("{HEADERS} must be like name=value,name=value, so no traces are exported");
    text.split(',').filter(|part| !part.trim().is_empty()).map(|part| pair(part).ok_or_else(wrong)).collect()
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Option<Settings>, String> {
        Settings::read(&variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn nothing_is_exported_without_an_endpoint_or_where_that_is_turned_off() {
        assert!(read(&[]).unwrap().is_none());
        assert!(read(&[(ENDPOINT, " ")]).unwrap().is_none());
        assert!(read(&[(ENDPOINT, "http://a"), (DISABLED, "TRUE")]).unwrap().is_none());
    }

    #[test]
    fn the_address_gets_the_path_of_traces_and_headers_are_secrets() {
        for (endpoint, url) in
            [("http://localhost:4318", "http://localhost:4318/v1/traces"), ("https://a.example/otlp/", "https://a.example/otlp/v1/traces")]
        {
            assert_eq!(read(&[(ENDPOINT, endpoint)]).unwrap().unwrap().url.as_str(), url);
        }
        let settings = read(&[(ENDPOINT, "http://u:pass-word@a"), (HEADERS, "x-key=a%20b, authorization=Bearer c"), (SERVICE, "mine")]);
        let settings = settings.unwrap().unwrap();
        assert_eq!((settings.headers["x-key"].to_str().unwrap(), settings.service.as_str()), ("a b", "mine"));
        let secrets: Vec<_> = settings.secrets().iter().map(|secret| secret.expose_secret().to_owned()).collect();
        assert_eq!(secrets, ["a b", "Bearer c", "pass-word"]);
    }

    #[test]
    fn a_wrong_setting_is_named_without_its_value() {
        for (name, value) in [(ENDPOINT, "secret-place"), (ENDPOINT, "ftp://secret"), (HEADERS, "secret"), (HEADERS, "a b=secret")] {
            let problem = read(&[(ENDPOINT, "http://a"), (name, value)]).unwrap_err();
            assert!(problem.contains(name) && !problem.contains("secret"), "{problem}");
        }
    }
}
