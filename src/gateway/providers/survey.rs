//! Finds all providers and decides whether their code may run, before any code runs: packages that the config names, installed packages,
//! and registered providers.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::digest::package_digest;
use super::packages::{FoundPackage, discover, find};
use super::status::{ProviderCode, ProviderOrigin};
use crate::config::ProviderSettings;
use crate::registry::providers::{provider_name, refused_provider};
use crate::store::Rows;

/// The approval of a package. The store keeps it under the package's name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PackageApproval {
    pub(super) version: String,
    pub(super) digest: String,
}

/// The decision whether the code of a provider may run. If the code may not run, the text is the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Standing {
    Denied(String),
    Failed(String),
    Unapproved(String),
    /// The code of a package. A person has approved its present version and files.
    Approved(ProviderCode),
    /// Code of the agent's author.
    Registered,
}

/// A provider, before its code runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Surveyed {
    pub(super) name: String,
    pub(super) origin: ProviderOrigin,
    /// The name of the package, if the provider is a package.
    pub(super) package: Option<String>,
    pub(super) found: Option<FoundPackage>,
    pub(super) standing: Standing,
}

impl Surveyed {
    /// Returns whether this is the provider's own name or its package's name.
    pub(super) fn is_called(&self, name: &str) -> bool {
        self.name == name || self.package.as_deref() == Some(name)
    }
}

/// Finds all providers, and decides for each whether its code may run. The order is: registered providers, packages in the config in their
/// order, installed packages. Each provider name belongs to the first provider that claims it. An installed package that the config does
/// not name never gets a provider name that another provider claims too. Blocks.
pub(super) fn survey(settings: &ProviderSettings, starts: &[PathBuf], registered: &BTreeSet<String>, approvals: &Rows) -> Vec<Surveyed> {
    let mut all: Vec<Surveyed> = registered.iter().map(|name| registered_provider(settings, name)).collect();
    for package in &settings.packages {
        all.push(judged(settings, package, find(package, starts), ProviderOrigin::Config, approvals));
    }
    if settings.discover {
        let named: BTreeSet<&String> = settings.packages.iter().collect();
        let installed = discover(starts).into_iter().filter(|(package, _)| !named.contains(package));
        all.extend(installed.map(|(package, found)| judged(settings, &package, found, ProviderOrigin::Discovered, approvals)));
    }
    refuse_shared_names(&mut all);
    all
}

fn registered_provider(settings: &ProviderSettings, name: &str) -> Surveyed {
    let standing = refused_provider(&settings.policy, name, None).map_or(Standing::Registered, Standing::Denied);
    Surveyed { name: name.to_owned(), origin: ProviderOrigin::Registered, package: None, found: None, standing }
}

fn judged(
    settings: &ProviderSettings,
    package: &str,
    found: Result<FoundPackage, String>,
    origin: ProviderOrigin,
    approvals: &Rows,
) -> Surveyed {
    let named = provider_name(package);
    // A package whose name cannot be converted to a provider's name is listed under the package's name.
    let name = named.clone().unwrap_or_else(|_| package.to_owned());
    let standing = match (refused_provider(&settings.policy, &name, Some(package)), named, &found) {
        (Some(reason), _, _) => Standing::Denied(reason),
        (None, Err(problem), _) => Standing::Failed(problem),
        (None, Ok(_), Err(problem)) => Standing::Failed(problem.clone()),
        (None, Ok(_), Ok(found)) => approved_as_it_is(found, approvals),
    };
    Surveyed { name, origin, package: Some(package.to_owned()), found: found.ok(), standing }
}

/// Compares a package with its approval. The files are read only if there is an approval.
fn approved_as_it_is(found: &FoundPackage, approvals: &Rows) -> Standing {
    let Some(approval) = approval_of(found, approvals) else {
        return Standing::Unapproved("no person has approved its code".to_owned());
    };
    if approval.version != found.version {
        return Standing::Unapproved(format!("version {} is installed, and version {} was approved", found.version, approval.version));
    }
    match package_digest(found) {
        Err(problem) => Standing::Failed(problem),
        Ok(now) if now.digest != approval.digest => Standing::Unapproved("its files have changed since its approval".to_owned()),
        Ok(_) => Standing::Approved(ProviderCode { file: found.folder.join(&found.file), folder: found.folder.clone() }),
    }
}

/// Returns the approval of a package. The approved version may differ from the present one.
pub(super) fn approval_of(package: &FoundPackage, approvals: &Rows) -> Option<PackageApproval> {
    serde_json::from_slice(approvals.get(&package.name)?).ok()
}

