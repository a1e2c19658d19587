//! Describes the rights of a box for the person who approves it.

use std::path::Path;

use super::contents::is_relative_path;
use super::shown::shown_text;
use crate::config::{BoxBase, BoxHost, BoxNetwork, BoxSettings, is_program_file};

/// The sentence about each box that may write something besides its private home. It does not depend on what exists on the machine now.
pub(super) const SHARED: &str = "what it writes there may be run outside of the box, with all of your rights: npm, npx, node, git, editors, shells \
                                 and other servers look for programs and settings in such folders";

/// Returns sentences about the files and hosts that a server may use. `arguments` and `roots` come from its entry. `shown_variable` formats a
/// variable, and masks a value that may be secret.
///
/// ```
/// use hyperlight_mcp::boxes::sentences;
/// use hyperlight_mcp::config::{BoxBase, BoxSettings};
/// let said = sentences(&BoxSettings::of(BoxBase::Strict), &["--port".into(), "/data".into()], &[], &|name, _| name.to_owned());
/// assert!(said.iter().any(|sentence| sentence.starts_with("may read the paths in its arguments and roots: /data")));
/// assert!(said.iter().any(|sentence| sentence == "reaches no network"));
/// ```
#[must_use]
pub fn sentences(
    settings: &BoxSettings,
    arguments: &[String],
    roots: &[String],
    shown_variable: &dyn Fn(&str, &str) -> String,
) -> Vec<String> {
    let BoxSettings { base, read, write, network, memory_mb, disk_mb, processes, cpu_percent, is_nested, environment } = settings;
    let mut said = vec![
        "may read the system's programs, and the folders of its own program, runtime and package".to_owned(),
        format!("may write a private home of {disk_mb} MiB, which is kept, and a private /tmp"),
    ];
    said.extend(read.iter().map(|path| format!("may read {}", shown_text(path))));
    said.extend(write.iter().map(|path| format!("may read and write {}", shown_text(path))));
    let named: Vec<String> = arguments.iter().filter(|text| is_path(text)).chain(roots).map(|path| shown_text(path)).collect();
    if !named.is_empty() {
        let may = match base {
            BoxBase::Standard => "may read and write",
            BoxBase::Strict => "may read",
        };
        said.push(format!(
            "{may} the paths in its arguments and roots: {} (for a program, its whole package, read-only)",
            named.join(", ")
        ));
    }
    said.extend(may_write(settings, arguments, !roots.is_empty()).then(|| SHARED.to_owned()));
    said.push(match network {
        BoxNetwork::Any => "may reach the whole network, and the services of this machine (network: any)".to_owned(),
        BoxNetwork::Hosts(hosts) if hosts.is_empty() => "reaches no network".to_owned(),
        BoxNetwork::Hosts(hosts) => {
            format!("may reach {}, and no other host", hosts.iter().map(shown_host).collect::<Vec<_>>().join(", "))
        }
    });
    if let BoxNetwork::Hosts(hosts) = network {
        let of_strangers = hosts.iter().filter(|host| host.host().includes_strangers());
        said.extend(
            of_strangers
                .map(|host| format!("anybody can register a host name that is covered by {host}: the server may reach these hosts too")),
        );
    }
    said.push(format!("may use {memory_mb} MiB of memory and {processes} processes"));
    said.extend(cpu_percent.map(|percent| format!("may use {percent} % of one processor")));
    if *is_nested {
        said.push("may create its own namespaces, as a browser does, and so use more parts of the kernel (nested)".to_owned());
    }
    said.push("without namespaces on the machine, sees which paths and processes exist, but not their contents".to_owned());
    said.extend(environment.iter().map(|(name, value)| format!("has {} in its environment", shown_variable(name, value))));
    said
}

/// Returns a host in ASCII. If the host has other letters, its Unicode form follows, because this form can look like another host.
fn shown_host(host: &BoxHost) -> String {
    host.host()
        .in_unicode()
        .map_or_else(|| host.to_string(), |unicode| format!("{host} (in Unicode: {unicode}: it may only look like another host)"))
}

/// Returns whether an argument has the form of a path, or may become one.
fn is_path(argument: &str) -> bool {
    argument.starts_with('/') || argument.contains("${") || is_relative_path(argument)
}

/// Returns whether the entry alone lets a box write something besides its private home. A program file in an argument is never writable, so
/// it does not count.
pub(super) fn may_write(settings: &BoxSettings, arguments: &[String], has_roots: bool) -> bool {
    let is_written = |argument: &String| is_path(argument) && !is_program_file(Path::new(argument));
    !settings.write.is_empty() || (settings.base == BoxBase::Standard && (has_roots || arguments.iter().any(is_written)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_folder_is_said_to_be_shared_whatever_exists() {
        let is_said = |base: BoxBase, write: &[&str], arguments: &[&str], roots: &[&str]| {
            let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
            let settings = BoxSettings { write: texts(write), ..BoxSettings::of(base) };
            sentences(&settings, &texts(arguments), &texts(roots), &|name, value| format!("{name}={value}"))
                .iter()
                .any(|said| said == SHARED)
        };
        assert!(is_said(BoxBase::Strict, &["/no/such/folder"], &[], &[]));
        assert!(is_said(BoxBase::Standard, &[], &["./data"], &[]) && is_said(BoxBase::Standard, &[], &[], &["/data"]));
        assert!(is_said(BoxBase::Standard, &[], &["${workspaceFolder}"], &[]));
        assert!(!is_said(BoxBase::Strict, &[], &["/data"], &["/data"]));
        assert!(!is_said(BoxBase::Standard, &[], &["server.js", "/srv/main.pl", "--verbose"], &[]));
    }

    #[test]
    fn a_host_of_strangers_and_one_that_may_look_like_another_are_told() {
        let said = |host: &str| {
            let network = BoxNetwork::Hosts([host.parse().unwrap()].into());
            let settings = BoxSettings { network, ..BoxSettings::of(BoxBase::Strict) };
            sentences(&settings, &[], &[], &|name, _| name.to_owned()).join("\n")
        };
        for host in ["*.co.uk", "*.github.io", "*.amazonaws.com"] {
            assert!(said(host).contains(&format!("anybody can register a host name that is covered by {host}:443: ")), "{}", said(host));
        }
        assert!(
            said("xn--pple-43d.com").contains("may reach xn--pple-43d.com:443 (in Unicode: \u{430}pple.com: "),
            "{}",
            said("xn--pple-43d.com")
        );
        for host in ["*.example.com", "apple.com", "ada.github.io"] {
            assert!(!said(host).contains("anyone") && !said(host).contains("Unicode"), "{host}");
        }
    }

    #[test]
    fn a_variable_of_the_box_is_shown_as_the_caller_shows_variables() {
        let environment = [("API_KEY".to_owned(), "hunter2".to_owned())].into();
        let settings = BoxSettings { environment, ..BoxSettings::of(BoxBase::Strict) };
        let said = sentences(&settings, &[], &[], &|name, _| format!("{name}=***"));
        assert!(said.contains(&"has API_KEY=*** in its environment".to_owned()), "{said:?}");
    }
}
