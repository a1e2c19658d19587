//! Sockets of services that would do for any process what its box forbids: services for containers, for the login session, and for keys.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use super::mounts::OtherMounts;
use super::paths::{Kind, Lookup};
use super::shown::shown_path;
use super::sockets::{files_of_each, matches, taking_commands};

/// The folder in which services of this machine have their sockets.
const RUN: &str = "/run";
/// Services of the machine, and their sockets.
const OF_MACHINE: [(&str, &str); 10] = [
    ("Docker", "/run/docker.sock"),
    ("Docker", "/var/run/docker.sock"),
    ("containerd", "/run/containerd/containerd.sock"),
    ("Podman", "/run/podman/podman.sock"),
    ("CRI-O", "/run/crio/crio.sock"),
    ("systemd", "/run/systemd/private"),
    ("the system bus", "/run/dbus/system_bus_socket"),
    ("LXD", "/var/lib/lxd/unix.socket"),
    ("screen", "/run/screen"),
    ("X11", "/tmp/.X11-unix/X0"),
];
/// Services of the user, and their sockets in the folder of the session.
const OF_SESSION: [(&str, &str); 12] = [
    ("the session bus", "bus"),
    ("systemd", "systemd/private"),
    ("Docker", "docker.sock"),
    ("Podman", "podman/podman.sock"),
    ("the GnuPG agent", "gnupg/S.gpg-agent"),
    ("the SSH agent", "gnupg/S.gpg-agent.ssh"),
    ("the SSH agent", "keyring/ssh"),
    ("the SSH agent", "ssh-agent.socket"),
    ("Emacs", "emacs/server"),
    ("Wayland", "wayland-0"),
    ("Wayland", "wayland-1"),
    ("PulseAudio", "pulse/native"),
];
/// The folder with sockets of programs that run the commands of every process that connects.
const TEMPORARY: &str = "/tmp";
/// Folders in which programs of all users make their sockets.
const OF_ALL: [&str; 3] = [TEMPORARY, "/var/tmp", RUN];
/// Variables that name a folder in which programs of the user make their sockets.
const FOLDER_VARIABLES: [&str; 2] = ["XDG_RUNTIME_DIR", "TMUX_TMPDIR"];
/// Names of folders that programs make for their sockets in a folder of all users. A star stands for any text.
const PLACES: [&str; 14] = [
    "tmux-*",
    "emacs*",
    "ssh-*",
    "dbus-*",
    ".X11-unix",
    ".ICE-unix",
    ".XIM-unix",
    "screens",
    "uscreens",
    "zellij-*",
    "pulse-*",
    "gpg-*",
    "vscode-*",
    "keyring-*",
];
/// Services of the user, and their sockets in the home.
const OF_HOME: [(&str, &str); 3] =
    [("the GnuPG agent", ".gnupg/S.gpg-agent"), ("Docker", ".docker/run/docker.sock"), ("Docker", ".docker/desktop/docker.sock")];
/// Variables that contain the address of a service.
const OF_VARIABLES: [(&str, &str); 4] =
    [("the SSH agent", "SSH_AUTH_SOCK"), ("the session bus", "DBUS_SESSION_BUS_ADDRESS"), ("Docker", "DOCKER_HOST"), ("tmux", "TMUX")];
/// Beginnings of the names of sockets, or of their folders. The programs behind these sockets run the commands that they receive, so they are
/// named first.
const TAKING_COMMANDS: [&str; 9] = ["tmux-", "emacs", ".X11-unix", "ssh-", "agent.", "S.gpg-agent", "vscode-", "kitty", "wayland-"];
/// Maximum number of files and folders that are looked at to name the sockets in the folders of one box.
const MAX_FILES: usize = 10_000;
/// Maximum depth of folders in which sockets are searched.
const MAX_DEPTH: usize = 3;
/// Maximum number of sockets that a sentence names.
const MAX_NAMED: usize = 3;
/// Maximum number of sockets that are counted.
const MAX_FOUND: usize = 100;

/// A service, and the socket at which it is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    pub name: &'static str,
    pub socket: PathBuf,
}

