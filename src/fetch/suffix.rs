//! Determines, with the list of public suffixes, whether the subdomains of a host belong to other owners.

/// Labels that, in front of certain hosts, form an entry of the list of public suffixes (`s3` before `amazonaws.com`). The list can only be
/// searched for one name at a time. It cannot return all suffixes below a host, so these labels are tried.
const KNOWN_BELOW: [&str; 63] = [
    "s3",
    "x.compute",
    "x.elb",
    "webview-assets",
    "transfer-webapp",
    "auth",
    "auth-fips",
    "notebook",
    "consent-portal",
    "lambda-url.us-east-1",
    "auth.us-east-1",
    "notebook.us-east-1",
    "transfer-webapp.cn-north-1",
    "cn-north-1.eb",
    "x.us-east-1",
    "kr",
    "kr.object",
    "kr.objectstorage",
    "cust",
    "cdn",
    "cdn.prod",
    "jp",
    "user",
    "x.user",
    "app",
    "apps",
    "shop",
    "paas",
    "site",
    "ipfs",
    "cloud",
    "my",
    "p",
    "t3",
    "r",
    "ip",
    "runs",
    "rsc",
    "dyn",
    "web",
    "web.core",
    "it1",
    "demo",
    "pages",
    "relay",
    "direct",
    "objects",
    "customer",
    "jelastic",
    "blob.core",
    "x.webpaas",
    "x.hosting",
    "x.services",
    "x.builder",
    "x.001.test.code-builder-stg.platform",
    "cockpit.fr-par",
    "aws",
    "ent",
    "eu",
    "eu-1",
    "preview",
    "global.prod",
    "a",
];

/// Returns whether, according to the list, the owner of this name also owns all names below it. The name must be a registrable domain, or a
/// name below such a domain. It must not be a public suffix (`github.io`). Its subdomains must not all be public suffixes
/// (`compute.amazonaws.com`, `kawasaki.jp`).
pub(super) fn owns_subdomains(name: &str) -> bool {
    psl::domain_str(name).is_some() && !is_suffix(&format!("x.{name}"))
}

/// Returns whether a public suffix is known below this name, at any depth. The owner of such a name has other names below it too, so a
/// person may want to include its subdomains.
pub(super) fn is_above_a_suffix(name: &str) -> bool {
    KNOWN_BELOW.iter().any(|below| is_suffix(&format!("{below}.{name}")))
}

/// Returns whether the list itself contains this suffix. Unknown top-level domains are excluded, although a default rule of the list treats
/// each of them as a suffix.
fn is_suffix(name: &str) -> bool {
    name.contains('.') && psl::suffix_str(name) == Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_have_the_names_below_a_public_suffix_and_below_a_name_with_nothing_but_suffixes() {
        for name in [
            "com",
            "localhost",
            "co.uk",
            "github.io",
            "xn--55qx5d.cn",
            "compute.amazonaws.com",
            "x.compute.amazonaws.com",
            "s3.amazonaws.com",
            "webpaas.ovh.net",
            "kawasaki.jp",
            "ck",
        ] {
            assert!(!owns_subdomains(name), "{name}");
        }
        for name in ["example.com", "api.example.co.uk", "ada.github.io", "city.kawasaki.jp", "api.internal", "amazonaws.com"] {
            assert!(owns_subdomains(name), "{name}");
        }
    }

    #[test]
    fn a_name_above_a_public_suffix_is_known() {
        for name in
            ["amazonaws.com", "us-east-1.amazonaws.com", "core.windows.net", "windows.net", "salesforce.com", "fastly.net", "ovh.net"]
        {
            assert!(is_above_a_suffix(name), "{name}");
        }
        for name in ["example.com", "ada.github.io", "openai.com", "github.com", "api.internal"] {
            assert!(!is_above_a_suffix(name), "{name}");
        }
    }
}
