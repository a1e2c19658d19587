//! Finds sockets of programs that run the commands that they receive. The names of such sockets and of their folders show the program.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use super::mounts::OtherMounts;
use super::paths::{Kind, Lookup};

/// Programs, each with a pattern for the path of its sockets: the names of the innermost folders, and the name of the socket. The folders
/// can be anywhere on the machine. A star stands for any text.
const NAMES: [(&str, &str); 28] = [
    ("tmux", "tmux-*/*"),
    ("screen", "S-*/*"),
    ("screen", ".screen/*"),
    ("Zellij", "zellij-*/*/*"),
    ("Emacs", "emacs*/server"),
    ("Neovim", "*/nvim.*"),
    ("VS Code", "*/vscode-*.sock"),
    ("kitty", "*/kitty*"),
    ("WezTerm", "wezterm/*sock*"),
    ("Alacritty", "*/Alacritty-*"),
    ("i3", "i3*/ipc-socket.*"),
    ("sway", "*/sway-ipc.*"),
    ("X11", ".X11-unix/X*"),
    ("Wayland", "*/wayland-*"),
    ("PulseAudio", "pulse*/native"),
    ("PipeWire", "*/pipewire-*"),
    ("the SSH agent", "ssh-*/agent.*"),
    ("the SSH agent", "keyring*/ssh"),
    ("the SSH agent", "*/ssh-agent.socket"),
    ("the GnuPG agent", "*/S.gpg-agent*"),
    ("the session bus", "*/dbus-*"),
    ("systemd", "systemd/private"),
    ("Docker", "*/docker.sock"),
    ("Podman", "*/podman.sock"),
    ("containerd", "*/containerd.sock"),
    ("BuildKit", "*/buildkitd.sock"),
    ("CRI-O", "*/crio.sock"),
    ("LXD", "lxd/unix.socket"),
];
/// Maximum number of files and folders that are looked at in one given path.
const MAX_FILES: usize = 5_000;
/// Maximum number of files and folders that are looked at in all given paths of a box. All paths get an equal share of it, so that many
/// files in one path do not use up the share of another.
const MAX_FILES_OF_BOX: usize = 50_000;
/// Maximum depth of folders in which sockets are searched.
const MAX_DEPTH: usize = 3;

/// Returns the maximum number of files and folders that are looked at in each path, if there are `paths` of them.
pub(super) fn files_of_each(paths: usize) -> usize {
    MAX_FILES.min(MAX_FILES_OF_BOX / paths.max(1)).max(1)
}

/// Returns the first socket at or in a path that belongs to a program which runs the commands that it receives, and the name of this
/// program. Looks at most at `left` files, the nearest first, and follows no links. `named` are paths that a person has named.
pub(super) fn taking_commands(
    path: &Path,
    named: &[&Path],
    mounts: &OtherMounts,
    mut left: usize,
    lookup: &impl Lookup,
) -> Option<(&'static str, PathBuf)> {
    let is_socket = |path: &Path| !named.contains(&path) && lookup.kind(path) == Some(Kind::Other);
    let found = |path: &Path| Some((program(path)?, path.to_owned())).filter(|_| is_socket(path));
    let mut folders = VecDeque::from([(path.to_owned(), 0)]);
    // A socket that is mounted over a file is listed as a file.
    let at_path = found(path).or_else(|| mounts.points_in(path).find_map(found));
    while let Some((folder, depth)) = folders.pop_front().filter(|_| at_path.is_none()) {
        for entry in lookup.entries(&folder, left.saturating_add(1)).unwrap_or_default() {
            left = left.checked_sub(1)?;
            match entry.kind {
                Kind::Folder if depth < MAX_DEPTH => folders.push_back((entry.path, depth + 1)),
                // Most entries are files. To compare their names with all patterns would take most of the time of a start.
                Kind::Folder | Kind::File => {}
                Kind::Other => {
                    if let Some(found) = found(&entry.path) {
                        return Some(found);
                    }
                }
            }
        }
    }
    at_path
}

/// Returns the program whose sockets have a name like this path.
fn program(path: &Path) -> Option<&'static str> {
    let is_like = |names: &str| {
        let mut parts = path.components().rev().map(|part| part.as_os_str().to_string_lossy());
        names.rsplit('/').all(|name| parts.next().is_some_and(|part| matches(name, &part)))
    };
    NAMES.into_iter().find(|(_, names)| is_like(names)).map(|(program, _)| program)
}

/// Returns whether a text matches a pattern with stars.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((start, rest)) => text.strip_prefix(start).is_some_and(|behind| {
            let mut ends = behind.char_indices().map(|(index, _)| index).chain([behind.len()]);
            ends.any(|index| matches(rest, &behind[index..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_paths_share_the_files_that_are_looked_at() {
        assert_eq!([0, 1, 10, 100, 1_000_000].map(files_of_each), [5_000, 5_000, 5_000, 500, 1]);
    }

    #[test]
    fn sockets_are_recognised_by_the_names_of_their_programs() {
        for (path, name) in [
            ("/w/t/tmux-0/default", Some("tmux")),
            ("/w/S-ada/77.pts-0.host", Some("screen")),
            ("/w/zellij-7/0.41.2/work", Some("Zellij")),
            ("/w/emacs1000/server", Some("Emacs")),
            ("/w/vscode-ipc-1.sock", Some("VS Code")),
            ("/w/.X11-unix/X1", Some("X11")),
            ("/w/gnupg/S.gpg-agent.extra", Some("the GnuPG agent")),
            ("/w/run/docker.sock", Some("Docker")),
            ("/w/app.sock", None),
            ("/w/tmux/default", None),
            ("/w/emacs1000/other", None),
            ("/tmux-0", None),
        ] {
            assert_eq!(program(Path::new(path)), name, "{path}");
        }
        assert!(matches("a*b*c", "axxbyc") && matches("*", "") && !matches("a*b", "axc") && matches("é*", "éé"));
    }
}
