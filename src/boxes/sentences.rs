//! Says what a box allows, for the person who approves it.

use crate::config::{BoxBase, BoxSettings};

/// Returns what a server may read, write and reach, as sentences. `arguments` and `roots` are those of its entry.
///
/// ```
/// use hyperlight_mcp::boxes::sentences;
/// use hyperlight_mcp::config::{BoxBase, BoxSettings};
/// let said = sentences(&BoxSettings::of(BoxBase::Strict), &["--port".into(), "/data".into()], &[]);
/// assert!(said.iter().any(|sentence| sentence == "may read what its arguments and roots name: /data"));
/// assert!(said.iter().any(|sentence| sentence == "reaches no network"));
/// ```
#[must_use]
pub fn sentences(settings: &BoxSettings, arguments: &[String], roots: &[String]) -> Vec<String> {
    let BoxSettings { base, read, write, has_network, memory_mb, processes } = settings;
    let mut said = vec![
        "may read the system's programs, and the folders of its own program, runtime and package".to_owned(),
        "may write a private home, which is kept, and a private /tmp".to_owned(),
    ];
    said.extend(read.iter().map(|path| format!("may read {path}")));
    said.extend(write.iter().map(|path| format!("may read and write {path}")));
    let is_path = |text: &&String| text.starts_with('/') || text.starts_with("${");
    let named: Vec<&str> = arguments.iter().filter(is_path).chain(roots).map(String::as_str).collect();
    if !named.is_empty() {
        let may = match base {
            BoxBase::Standard => "may read and write",
            BoxBase::Strict => "may read",
        };
        said.push(format!("{may} what its arguments and roots name: {}", named.join(", ")));
    }
    said.push(if *has_network {
        "may reach the whole network, and the services of this machine (network: any)".to_owned()
    } else {
        "reaches no network".to_owned()
    });
    said.push(format!("may use {memory_mb} MiB of memory and {processes} processes"));
    said
}