/// Returns the services that act for this user on behalf of every process that reaches them. No box gets their folders as a whole.
///
/// ```
/// use std::path::Path;
/// let found = hyperlight_mcp::boxes::services(&[("SSH_AUTH_SOCK".into(), "/tmp/ssh-1/agent.2".into())].into(), Path::new("/home/ada"), 1000);
/// assert!(found.iter().any(|service| service.socket == Path::new("/run/user/1000/bus")));
/// assert!(found.iter().any(|service| service.socket == Path::new("/tmp/ssh-1/agent.2")));
/// ```
#[must_use]
pub fn services(environment: &BTreeMap<String, String>, user_home: &Path, user: u32) -> Vec<Service> {
    let own = PathBuf::from(format!("{RUN}/user/{user}"));
    let session = environment.get("XDG_RUNTIME_DIR").map(PathBuf::from).into_iter().chain([own]);
    let of_session = session.flat_map(|folder| OF_SESSION.map(|(name, socket)| (name, folder.join(socket))));
    let of_home = OF_HOME.into_iter().map(|(name, socket)| (name, user_home.join(socket)));
    let of_variables = OF_VARIABLES.into_iter().filter_map(|(name, variable)| Some((name, socket_of(environment.get(variable)?)?)));
    let of_machine = OF_MACHINE.into_iter().map(|(name, socket)| (name, PathBuf::from(socket)));
    // These programs run the commands of every process that connects.
    let temporary = environment.get("TMUX_TMPDIR").map_or(Path::new(TEMPORARY), Path::new);
    let of_user =
        [("tmux", temporary.join(format!("tmux-{user}/default"))), ("Emacs", Path::new(TEMPORARY).join(format!("emacs{user}/server")))];
    let all = of_machine.chain(of_session).chain(of_home).chain(of_variables).chain(of_user);
    all.filter(|(_, socket)| socket.is_absolute()).map(|(name, socket)| Service { name, socket }).collect()
}

/// Returns the folders in which programs of this machine and of the user make their sockets. No box gets one of them as a whole, because a
/// program can make its socket there at any time.
///
/// ```
/// use std::path::Path;
/// let folders = hyperlight_mcp::boxes::socket_folders(&[("TMUX_TMPDIR".into(), "/home/ada/tmux".into())].into(), 1000);
/// for folder in ["/tmp", "/run/user/1000", "/home/ada/tmux"] {
///     assert!(folders.iter().any(|known| known == Path::new(folder)), "{folder}");
/// }
/// ```
#[must_use]
pub fn socket_folders(environment: &BTreeMap<String, String>, user: u32) -> Vec<PathBuf> {
    let of_variables = FOLDER_VARIABLES.into_iter().filter_map(|name| environment.get(name)).map(PathBuf::from);
    let of_all = OF_ALL.into_iter().map(PathBuf::from);
    let all = of_all.chain([PathBuf::from(format!("{RUN}/user/{user}"))]).chain(of_variables);
    all.filter(|folder| folder.is_absolute() && folder.parent().is_some()).collect()
}

/// Returns the path in the address of a service: a path, `unix:///PATH` or `unix:path=PATH,…`.
fn socket_of(address: &str) -> Option<PathBuf> {
    let path = address.strip_prefix("unix://").or_else(|| address.strip_prefix("unix:path=")).unwrap_or(address);
    path.split([',', ';']).next().map(PathBuf::from)
}

/// Checks that the given paths of a box do not bring along the socket of a service, unless the socket itself is named.
///
/// # Errors
/// A sentence that names the service.
pub(super) fn check_services(
    paths: &[&Path],
    named: &[&Path],
    services: &[Service],
    mounts: &OtherMounts,
    lookup: &impl Lookup,
) -> Result<(), String> {
    let files = files_of_each(paths.len());
    paths.iter().try_for_each(|path| check_path(path, named, services, mounts, files, lookup))
}

fn check_path(
    path: &Path,
    named: &[&Path],
    services: &[Service],
    mounts: &OtherMounts,
    files: usize,
    lookup: &impl Lookup,
) -> Result<(), String> {
    let refusal = |name: &str, socket: &Path| {
        format!(
            "{} cannot be given whole: the socket of {name} is within, {}, and through it a server could do what its box forbids: name the \
             folders within it that the server needs, or the socket itself",
            path.display(),
            socket.display()
        )
    };
    for Service { name, socket } in services {
        let real = lookup.real(socket).unwrap_or_else(|| socket.clone());
        // A socket that does not exist yet, or that cannot be seen, may appear later.
        let is_there = real.starts_with(RUN) || lookup.kind(&real) == Some(Kind::Other) || lookup.is_unknown(&real);
        let others = mounts.other_names(&real, lookup);
        let is_within = |socket: &&PathBuf| is_there && socket.starts_with(path) && !named.contains(&socket.as_path());
        if let Some(socket) = [&real].into_iter().chain(&others).find(is_within) {
            return Err(refusal(name, socket));
        }
    }
    taking_commands(path, named, mounts, files, lookup).map_or(Ok(()), |(name, socket)| Err(refusal(name, &socket)))
}

