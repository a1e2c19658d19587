//! The memory, processes and threads that a box uses, from the process table.

use std::collections::BTreeMap;
use std::{fs, io};

use crate::boxes::order::Ceilings;

const MIB: u64 = 1 << 20;

/// The tables of System V, their columns that count memory, and the minimum number of bytes of each counted unit.
const SYSTEM_V: [(&str, &str, u64); 5] =
    [("shm", "rss", 1), ("shm", "swap", 1), ("msg", "cbytes", 1), ("msg", "qnum", 64), ("sem", "nsems", 64)];

/// Returns the bytes in segments, messages and semaphores of System V in the IPC namespace of this process. They belong to no process.
///
/// # Errors
/// A table cannot be read.
pub(super) fn system_v() -> io::Result<u64> {
    let mut sum = 0_u64;
    for (table, column, bytes) in SYSTEM_V {
        // A kernel without System V has no tables.
        let Some(text) = unless_ended(fs::read_to_string(format!("/proc/sysvipc/{table}")))? else { continue };
        sum = sum.saturating_add(sum_of(&text, column).ok_or(io::ErrorKind::InvalidData)?.saturating_mul(bytes));
    }
    Ok(sum)
}

/// Adds up a column of a table whose first line has the names of the columns. `None` if there is no such column.
fn sum_of(table: &str, column: &str) -> Option<u64> {
    let mut lines = table.lines();
    let place = lines.next()?.split_whitespace().position(|name| name == column)?;
    lines.try_fold(0_u64, |sum, line| Some(sum.saturating_add(line.split_whitespace().nth(place)?.parse().ok()?)))
}

/// Returns a sentence about the first limit that the processes exceed. `kept` are the bytes that the kernel keeps for them elsewhere. If
/// the processes cannot be counted, no limit can be enforced, so a sentence with the reason is returned too.
pub(super) fn problem(processes: io::Result<Vec<u32>>, kept: io::Result<u64>, ceilings: &Ceilings) -> Option<String> {
    let usage = processes.and_then(|ids| Ok((Usage::of_all(&ids, ceilings.processes)?, kept?)));
    match usage {
        Ok((usage, kept)) => usage.plus(Usage { memory_bytes: kept, ..Usage::default() }).beyond(ceilings),
        Err(error) => Some(format!("the memory and processes that it uses cannot be counted ({error})")),
    }
}

/// Returns the ids of all processes of the PID namespace.
fn everyone() -> io::Result<Vec<u32>> {
    let id = |entry: io::Result<fs::DirEntry>| entry.map(|entry| entry.file_name().to_str()?.parse().ok()).transpose();
    fs::read_dir("/proc")?.filter_map(id).collect()
}

/// Returns the mark of this process, which no other process ever has: its id, and the time at which it was started.
///
/// # Errors
/// The process table cannot be read.
pub(super) fn own_mark() -> io::Result<String> {
    let id = std::process::id();
    let start = start_of(id)?.ok_or(io::ErrorKind::InvalidData)?;
    Ok(format!("{id}-{start}"))
}

/// Returns whether the process with this mark has ended. False for a text that is not a mark.
pub(super) fn has_ended(mark: &str) -> bool {
    let read = || {
        let (id, start) = mark.split_once('-')?;
        Some((id.parse().ok()?, start.parse::<u64>().ok()?))
    };
    read().is_some_and(|(id, start)| start_of(id).is_ok_and(|now| now != Some(start)))
}

/// Returns when a process was started, in ticks since the start of the machine. `None` if there is no such process.
fn start_of(id: u32) -> io::Result<Option<u64>> {
    let stat = unless_ended(fs::read_to_string(format!("/proc/{id}/stat")))?;
    Ok(stat.and_then(|stat| stat.rsplit_once(") ")?.1.split(' ').nth(19)?.parse().ok()))
}

/// Returns all processes of the PID namespace except the first.
///
/// # Errors
/// The process table cannot be read.
pub(super) fn others() -> io::Result<Vec<u32>> {
    Ok(everyone()?.into_iter().filter(|id| *id != 1).collect())
}

