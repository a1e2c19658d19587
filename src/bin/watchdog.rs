//! The program `hyperlight-mcp-watchdog`. It ends the MCP servers when Node has ended for any reason.
//!
//! The addon starts one watchdog for each process that has a gateway. The addon has the only open write end of the watchdog's stdin. With
//! the following lines, it reports which process groups exist:
//!
//! ```text
//! +PGID\n   a server's process group exists from now on
//! -PGID\n   this process group no longer exists
//! ```
//!
//! The watchdog answers each line with `ok\n` after it has recorded the change, or with `error …\n` if it has changed nothing. After `ok`,
//! the addon knows that the watchdog will end the server. The watchdog acts when its stdin reaches end of file. The reason is that the
//! kernel closes the pipe in every case: on exit, throw, `SIGINT`, `SIGTERM` and `SIGKILL`. The watchdog then sends `SIGTERM` to every
//! recorded group, waits at most [`GRACE`] for the groups to end, and sends `SIGKILL`. The watchdog itself ends after at most another
//! [`CONFIRM`].
//!
//! # Why the servers do not use parent-death signals
//! `prctl(PR_SET_PDEATHSIG)` has four disadvantages. It fires when the *thread* that spawned the child ends, and the servers are spawned by
//! threads of a pool. It reaches only the child, while `npx` and `docker` start grandchildren that do the work. The kernel clears it when
//! the child executes a set-user-ID program. If the parent ends before the child makes the call, no signal is sent.
//!
//! # Why the watchdog is a separate process
//! No code in Node runs after `SIGKILL`. The watchdog is not affected by the events that end Node: it has its own session and process
//! group, ignores the signals of a terminal, and has no open descriptors except stdin, stdout and stderr.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead, Read, Write};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, getpgid, getpgrp, getppid, kill_process_group, setsid, test_kill_process_group};

/// The time that groups have to end after `SIGTERM`.
const GRACE: Duration = Duration::from_millis(700);
/// The time to wait for the groups to end after `SIGKILL`. The whole time is needed only if a parent does not reap its ended process.
const CONFIRM: Duration = Duration::from_millis(300);
const POLL: Duration = Duration::from_millis(10);
/// The length in bytes from which a line is invalid. At most this number of bytes of a line is stored, so that the memory stays limited.
const MAX_LINE: usize = 32;

fn main() {
    // The group is read before `detach` leaves it. The group may have been inherited from Node.
    let inherited = own_group();
    detach();
    let refused = [own_group(), inherited, parents_group()];
    let groups = listen(&mut io::stdin().lock(), &mut io::stdout().lock(), &refused);
    end(&groups);
}

// ---- Decisions -------------------------------------------------------------------------------------------------------

/// A parsed line from the addon.
#[derive(Debug, PartialEq, Eq)]
enum Order {
    Watch(i32),
    Forget(i32),
}

/// The start time of a process in clock ticks since boot. It identifies the process together with its id.
type StartTime = u64;

/// The recorded groups, each with the start time of its leader. `None` means that the leader had already ended when the group was recorded.
type Groups = BTreeMap<i32, Option<StartTime>>;

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Signal,
    /// The id now belongs to another process, so the group must not be signalled.
    Skip,
}

/// Parses one line without its line feed. `refused` contains the groups that must never be signalled: the watchdog's own group and Node's
/// group.
fn parse(line: &[u8], refused: &[i32]) -> Result<Order, &'static str> {
    if line.len() >= MAX_LINE {
        return Err("the line has 32 bytes or more");
    }
    let (sign, digits) = line.split_first().ok_or("the line is empty")?;
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err("expected +PGID or -PGID");
    }
    let group = std::str::from_utf8(digits)
        .ok()
        .and_then(|text| text.parse::<i32>().ok())
        .ok_or("the number is too large for a process group id")?;
    // killpg(0) signals the watchdog's own group, and killpg(1) is kill(-1), which signals every process of the user.
    if group <= 1 || refused.contains(&group) {
        return Err("this process group must not be signalled");
    }
    match sign {
        b'+' => Ok(Order::Watch(group)),
        b'-' => Ok(Order::Forget(group)),
        _ => Err("expected +PGID or -PGID"),
    }
}

/// Decides whether a recorded group may still be signalled. Compares the recorded start time of the leader with its present start time.
///
/// The kernel does not give an id to a new process while a group with that id exists. If the leader has ended, this proves nothing, because
/// other members of the group may still run. But a leader with another start time is another process, so the recorded group no longer
/// exists.
fn verdict(recorded: Option<StartTime>, now: Option<StartTime>) -> Verdict {
    match now {
        Some(_) if now != recorded => Verdict::Skip,
        _ => Verdict::Signal,
    }
}