/// Checks that a given path is not a folder in which programs make their sockets, does not contain such a folder, and does not lie in one
/// that a program has made for its sockets. Whether a socket exists there now does not matter, because one can appear at any time. A socket
/// in `named` is allowed.
///
/// # Errors
/// A sentence that names the folder, and what can be given.
pub(super) fn check_socket_folders(
    path: &Path,
    named: &[&Path],
    folders: &[PathBuf],
    mounts: &OtherMounts,
    lookup: &impl Lookup,
) -> Result<(), String> {
    let is_named_socket = lookup.kind(path) == Some(Kind::Other) && named.contains(&path);
    if is_named_socket {
        return Ok(());
    }
    let real_path = lookup.real(path).unwrap_or_else(|| path.to_owned());
    let names_of = |folder: &PathBuf| {
        let real = lookup.real(folder).unwrap_or_else(|| folder.clone());
        let others = mounts.other_names(&real, lookup);
        [folder.clone(), real].into_iter().chain(others).collect::<Vec<_>>()
    };
    let folders: Vec<PathBuf> = folders.iter().flat_map(names_of).collect();
    let shared = || [path, &real_path].into_iter().find(|path| lookup.is_shared(path)).map(Path::to_owned);
    let held = folders.iter().find(|folder| [path, &real_path].iter().any(|path| folder.starts_with(path))).cloned().or_else(shared);
    if let Some(folder) = held {
        return Err(format!(
            "{} cannot be given whole: programs of this machine make their sockets in {}, and through a socket a server could do what its box \
             forbids. Name a folder within it that the server needs, such as {}",
            path.display(),
            folder.display(),
            folder.join("data").display()
        ));
    }
    let is_of_all = |folder: &Path| folders.iter().any(|known| known == folder) || lookup.is_shared(folder);
    let is_place = |place: &&Path| {
        let name = place.file_name().unwrap_or_default().to_string_lossy();
        PLACES.into_iter().any(|pattern| matches(pattern, &name)) && place.parent().is_some_and(is_of_all)
    };
    match path.ancestors().chain(real_path.ancestors()).find(is_place) {
        Some(place) => Err(format!(
            "{} cannot be given: programs of this machine make their sockets in {}, and through a socket a server could do what its box forbids. \
             Name another folder",
            path.display(),
            place.display()
        )),
        None => Ok(()),
    }
}

/// Returns sentences about the sockets in folders. Looks at a bounded number of files in all folders together. If no socket is found in a
/// folder, there is a sentence only if services put their sockets there: in `/tmp`, and in folders within `/run`. `mounted` are the places
/// at which something is mounted.
pub(super) fn sockets_sentences<'p>(folders: impl Iterator<Item = &'p Path>, mounted: &[PathBuf]) -> Vec<String> {
    let mut left = MAX_FILES;
    folders.filter_map(|folder| sockets_sentence(folder, mounted, &mut left)).collect()
}

fn sockets_sentence(folder: &Path, mounted: &[PathBuf], left: &mut usize) -> Option<String> {
    let place = shown_path(folder);
    if *left == 0 {
        return folder
            .is_dir()
            .then(|| format!("may reach services that have their sockets in {place} (this folder was not searched for sockets)"));
    }
    let found = sockets_in(folder, mounted, left);
    if found.is_empty() {
        let told = format!("reaches services that have their sockets in {place}, even if it may only read there");
        let is_usual = folder.starts_with(RUN) || folder == Path::new(TEMPORARY);
        return (is_usual && folder.is_dir()).then_some(told);
    }
    let named: Vec<String> = found.iter().take(MAX_NAMED).map(|socket| shown_path(socket)).collect();
    let more = match found.len() - named.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(format!("reaches the services behind the sockets in {place}, even if it may only read there: {}{more}", named.join(", ")))
}

/// Returns sockets in a folder. Looks at no more than `left` files, and subtracts the number of these files from `left`. Follows no links.
/// Sockets of programs that take commands come first, then all others by name.
fn sockets_in(folder: &Path, mounted: &[PathBuf], left: &mut usize) -> Vec<PathBuf> {
    // In the list of a folder, a socket that is mounted over a file has the kind of this file.
    let is_socket = |path: &&PathBuf| fs::metadata(path).is_ok_and(|data| data.file_type().is_socket());
    let mut found: Vec<PathBuf> =
        mounted.iter().filter(|point| point.starts_with(folder)).filter(is_socket).take(MAX_FOUND).cloned().collect();
    let mut folders = vec![(folder.to_owned(), 0)];
    'search: while let Some((folder, depth)) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if *left == 0 || found.len() == MAX_FOUND {
                break 'search;
            }
            *left -= 1;
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_socket() {
                found.push(entry.path());
            } else if kind.is_dir() && depth < MAX_DEPTH {
                folders.push((entry.path(), depth + 1));
            }
        }
    }
    found.sort_by_cached_key(|socket| (!takes_commands(socket), socket.clone()));
    found.dedup();
    found
}