/// Returns all processes that descend from this one and have not ended.
///
/// # Errors
/// The process table cannot be read.
pub(super) fn descendants() -> io::Result<Vec<u32>> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for id in everyone()? {
        let stat = unless_ended(fs::read_to_string(format!("/proc/{id}/stat")))?;
        if let Some(parent) = stat.and_then(|stat| parent_of(&stat)) {
            children.entry(parent).or_default().push(id);
        }
    }
    let (mut found, mut next) = (Vec::new(), vec![std::process::id()]);
    while let Some(parent) = next.pop() {
        let of_parent = children.remove(&parent).unwrap_or_default();
        next.extend(&of_parent);
        found.extend(of_parent);
    }
    Ok(found)
}

/// Returns the parent of a process from its `stat`. `None` for a process that has ended but has not been reaped (a zombie).
fn parent_of(stat: &str) -> Option<u32> {
    // The program's name is in brackets, and can have any characters.
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let (state, parent) = (fields.first()?, fields.get(1)?);
    // If the main thread alone has ended, the process goes on in its other threads (`num_threads`, proc_pid_stat(5)).
    let threads = fields.get(17).and_then(|threads| threads.parse::<u32>().ok()).unwrap_or_default();
    if matches!(*state, "Z" | "X") && threads < 2 { None } else { parent.parse().ok() }
}

/// The memory, processes and threads that a box uses, without init.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Usage {
    memory_bytes: u64,
    processes: u64,
    threads: u64,
    /// False if the text does not contain the memory, because the thread has ended and was not reaped.
    has_memory: bool,
}

impl Usage {
    /// Adds up the memory and threads of these processes. If there are more than `most`, only their number is counted, because a server
    /// that keeps starting processes must be ended quickly.
    ///
    /// # Errors
    /// The process table cannot be read. Processes that cannot be counted cannot be limited.
    fn of_all(ids: &[u32], most: u64) -> io::Result<Self> {
        let processes = u64::try_from(ids.len()).unwrap_or(u64::MAX);
        if processes > most {
            return Ok(Self { processes, ..Self::default() });
        }
        let mut sum = Self::default();
        for id in ids {
            sum = sum.plus(Self::of_process(*id)?);
        }
        Ok(sum)
    }

    /// Reads the memory and threads of a process. If its main thread has ended and other threads go on, only the other threads show its
    /// memory.
    fn of_process(id: u32) -> io::Result<Self> {
        let folder = format!("/proc/{id}");
        let main = Self::of(&status_at(&folder)?);
        if main.threads < 2 || main.has_memory {
            return Ok(main);
        }
        let Some(threads) = unless_ended(fs::read_dir(format!("{folder}/task")))? else { return Ok(main) };
        for thread in threads {
            let Some(thread) = unless_ended(thread)? else { break };
            let other = Self::of(&status_at(&thread.path().to_string_lossy())?);
            if other.has_memory {
                return Ok(Self { threads: main.threads, ..other });
            }
        }
        Ok(main)
    }

    /// Reads the text of `/proc/PID/status`. Files that are mapped are not counted, as the system can drop them from memory.
    fn of(status: &str) -> Self {
        let number = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|rest| rest.split_ascii_whitespace().next()?.parse::<u64>().ok())
        };
        let kibibytes = ["RssAnon:", "RssShmem:", "VmSwap:", "VmPTE:", "HugetlbPages:"].map(number).into_iter().flatten().sum::<u64>();
        let has_memory = number("RssAnon:").is_some();
        Self { memory_bytes: kibibytes.saturating_mul(1024), processes: 1, threads: number("Threads:").unwrap_or_default(), has_memory }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            memory_bytes: self.memory_bytes.saturating_add(other.memory_bytes),
            processes: self.processes + other.processes,
            threads: self.threads.saturating_add(other.threads),
            has_memory: self.has_memory || other.has_memory,
        }
    }

    /// Returns a sentence for the first limit that is exceeded.
    pub(super) fn beyond(self, ceilings: &Ceilings) -> Option<String> {
        let Self { memory_bytes, processes, threads, has_memory: _ } = self;
        if memory_bytes > ceilings.memory_bytes {
            return Some(format!("it used {} MiB of memory, and its box allows {}", memory_bytes / MIB, ceilings.memory_bytes / MIB));
        }
        if processes > ceilings.processes {
            return Some(format!("it had more than {} processes, which its box does not allow", ceilings.processes));
        }
        (threads > ceilings.threads).then(|| format!("it had {threads} threads, and its box allows {}", ceilings.threads))
    }
}

