//! Describes the rights of a box for the person who approves it.

use super::contents::is_relative_path;
use crate::config::{BoxBase, BoxNetwork, BoxSettings};

/// Returns sentences about the files and hosts that a server may use. `arguments` and `roots` are those of its entry.
///
/// ```
/// use hyperlight_mcp::boxes::sentences;
/// use hyperlight_mcp::config::{BoxBase, BoxSettings};
/// let said = sentences(&BoxSettings::of(BoxBase::Strict), &["--port".into(), "/data".into()], &[]);
/// assert!(said.iter().any(|sentence| sentence.starts_with("may read the paths in its arguments and roots: /data")));
/// assert!(said.iter().any(|sentence| sentence == "reaches no network"));
/// ```
#[must_use]
pub fn sentences(settings: &BoxSettings, arguments: &[String], roots: &[String]) -> Vec<String> {
    let BoxSettings { base, read, write, network, memory_mb, disk_mb, processes, cpu_percent, is_nested, environment } = settings;
    let mut said = vec![
        "may read the system's programs, and the folders of its own program, runtime and package".to_owned(),
        format!("may write a private home of {disk_mb} MiB, which is kept, and a private /tmp"),
    ];
    said.extend(read.iter().map(|path| format!("may read {path}")));
    said.extend(write.iter().map(|path| format!("may read and write {path}")));
    let is_path = |text: &&String| text.starts_with('/') || text.contains("${") || is_relative_path(text);
    let named: Vec<&str> = arguments.iter().filter(is_path).chain(roots).map(String::as_str).collect();
    if !named.is_empty() {
        let may = match base {
            BoxBase::Standard => "may read and write",
            BoxBase::Strict => "may read",
        };
        said.push(format!("{may} the paths in its arguments and roots: {} (programs with their package, read only)", named.join(", ")));
    }
    said.push(match network {
        BoxNetwork::Any => "may reach the whole network, and the services of this machine (network: any)".to_owned(),
        BoxNetwork::Hosts(hosts) if hosts.is_empty() => "reaches no network".to_owned(),
        BoxNetwork::Hosts(hosts) => {
            format!("may reach {}, and no other host", hosts.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
        }
    });
    said.push(format!("may use {memory_mb} MiB of memory and {processes} processes"));
    said.extend(cpu_percent.map(|percent| format!("may use {percent} % of one processor")));
    if *is_nested {
        said.push("may make namespaces of its own, as a browser does, which gives it more of the kernel (nested)".to_owned());
    }
    said.push("without namespaces on the machine, sees which paths and processes exist, but not their contents".to_owned());
    said.extend(environment.iter().map(|(name, value)| format!("has {name}={value} in its environment")));
    said
}