fn takes_commands(socket: &Path) -> bool {
    let names = [socket.file_name(), socket.parent().and_then(Path::file_name)];
    let begins = |name: &std::ffi::OsStr| TAKING_COMMANDS.iter().any(|beginning| name.to_string_lossy().starts_with(beginning));
    names.into_iter().flatten().any(begins)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn the_addresses_of_services_are_read() {
        let environment = [
            ("DBUS_SESSION_BUS_ADDRESS", "unix:path=/a/bus,guid=7"),
            ("DOCKER_HOST", "unix:///b/docker.sock"),
            ("SSH_AUTH_SOCK", "relative"),
            ("TMUX", "/d/tmux-7/work,88,0"),
            ("XDG_RUNTIME_DIR", "/c"),
        ];
        let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let found = services(&environment, Path::new("/home/ada"), 7);
        let has = |socket: &str| found.iter().any(|service| service.socket == Path::new(socket));
        for socket in [
            "/d/tmux-7/work",
            "/tmp/tmux-7/default",
            "/tmp/emacs7/server",
            "/a/bus",
            "/b/docker.sock",
            "/c/bus",
            "/run/user/7/bus",
            "/home/ada/.gnupg/S.gpg-agent",
            "/run/docker.sock",
        ] {
            assert!(has(socket), "{socket}");
        }
        assert!(!has("relative"));
        let tcp = services(&[("DOCKER_HOST".to_owned(), "tcp://127.0.0.1:2375".to_owned())].into(), Path::new("/h"), 7);
        assert!(tcp.iter().all(|service| service.socket.is_absolute()));
    }

    #[test]
    fn the_sockets_of_a_folder_are_told() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("within")).unwrap();
        let sentence = |folder: &Path| sockets_sentences([folder].into_iter(), &[]).pop();
        assert_eq!(sentence(folder.path()), None);
        let socket = folder.path().join("within/app.sock");
        let _listener = UnixListener::bind(&socket).unwrap();
        assert!(sentence(folder.path()).unwrap().ends_with(&format!(": {}", socket.display())));
        assert!(sentence(Path::new(RUN)).is_some() && sentence(Path::new(TEMPORARY)).is_some());
    }

    #[test]
    fn a_mounted_socket_is_told_once_wherever_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("a/b/c/d/e/f/g");
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("file"), "").unwrap();
        let sockets = [folder.path().join("app.sock"), deep.join("deep.sock")];
        let _listeners = sockets.each_ref().map(|socket| UnixListener::bind(socket).unwrap());
        let mounted = [sockets.to_vec(), vec![deep.join("file"), "/elsewhere".into()]].concat();
        let told = sockets_sentences([folder.path()].into_iter(), &mounted).remove(0);
        assert!(told.ends_with(&format!(": {}, {}", sockets[1].display(), sockets[0].display())), "{told}");
        let told = sockets_sentences([folder.path()].into_iter(), &[]).remove(0);
        assert!(told.ends_with(&format!(": {}", sockets[0].display())), "too deep to be found otherwise: {told}");
    }

    #[test]
    fn a_socket_that_takes_commands_is_named_before_all_others() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("tmux-7")).unwrap();
        let listen = |name: &str| UnixListener::bind(folder.path().join(name)).unwrap();
        let _listeners = ["a", "b", "c", "d", "tmux-7/default"].map(listen);
        let told = sockets_sentences([folder.path()].into_iter(), &[]).remove(0);
        let first = folder.path().join("tmux-7/default").display().to_string();
        assert!(told.contains(&format!(": {first}, ")) && told.ends_with(" and 2 more"), "{told}");
    }

    #[test]
    fn sockets_are_looked_for_in_a_bounded_number_of_files_of_all_folders_together() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a", "b"] {
            fs::create_dir(folder.path().join(name)).unwrap();
            (0..5).for_each(|number| fs::write(folder.path().join(name).join(number.to_string()), "").unwrap());
        }
        let mut left = 8;
        assert_eq!(sockets_sentence(&folder.path().join("a"), &[], &mut left), None);
        assert_eq!(sockets_sentence(&folder.path().join("b"), &[], &mut left), None);
        assert_eq!(left, 0);
        let told = sockets_sentence(&folder.path().join("a"), &[], &mut left).unwrap();
        assert!(told.ends_with("(this folder was not searched for sockets)"), "{told}");
    }
}
