//! Finds paths that lead through the table of processes, `/proc`. It contains the working directory of each process, so such a path names
//! other files if the process starts in another folder.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{PROC_SUPER_MAGIC, statfs};

const TABLE: &str = "proc";
const DEVICES: &str = "dev";
/// Names in `/dev` that are symbolic links into the table of processes.
const DEVICE_LINKS: [&str; 4] = ["fd", "stderr", "stdin", "stdout"];
/// Maximum length of a pattern that is compared with a name.
const MAX_PATTERN: usize = 64;
/// Maximum number of symbolic links that are followed in one path. The kernel has the same limit.
const MAX_LINKS: usize = 40;

/// Returns whether a text, which may be a shell command line, names the table of processes. The path need not begin with a slash: a command
/// that does not depend on the folder is started in `/`.
pub(super) fn names_processes(text: &str) -> bool {
    // A word without a slash may be an ordinary word, unless the text is a shell command line.
    let is_line = text.contains(char::is_whitespace);
    let is_border = |next: char| next.is_whitespace() || "=:,;|&()<>'\"`{}$@".contains(next);
    [text.to_owned(), without_quotes(text)].iter().any(|text| {
        text.split(is_border).any(|word| {
            let mut names = word.split('/').filter(|name| !matches!(*name, "" | ".")).peekable();
            // If the first name of a path contains only wildcards, a shell may expand it to `/proc` or any other folder.
            let is_pattern = word.starts_with('/') && names.peek().is_some_and(|name| name.chars().all(|next| "*?".contains(next)));
            let mut before = "";
            let is_named = names.any(|name| {
                let is_link = is_named(before, DEVICES) && DEVICE_LINKS.iter().any(|link| is_named(name, link));
                before = name;
                is_link || is_named(name, TABLE)
            });
            is_pattern || (is_named && (is_line || word.contains('/')))
        })
    })
}

/// Returns whether `name` is the known name, with or without further characters after it, or a pattern that a shell may expand to it.
fn is_named(name: &str, known: &str) -> bool {
    let is_pattern = name.contains(['*', '?', '[']) && name.contains(char::is_alphanumeric);
    if !is_pattern || name.len() > MAX_PATTERN {
        // A pattern that is too long to be compared is treated as a match.
        return is_pattern || name.strip_prefix(known).is_some_and(ends_name);
    }
    let mut pattern = name.as_bytes().to_vec();
    // Adjacent stars mean the same as one star, but would take more time.
    pattern.dedup_by(|next, last| (*next, *last) == (b'*', b'*'));
    matches(&pattern, known.as_bytes())
}

/// Returns whether a shell pattern matches a name. A character class matches any character.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern.split_first(), name.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), _) => matches(rest, name) || (!name.is_empty() && matches(pattern, &name[1..])),
        (Some((b'?', rest)), Some((_, name))) => matches(rest, name),
        (Some((b'[', rest)), Some((_, name))) => {
            let end = rest.iter().skip(1).position(|next| *next == b']').map(|end| end + 2);
            end.is_some_and(|end| matches(&rest[end..], name))
        }
        (Some((first, rest)), Some((next, name))) => first == next && matches(rest, name),
        _ => false,
    }
}

/// Returns whether `rest`, the text after a name, does not continue the name. Some texts have further characters after a path.
fn ends_name(rest: &str) -> bool {
    !rest.starts_with(|next: char| next.is_alphanumeric() || "-_.".contains(next))
}

/// Removes quotes and backslashes, as a shell does.
pub(super) fn without_quotes(text: &str) -> String {
    text.replace(['\\', '\'', '"'], "")
}

/// Returns whether an absolute path is in the table of processes, or leads through it by symbolic links.
pub(super) fn leads_to_processes(path: &Path) -> bool {
    if !path.is_absolute() {
        return false;
    }
    let (mut place, mut links) = (PathBuf::from("/"), 0);
    let mut rest: VecDeque<OsString> = names(path);
    while let Some(name) = rest.pop_front() {
        if name == ".." {
            // `place` contains no symbolic links, so its parent is the folder to which the kernel goes.
            place.pop();
            continue;
        }
        let next = place.join(&name);
        if let Ok(target) = fs::read_link(&next) {
            links += 1;
            if links > MAX_LINKS {
                return true;
            }
            if target.is_absolute() {
                place = PathBuf::from("/");
            }
            for name in names(&target).into_iter().rev() {
                rest.push_front(name);
            }
            continue;
        }
        place = next;
        match statfs(&place) {
            Ok(system) if system.f_type == PROC_SUPER_MAGIC => return true,
            Ok(_) => {}
            // Nothing exists at this path, so nothing can be started.
            Err(_) => return false,
        }
    }
    false
}

fn names(path: &Path) -> VecDeque<OsString> {
    let name = |component: Component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    path.components().filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_processes_is_found_in_a_line_of_a_shell() {
        for text in [
            "/proc",
            "/proc/self/cwd/server",
            "--file=/proc/1/cwd/x",
            "proc/1/cwd/server",
            "cd /; cd proc; exec ./1/cwd/server",
            "/./proc/1",
            "/dev/fd/../cwd",
            "/dev//./stdin",
            "2>/dev/stderr",
            "/d?v/f[d]/..",
            "/pr[!x]c/1",
            "/*/1/cwd/server",
            "/de'v/f'd/..",
        ] {
            assert!(names_processes(text), "{text}");
        }
        for text in ["/process", "/dev/null", "/dev/fdx", "proc", "processes", "--proc", "src/*.js", "**/x", "/opt/*.so", "/dev/[", "[/x"] {
            assert!(!names_processes(text), "{text}");
        }
    }

    #[test]
    fn a_path_that_is_long_or_has_many_patterns_takes_little_time() {
        let start = std::time::Instant::now();
        assert!(names_processes(&format!("/{}x", "*a".repeat(100_000))));
        assert!(!names_processes(&"/*?*?*?*?*?*?*?*?*?*?*?*?*?*?a*".repeat(10_000)));
        assert!(leads_to_processes(Path::new(&format!("/proc{}", "/x/..".repeat(100_000)))));
        assert!(start.elapsed() < std::time::Duration::from_secs(20));
    }
}