/// Returns `None` in place of the error for a process or a thread that has ended in the meantime.
fn unless_ended<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    match read {
        Err(error) if error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH) => Ok(None),
        read => read.map(Some),
    }
}

/// Reads the status of a process or a thread. The file of a process that has ended is empty.
fn status_at(folder: &str) -> io::Result<String> {
    unless_ended(fs::read_to_string(format!("{folder}/status"))).map(Option::unwrap_or_default)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\tnode\nVmRSS:\t 9000 kB\nRssAnon:\t    2048 kB\nRssFile:\t  5000 kB\nRssShmem:\t   1024 kB\nVmSwap:\t 1024 kB\nVmPTE:\t 512 kB\nHugetlbPages:\t 512 kB\nThreads:\t11\n";

    #[test]
    fn what_no_process_has_is_counted() {
        let table =
            "       key      shmid perms                  size   rss                  swap\n 0 1 600 9 4096 0\n 0 2 1600 9 8192 1\n";
        assert_eq!([sum_of(table, "rss"), sum_of(table, "swap"), sum_of(table, "none")], [Some(12_288), Some(1), None]);
        assert!(system_v().is_ok());
    }

    #[test]
    fn mapped_files_are_not_counted() {
        assert_eq!(Usage::of(STATUS), Usage { memory_bytes: 5 * MIB, processes: 1, threads: 11, has_memory: true });
        assert_eq!(Usage::of(""), Usage { memory_bytes: 0, processes: 1, threads: 0, has_memory: false });
    }

    #[test]
    fn a_process_is_known_by_its_id_and_its_start() {
        let own = own_mark().unwrap();
        assert!(!has_ended(&own) && has_ended(&format!("{}-1", std::process::id())), "another process with the same id");
        assert!(!has_ended("") && !has_ended("7") && !has_ended("a-b"));
        let mut child = std::process::Command::new("/bin/sleep").arg("100").spawn().unwrap();
        let mark = format!("{}-{}", child.id(), start_of(child.id()).unwrap().unwrap());
        assert!(!has_ended(&mark));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(has_ended(&mark));
    }

    #[test]
    fn the_parent_is_found_whatever_the_program_is_called() {
        assert_eq!(parent_of("7 (a) R 1) S 42 7 7 0 -1"), Some(42));
        assert_eq!(parent_of("7 (sh) Z 42 7 7 0 -1"), None);
        let zombie = |threads: u32| format!("7 (sh) Z 42 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 {threads} 0 9");
        assert_eq!([zombie(0), zombie(1), zombie(2)].map(|stat| parent_of(&stat)), [None, None, Some(42)], "other threads go on");
        assert_eq!(parent_of(""), None);
        let mut child = std::process::Command::new("/bin/sleep").arg("100").spawn().unwrap();
        assert!(descendants().unwrap().contains(&child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn each_limit_is_told() {
        let ceilings = Ceilings {
            memory_bytes: 5 * MIB,
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
        assert!(one.plus(one).beyond(&ceilings).unwrap().contains("10 MiB of memory"));
        assert!(one.plus(Usage::of("")).beyond(&ceilings).unwrap().contains("more than 1 processes"));
        assert!(Usage { threads: 12, ..one }.beyond(&ceilings).unwrap().contains("12 threads"));
    }
}
