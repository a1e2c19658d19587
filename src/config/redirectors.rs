//! Lists the environment variables that redirect a program's traffic, or remove the protection of its traffic: proxies, name servers, and trusted
//! certificates.

/// Names, in lower case, that programs compare without regard to case.
const NAMES_IN_ANY_CASE: &[&str] = &[
    "all_proxy",
    "ftp_proxy",
    "global_agent_http_proxy",
    "global_agent_https_proxy",
    "global_agent_no_proxy",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "rsync_proxy",
    "socks_proxy",
    "ws_proxy",
    "wss_proxy",
];
/// Names that programs compare case-sensitively.
const NAMES: &[&str] = &[
    "AWS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "DENO_CERT",
    "DENO_TLS_CA_STORE",
    "GIT_HTTP_PROXY_AUTHMETHOD",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    "HOSTALIASES",
    "HTTPLIB2_CA_CERTS",
    "LOCALDOMAIN",
    "NIX_SSL_CERT_FILE",
    "NODE_EXTRA_CA_CERTS",
    "NODE_TLS_REJECT_UNAUTHORIZED",
    "NODE_USE_ENV_PROXY",
    "PERL_LWP_SSL_CA_FILE",
    "PERL_LWP_SSL_CA_PATH",
    "PERL_LWP_SSL_VERIFY_HOSTNAME",
    "PGSSLMODE",
    "PGSSLROOTCERT",
    "PYTHONHTTPSVERIFY",
    "REQUESTS_CA_BUNDLE",
    "RES_OPTIONS",
    "SOCKS_SERVER",
    "SSLKEYLOGFILE",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
];
/// Prefixes of names that programs compare case-sensitively.
const STARTS: &[&str] = &["GIT_SSL_"];

/// Returns whether a variable with this name can redirect a program's traffic to another machine, or remove the protection of its traffic.
///
/// ```
/// use hyperlight_mcp::config::redirects_traffic;
/// assert!(redirects_traffic("HTTPS_PROXY") && redirects_traffic("https_proxy") && redirects_traffic("NODE_TLS_REJECT_UNAUTHORIZED"));
/// assert!(!redirects_traffic("API_KEY") && !redirects_traffic("node_tls_reject_unauthorized"));
/// ```
#[must_use]
pub fn redirects_traffic(name: &str) -> bool {
    NAMES.contains(&name)
        || STARTS.iter().any(|start| name.starts_with(start))
        || NAMES_IN_ANY_CASE.iter().any(|known| name.eq_ignore_ascii_case(known))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::loads_code;

    #[test]
    fn proxies_and_trust_in_certificates_are_known_by_their_names() {
        for name in [
            "HTTP_PROXY",
            "https_proxy",
            "All_Proxy",
            "NO_PROXY",
            "NODE_TLS_REJECT_UNAUTHORIZED",
            "NODE_EXTRA_CA_CERTS",
            "SSL_CERT_FILE",
            "SSL_CERT_DIR",
            "REQUESTS_CA_BUNDLE",
            "CURL_CA_BUNDLE",
            "GIT_SSL_NO_VERIFY",
            "GIT_SSL_CAINFO",
            "PYTHONHTTPSVERIFY",
            "SSLKEYLOGFILE",
        ] {
            assert!(redirects_traffic(name) && !loads_code(name), "{name}");
        }
        for name in ["", "PROXY", "MY_HTTP_PROXY", "ssl_cert_file", "API_KEY", "NODE_OPTIONS"] {
            assert!(!redirects_traffic(name), "{name}");
        }
    }
}