/// Makes each name refer to at most one provider. A package that was only discovered does not get a name that another provider has too.
/// Otherwise a package could take the name of another provider just because it is installed.
fn refuse_shared_names(all: &mut [Surveyed]) {
    let holders = |all: &[Surveyed]| {
        let mut holders: BTreeMap<String, Vec<(String, ProviderOrigin)>> = BTreeMap::new();
        for provider in all {
            let title = provider.package.clone().unwrap_or_else(|| "a registered provider".to_owned());
            holders.entry(provider.name.clone()).or_default().push((title, provider.origin));
        }
        holders
    };
    let holders = holders(all);
    let mut given: BTreeSet<String> = BTreeSet::new();
    for provider in all.iter_mut() {
        let is_first = given.insert(provider.name.clone());
        let sharing = &holders[&provider.name];
        let own = provider.package.as_deref().unwrap_or("a registered provider");
        let Some((other, _)) = sharing.iter().find(|(title, _)| title != own) else { continue };
        if !is_first || provider.origin == ProviderOrigin::Discovered {
            provider.standing = Standing::Failed(format!("{other} has the name \"{}\" as well; remove one of them", provider.name));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::sync::Arc;

    use super::*;
    use crate::config::{ProviderPatterns, ProviderPolicy};

    fn install(root: &Path, name: &str, version: &str) {
        let folder = root.join("node_modules").join(name);
        fs::create_dir_all(&folder).unwrap();
        let manifest = serde_json::json!({ "name": name, "version": version, "hyperlight-mcp": { "provider": "./provider.js" } });
        fs::write(folder.join("package.json"), manifest.to_string()).unwrap();
        fs::write(folder.join("provider.js"), "exports.servers = () => []").unwrap();
    }

    fn settings(packages: &[&str], discover: bool) -> ProviderSettings {
        let packages = packages.iter().map(|name| (*name).to_owned()).collect();
        ProviderSettings { discover, packages, policy: ProviderPolicy::default() }
    }

    fn look(root: &Path, settings: &ProviderSettings, approvals: &Rows) -> Vec<Surveyed> {
        survey(settings, &[root.to_owned()], &BTreeSet::new(), approvals)
    }

    fn approve(root: &Path, name: &str, approvals: &mut Rows) {
        let found = find(name, &[root.to_owned()]).unwrap();
        let approval = PackageApproval { version: found.version.clone(), digest: package_digest(&found).unwrap().digest };
        approvals.insert(name.to_owned(), Arc::from(serde_json::to_vec(&approval).unwrap()));
    }

    fn standings(all: &[Surveyed]) -> Vec<(&str, &'static str)> {
        let word = |standing: &Standing| match standing {
            Standing::Denied(_) => "denied",
            Standing::Failed(_) => "failed",
            Standing::Unapproved(_) => "unapproved",
            Standing::Approved(_) => "approved",
            Standing::Registered => "registered",
        };
        all.iter().map(|provider| (provider.name.as_str(), word(&provider.standing))).collect()
    }

    #[test]
    fn code_may_run_only_as_it_was_approved() {
        let root = tempfile::tempdir().unwrap();
        install(root.path(), "acme-mcp", "1.0.0");
        let (settings, mut approvals) = (settings(&["acme-mcp", "absent"], false), Rows::new());
        let now = |approvals: &Rows| look(root.path(), &settings, approvals);
        assert_eq!(standings(&now(&approvals)), [("acme-mcp", "unapproved"), ("absent", "failed")]);
        approve(root.path(), "acme-mcp", &mut approvals);
        let Standing::Approved(code) = now(&approvals).remove(0).standing else { panic!() };
        assert!(code.file.ends_with("node_modules/acme-mcp/provider.js") && code.file.starts_with(&code.folder));
        fs::write(root.path().join("node_modules/acme-mcp/other.js"), "").unwrap();
        assert!(matches!(&now(&approvals)[0].standing, Standing::Unapproved(why) if why.contains("files have changed")));
        install(root.path(), "acme-mcp", "1.0.1");
        assert!(matches!(&now(&approvals)[0].standing, Standing::Unapproved(why) if why.contains("version 1.0.1 is installed")));
    }

    #[test]
    fn installed_packages_are_looked_for_only_where_it_is_allowed_and_the_policy_comes_first() {
        let root = tempfile::tempdir().unwrap();
        for name in ["acme-mcp", "@evil/mcp", "other-mcp"] {
            install(root.path(), name, "1.0.0");
        }
        let mut approvals = Rows::new();
        approve(root.path(), "@evil/mcp", &mut approvals);
        assert!(look(root.path(), &settings(&[], false), &approvals).is_empty());
        let mut settings = settings(&["other-mcp"], true);
        settings.policy.deny = ProviderPatterns { packages: Some(vec!["@evil/*".to_owned()]), ..ProviderPatterns::default() };
        let all = look(root.path(), &settings, &approvals);
        assert_eq!(standings(&all), [("other-mcp", "unapproved"), ("evil-mcp", "denied"), ("acme-mcp", "unapproved")]);
        assert_eq!(all[2].origin, ProviderOrigin::Discovered);
        assert!(all[1].is_called("evil-mcp") && all[1].is_called("@evil/mcp") && !all[1].is_called("evil"));
    }

    #[test]
    fn nobody_gets_a_name_by_being_installed_that_another_has() {
        let root = tempfile::tempdir().unwrap();
        for name in ["@acme/mcp", "acme-mcp"] {
            install(root.path(), name, "1.0.0");
        }
        let none = Rows::new();
        let both = look(root.path(), &settings(&[], true), &none);
        assert_eq!(standings(&both), [("acme-mcp", "failed"), ("acme-mcp", "failed")]);
        assert!(matches!(&both[0].standing, Standing::Failed(why) if why.contains("acme-mcp has the name")));
        let one = look(root.path(), &settings(&["acme-mcp"], true), &none);
        assert_eq!(standings(&one), [("acme-mcp", "unapproved"), ("acme-mcp", "failed")]);
        let ordered = look(root.path(), &settings(&["@acme/mcp", "acme-mcp"], false), &none);
        assert_eq!(standings(&ordered), [("acme-mcp", "unapproved"), ("acme-mcp", "failed")]);
        let registered = survey(&settings(&["acme-mcp"], false), &[root.path().to_owned()], &["acme-mcp".to_owned()].into(), &none);
        assert_eq!(standings(&registered), [("acme-mcp", "registered"), ("acme-mcp", "failed")]);
    }
}
