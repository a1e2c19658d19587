//! Resolves host names as fully qualified names. Otherwise, a search domain of this machine could be added to a name in the list of hosts,
//! and the name would mean another host.

use std::io;
use std::net::IpAddr;
use std::path::Path;

use futures::future::BoxFuture;

use crate::fetch::Resolve;
use crate::files::{Links, read_bounded};

/// The machine's own table of names. A name in this table is not found if a dot is added to it.
const HOSTS: &str = "/etc/hosts";
const MAX_HOSTS_BYTES: u64 = 1 << 20;
/// The suffix of names that machines announce within a local network (multicast DNS). Ordinary DNS does not know these names.
const OF_NEIGHBOURS: &str = ".local";

/// A resolver of fully qualified names, which ignores the search domains of the machine.
#[derive(Debug, Clone, Copy)]
pub struct AbsoluteNames<R>(pub R);

impl<R: Resolve + Copy + 'static> Resolve for AbsoluteNames<R> {
    fn resolve(&self, host: &str) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        let (Self(resolver), host) = (*self, host.to_owned());
        Box::pin(async move {
            let read = || read_bounded(Path::new(HOSTS), Links::Follow, MAX_HOSTS_BYTES).unwrap_or_default();
            let table = tokio::task::spawn_blocking(read).await.map_err(io::Error::other)?;
            resolver.resolve(&absolute(&host, &String::from_utf8_lossy(&table))).await
        })
    }
}

/// Returns the name with a dot at its end, which makes it fully qualified. Names that only this machine or its network knows are returned
/// unchanged: a name in `table`, a name with one label, and a name that ends in [`OF_NEIGHBOURS`].
fn absolute(host: &str, table: &str) -> String {
    let lines = table.lines().map(|line| line.split('#').next().unwrap_or_default());
    let mut names = lines.flat_map(|line| line.split_ascii_whitespace().skip(1));
    let is_own = !host.contains('.') || host.ends_with(OF_NEIGHBOURS) || names.any(|name| name.eq_ignore_ascii_case(host));
    if is_own || host.ends_with('.') { host.to_owned() } else { format!("{host}.") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_whole_one_unless_the_machine_has_it_otherwise() {
        let table = "127.0.0.1 localhost\n10.0.0.5\tdb.Internal  db # old.example\n";
        for (host, asked) in [
            ("api.example.org", "api.example.org."),
            ("old.example", "old.example."),
            ("db.internal", "db.internal"),
            ("localhost", "localhost"),
            ("printer.local", "printer.local"),
            ("a.example.", "a.example."),
        ] {
            assert_eq!(absolute(host, table), asked);
        }
    }

    #[derive(Clone, Copy)]
    struct Asked;

    impl Resolve for Asked {
        fn resolve(&self, host: &str) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
            let host = host.to_owned();
            Box::pin(async move { Err(io::Error::other(host)) })
        }
    }

    #[tokio::test]
    async fn the_system_is_asked_for_the_whole_name() {
        let asked = AbsoluteNames(Asked).resolve("a.example.org").await.unwrap_err();
        assert_eq!(asked.to_string(), "a.example.org.");
    }
}