/// Parses field 22 of `/proc/PID/stat`. The fields are counted after the last parenthesis, because field 2 is the name of the program and
/// may contain any character.
fn start_time(stat: &[u8]) -> Option<StartTime> {
    let after_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
    let rest = std::str::from_utf8(&stat[after_name..]).ok()?;
    rest.split_ascii_whitespace().nth(19)?.parse().ok()
}

// ---- Effects ---------------------------------------------------------------------------------------------------------

/// Executes lines until the end of file. Returns the groups that are recorded at the end.
fn listen(input: &mut impl BufRead, output: &mut impl Write, refused: &[i32]) -> Groups {
    let mut groups = Groups::new();
    while let Some(line) = next_line(input) {
        let answer = match parse(&line, refused) {
            Ok(Order::Watch(group)) => {
                groups.remove(&group);
                // A group that no longer exists must not be recorded, because its id may be given to an unrelated process.
                if group_exists(group) {
                    groups.insert(group, leader_start(group));
                }
                "ok\n".to_owned()
            }
            Ok(Order::Forget(group)) => {
                groups.remove(&group);
                "ok\n".to_owned()
            }
            Err(reason) => format!("error {reason}\n"),
        };
        // Writing may fail if Node has ended. The loop then ends at the end of file.
        let _ = output.write_all(answer.as_bytes()).and_then(|()| output.flush());
    }
    groups
}

/// Reads the next complete line without its line feed. Drops an incomplete line at the end of file, because a part of an id may be the id
/// of another group. Cuts a line that is too long to [`MAX_LINE`] bytes.
fn next_line(input: &mut impl BufRead) -> Option<Vec<u8>> {
    let mut line = Vec::new();
    let mut part = Vec::new();
    loop {
        part.clear();
        let read = input.by_ref().take(MAX_LINE as u64).read_until(b'\n', &mut part);
        if !matches!(read, Ok(1..)) {
            return None;
        }
        let whole = part.pop_if(|byte| *byte == b'\n').is_some();
        line.extend_from_slice(&part);
        line.truncate(MAX_LINE);
        if whole {
            return Some(line);
        }
    }
}

/// Ends all groups: first with `SIGTERM`, then with `SIGKILL`.
fn end(groups: &Groups) {
    let signalled = signal_all(groups, Signal::TERM);
    if !wait_gone(&signalled, GRACE) {
        let killed = signal_all(&signalled, Signal::KILL);
        wait_gone(&killed, CONFIRM);
    }
}

/// Signals every group whose id still belongs to the recorded group. Returns these groups.
fn signal_all(groups: &Groups, signal: Signal) -> Groups {
    let ours = |(group, start): &(&i32, &Option<StartTime>)| verdict(**start, leader_start(**group)) == Verdict::Signal;
    let signalled: Groups = groups.iter().filter(ours).map(|(group, start)| (*group, *start)).collect();
    for group in signalled.keys() {
        if let Some(group) = pid_of(*group) {
            // The group may have ended in the meantime.
            let _ = kill_process_group(group, signal);
        }
    }
    signalled
}

/// Waits until all groups have ended. Returns `false` on timeout.
fn wait_gone(groups: &Groups, limit: Duration) -> bool {
    let deadline = Instant::now() + limit;
    while groups.keys().any(|group| group_exists(*group)) {
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(POLL);
    }
    true
}

fn leader_start(group: i32) -> Option<StartTime> {
    start_time(&fs::read(format!("/proc/{group}/stat")).ok()?)
}

fn group_exists(group: i32) -> bool {
    // EPERM means that the group exists, but this process may not signal any of its members.
    pid_of(group).is_some_and(|group| matches!(test_kill_process_group(group), Ok(()) | Err(Errno::PERM)))
}

/// Returns the id of a group that may be signalled. `parse` accepts no other ids.
fn pid_of(group: i32) -> Option<Pid> {
    debug_assert!(group > 1);
    if group > 1 { Pid::from_raw(group) } else { None }
}

fn own_group() -> i32 {
    getpgrp().as_raw_nonzero().get()
}

/// Returns the group of the parent process, which is Node. If Node has already ended, returns -1 or the group of the process that adopted
/// the watchdog.
fn parents_group() -> i32 {
    getpgid(getppid()).map_or(-1, |group| group.as_raw_nonzero().get())
}

/// Detaches from everything that could end this process together with Node, or that would keep a resource of Node open.
fn detach() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGPIPE, libc::SIGQUIT] {
        // SAFETY: the signal numbers are valid, and SIG_IGN installs no handler that could run.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    // `setsid` fails with EPERM if the addon has already made this process a group leader, which is sufficient.
    let _ = setsid();
    close_inherited();
    // A file system cannot be unmounted while a directory on it is in use, so the watchdog leaves its directory. If `/` is not accessible,
    // staying in the directory is harmless.
    let _ = std::env::set_current_dir("/");
}

