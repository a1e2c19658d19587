//! The proxies of this process, for requests to other machines.

use secrecy::SecretString;

use crate::redact::secrets_within;

/// Environment variables that name proxies.
const VARIABLES: [&str; 6] = ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];

/// Returns the addresses of the proxies that the environment variables of this process name.
pub(super) fn addresses() -> impl Iterator<Item = String> {
    VARIABLES.iter().filter_map(|name| std::env::var(name).ok()).map(|address| with_scheme(&address))
}

/// Returns the user names and the passwords in the proxies' addresses. They must be redacted, because a proxy may repeat them in a
/// refusal.
#[must_use]
pub fn proxy_logins() -> Vec<SecretString> {
    addresses().flat_map(|address| secrets_within(&address)).map(SecretString::from).collect()
}

fn with_scheme(address: &str) -> String {
    if address.contains("://") { address.to_owned() } else { format!("http://{address}") }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::*;
    use crate::redact::Redactor;

    #[test]
    fn a_proxy_that_repeats_its_login_tells_it_to_nobody() {
        let password = "pr0xy-Zx9Qw8Er7-secret";
        for address in [
            format!("http://bob:{password}@proxy.example:3128"),
            format!("bob:{password}@proxy.example:3128"),
            format!("http://bob:{password}@:::/"),
        ] {
            let redactor = Redactor::new(None, None);
            let secrets: Vec<_> = secrets_within(&with_scheme(&address)).into_iter().map(SecretString::from).collect();
            redactor.add(&secrets);
            let header = STANDARD.encode(format!("bob:{password}"));
            assert_eq!(
                redactor.redact(&format!("407 for Basic {header} ({password})")),
                "407 for Basic [redacted] ([redacted])",
                "{address}"
            );
            assert_eq!(redactor.redact("proxy.example"), "proxy.example");
        }
    }
}
