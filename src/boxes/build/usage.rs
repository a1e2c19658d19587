//! What the processes of a box use, from the process table.

use std::collections::BTreeMap;
use std::fs;

use crate::boxes::order::Ceilings;

const MIB: u64 = 1 << 20;

/// Returns all processes of the PID namespace but its first.
pub(super) fn others() -> Vec<u32> {
    let names = fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| entry.file_name().into_string().ok());
    names.filter_map(|name| name.parse().ok()).filter(|id| *id != 1).collect()
}

/// Returns all processes that descend from this one and have not ended.
pub(super) fn descendants() -> Vec<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    let everyone = fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    for id in everyone {
        let parent = fs::read_to_string(format!("/proc/{id}/stat")).ok().and_then(|stat| parent_of(&stat));
        if let Some(parent) = parent {
            children.entry(parent).or_default().push(id);
        }
    }
    let (mut found, mut next) = (Vec::new(), vec![std::process::id()]);
    while let Some(parent) = next.pop() {
        let of_parent = children.remove(&parent).unwrap_or_default();
        next.extend(&of_parent);
        found.extend(of_parent);
    }
    found
}

/// Returns the parent of a process from its `stat`. `None` if it has ended and only waits for its parent to notice.
fn parent_of(stat: &str) -> Option<u32> {
    // The name of the program stands in brackets, and can have any characters.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?;
    if matches!(state, "Z" | "X") { None } else { fields.next()?.parse().ok() }
}

/// What all processes of a box use, without init.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Usage {
    memory_bytes: u64,
    processes: u64,
    threads: u64,
}

impl Usage {
    /// Counts what these processes use. Beyond `most`, only the processes are counted: while they multiply, each moment counts.
    pub(super) fn of_all(ids: &[u32], most: u64) -> Self {
        let processes = u64::try_from(ids.len()).unwrap_or(u64::MAX);
        if processes > most {
            return Self { processes, ..Self::default() };
        }
        // A process that has ended in the meantime uses nothing.
        let each =
            ids.iter().map(|id| fs::read_to_string(format!("/proc/{id}/status")).map(|status| Self::of(&status)).unwrap_or_default());
        each.fold(Self::default(), Self::plus)
    }

    /// Reads `/proc/PID/status`. Files that are mapped are not counted, as the system can drop them from memory.
    fn of(status: &str) -> Self {
        let number = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|rest| rest.split_ascii_whitespace().next()?.parse::<u64>().ok()).unwrap_or_default()
        };
        let kibibytes = ["RssAnon:", "RssShmem:", "VmSwap:"].map(number).into_iter().sum::<u64>();
        Self { memory_bytes: kibibytes.saturating_mul(1024), processes: 1, threads: number("Threads:") }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            memory_bytes: self.memory_bytes.saturating_add(other.memory_bytes),
            processes: self.processes + other.processes,
            threads: self.threads.saturating_add(other.threads),
        }
    }

    /// Returns a sentence for the first limit that is exceeded.
    pub(super) fn beyond(self, ceilings: &Ceilings) -> Option<String> {
        let Self { memory_bytes, processes, threads } = self;
        if memory_bytes > ceilings.memory_bytes {
            return Some(format!("it used {} MiB of memory, and its box allows {}", memory_bytes / MIB, ceilings.memory_bytes / MIB));
        }
        if processes > ceilings.processes {
            return Some(format!("it had more than {} processes, which its box does not allow", ceilings.processes));
        }
        (threads > ceilings.threads).then(|| format!("it had {threads} threads, and its box allows {}", ceilings.threads))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\tnode\nVmRSS:\t 9000 kB\nRssAnon:\t    2048 kB\nRssFile:\t  5000 kB\nRssShmem:\t   1024 kB\nVmSwap:\t 1024 kB\nThreads:\t11\n";

    #[test]
    fn mapped_files_are_not_counted() {
        assert_eq!(Usage::of(STATUS), Usage { memory_bytes: 4 * MIB, processes: 1, threads: 11 });
        assert_eq!(Usage::of(""), Usage { memory_bytes: 0, processes: 1, threads: 0 });
    }

    #[test]
    fn the_parent_is_found_whatever_the_program_is_called() {
        assert_eq!(parent_of("7 (a) R 1) S 42 7 7 0 -1"), Some(42));
        assert_eq!(parent_of("7 (sh) Z 42 7 7 0 -1"), None);
        assert_eq!(parent_of(""), None);
        let mut child = std::process::Command::new("/bin/sleep").arg("100").spawn().unwrap();
        assert!(descendants().contains(&child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn each_limit_is_told() {
        let ceilings = Ceilings {
            memory_bytes: 4 * MIB,
            processes: 1,
            threads: 11,
            open_files: 1,
            file_bytes: 1,
            temporary_bytes: 1,
            home_bytes: 1,
            cpu_percent: None,
        };
        let one = Usage::of(STATUS);
        assert_eq!(one.beyond(&ceilings), None);
        assert!(one.plus(one).beyond(&ceilings).unwrap().contains("8 MiB of memory"));
        assert!(one.plus(Usage::of("")).beyond(&ceilings).unwrap().contains("more than 1 processes"));
        assert!(Usage { threads: 12, ..one }.beyond(&ceilings).unwrap().contains("12 threads"));
    }
}