/// Closes all descriptors above 2.
fn close_inherited() {
    // SAFETY: the call takes integers. Nothing in this process owns a descriptor above 2, because this function runs first in `main`, and
    // std opens none.
    let closed = unsafe {
        let (first, last, flags): (libc::c_ulong, libc::c_ulong, libc::c_ulong) = (3, libc::c_uint::MAX.into(), 0);
        libc::syscall(libc::SYS_close_range, first, last, flags) == 0
    };
    if closed {
        return;
    }
    // Kernels before 5.9 do not have the call, and some sandboxes filter it.
    let listed: Vec<i32> = fs::read_dir("/proc/self/fd").map_or_else(
        |_| (3..1024).collect(),
        |entries| {
            let names = entries.flatten().map(|entry| entry.file_name());
            names.filter_map(|name| name.to_str()?.parse().ok()).collect()
        },
    );
    for descriptor in listed.into_iter().filter(|descriptor| *descriptor > 2) {
        // SAFETY: as above, nothing owns these descriptors. The descriptor of the listing is already closed. Closing it again only fails
        // with EBADF.
        unsafe { libc::close(descriptor) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFUSED: [i32; 3] = [100, 200, -1];

    #[test]
    fn orders_are_read() {
        assert_eq!(parse(b"+4711", &REFUSED), Ok(Order::Watch(4711)));
        assert_eq!(parse(b"-4711", &REFUSED), Ok(Order::Forget(4711)));
        assert_eq!(parse(b"+2147483647", &REFUSED), Ok(Order::Watch(i32::MAX)));
    }

    #[test]
    fn bad_lines_are_errors() {
        let bad = "|+|-|4711|+47 11|+4711\r|++4711|+-4711|*4711|+0x10|+2147483648|+99999999999999999999|\u{fc}4711|+\u{fc}";
        for line in bad.split('|') {
            assert!(parse(line.as_bytes(), &REFUSED).is_err(), "{line:?}");
        }
        assert!(parse(b"+\xff", &REFUSED).is_err());
    }

    #[test]
    fn dangerous_groups_are_refused() {
        for line in ["+0", "+1", "-0", "-1", "+100", "-200", "+00001"] {
            assert!(parse(line.as_bytes(), &REFUSED).is_err(), "{line}");
        }
    }

    #[test]
    fn only_a_leader_with_another_start_saves_a_group() {
        assert_eq!(verdict(Some(5), Some(5)), Verdict::Signal);
        assert_eq!(verdict(Some(5), None), Verdict::Signal);
        assert_eq!(verdict(None, None), Verdict::Signal);
        assert_eq!(verdict(Some(5), Some(6)), Verdict::Skip);
        assert_eq!(verdict(None, Some(6)), Verdict::Skip);
    }

    #[test]
    fn the_start_time_is_found_behind_any_name() {
        let after = "S 1 42 42 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 987654 10 11";
        for name in ["node", "a b", "x) S 1 1", ") R 2 (", "\u{e9}"] {
            let stat = format!("42 ({name}) {after}");
            assert_eq!(start_time(stat.as_bytes()), Some(987_654), "{name}");
        }
        assert_eq!(start_time(b"42 (\xff) S 1"), None);
        assert_eq!(start_time(b""), None);
    }

    #[test]
    fn our_own_start_time_is_readable() {
        let pid = i32::try_from(std::process::id()).unwrap();
        assert!(leader_start(pid).is_some_and(|ticks| ticks > 0));
    }

    #[test]
    fn a_line_without_its_end_is_dropped() {
        let mut input: &[u8] = b"+12\n-3\n\n+45";
        assert_eq!(next_line(&mut input).unwrap(), b"+12");
        assert_eq!(next_line(&mut input).unwrap(), b"-3");
        assert_eq!(next_line(&mut input).unwrap(), b"");
        assert_eq!(next_line(&mut input), None);
    }

    #[test]
    fn an_endless_line_is_one_error_and_stays_small() {
        // If the line were cut without an error, it would be treated as an order about group 4711.
        let (before, after) = ("0".repeat(MAX_LINE - 5), "0".repeat(100_000));
        let mut bytes = format!("+{before}4711{after}").into_bytes();
        bytes.extend_from_slice(b"\n+12\n");
        let mut input = &bytes[..];
        let long = next_line(&mut input).unwrap();
        assert_eq!(long.len(), MAX_LINE);
        assert!(parse(&long, &[]).is_err());
        assert_eq!(next_line(&mut input).unwrap(), b"+12");
    }

    #[test]
    fn each_line_gets_one_answer_and_a_dead_group_is_not_recorded() {
        // No process can have this id, because the kernel's highest id is 2^22.
        let mut input: &[u8] = b"+2000000000\n?\n-2000000000\n";
        let mut output = Vec::new();
        let groups = listen(&mut input, &mut output, &[]);
        assert!(groups.is_empty());
        let answers = String::from_utf8(output).unwrap();
        assert_eq!(answers, "ok\nerror expected +PGID or -PGID\nok\n");
    }
}
