//! Tests of the folders in which programs of the machine make their sockets.

use super::*;

/// Tries to give a path, by `read`, `write` and as an argument.
fn given(machine: &Machine, path: &str) -> [Result<(), String>; 3] {
    let mut reads = entry("/usr/bin/node", &[]);
    reads.read = vec![path.into()];
    let mut writes = entry("/usr/bin/node", &[]);
    writes.write = vec![path.into()];
    [reads, writes, entry("/usr/bin/node", &[path])].map(|server| server.contents(machine).map(drop))
}

#[test]
fn a_folder_in_which_programs_make_sockets_is_not_given_whole_whether_one_is_there_or_not() {
    let machine = machine(&[
        "/usr/bin/node",
        "shared /tmp",
        "shared /var/tmp",
        "shared /data/all",
        "/run/user/1000/",
        "/srv/tmux/",
        "/data/all/mine/",
    ]);
    for path in ["/tmp", "/var/tmp", "/var", "/run/user/1000", "/run/user", "/run", "/data/all", "/srv/tmux"] {
        for outcome in given(&machine, path) {
            let problem = outcome.unwrap_err();
            assert!(problem.contains("cannot be given whole") && problem.contains("that the server needs"), "{path}: {problem}");
        }
    }
    let problem = given(&machine, "/tmp")[0].clone().unwrap_err();
    assert!(problem.ends_with("Name a folder within it that the server needs, such as /tmp/data"), "{problem}");
    assert_eq!(given(&machine, "/data/all/mine"), [Ok(()), Ok(()), Ok(())]);
}

#[test]
fn a_folder_of_sockets_within_a_shared_one_is_not_given_and_any_other_is() {
    let lines = ["/usr/bin/node", "shared /tmp", "shared /data/all", "/data/x/tmux-7/", "/tmp/ssh-7/x=", "/tmp/data/ssh-x/"];
    let machine = machine(&lines);
    for path in [
        "/tmp/tmux-1000",
        "/tmp/tmux-1000/new",
        "/tmp/.X11-unix",
        "/tmp/.ICE-unix",
        "/tmp/emacs1000",
        "/tmp/ssh-XXXX",
        "/tmp/dbus-abc",
        "/var/tmp/tmux-1000",
        "/data/all/tmux-1000",
        "/srv/tmux/tmux-1000",
    ] {
        for outcome in given(&machine, path).into_iter().take(2) {
            let problem = outcome.unwrap_err();
            assert!(problem.contains("make their sockets in"), "{path}: {problem}");
        }
    }
    for path in ["/tmp/data", "/tmp/data/ssh-x", "/data/x/tmux-7", "/tmp/.hidden", "/tmp/sshd"] {
        assert_eq!(given(&machine, path), [Ok(()), Ok(()), Ok(())], "{path}");
    }
    // A person can name the socket itself.
    assert_eq!(given(&machine, "/tmp/ssh-7/x")[0], Ok(()));
}

/// A machine that counts how often the identity of a file in `/home/ada/p` is looked up.
struct Counted<'m>(&'m Machine, std::cell::Cell<usize>);

impl Lookup for Counted<'_> {
    fn real(&self, path: &Path) -> Option<PathBuf> {
        self.0.real(path)
    }

    fn link(&self, path: &Path) -> Option<PathBuf> {
        self.0.link(path)
    }

    fn kind(&self, path: &Path) -> Option<Kind> {
        self.0.kind(path)
    }

    fn interpreter(&self, path: &Path) -> Option<Vec<String>> {
        self.0.interpreter(path)
    }

    fn is_program(&self, path: &Path) -> bool {
        self.0.is_program(path)
    }

    fn identity(&self, path: &Path) -> Option<Identity> {
        self.1.update(|count| count + usize::from(path.starts_with("/home/ada/p")));
        self.0.identity(path)
    }

    fn entries(&self, folder: &Path, most: usize) -> Option<Vec<crate::boxes::Entry>> {
        self.0.entries(folder, most)
    }

    fn is_unknown(&self, path: &Path) -> bool {
        self.0.is_unknown(path)
    }

    fn is_shared(&self, path: &Path) -> bool {
        self.0.is_shared(path)
    }

    fn mounts(&self) -> Vec<Mount> {
        self.0.mounts()
    }
}

/// The agent that proposes a server decides which folder the server gets as an argument.
#[test]
fn an_approval_request_looks_at_a_bounded_number_of_files() {
    let files: Vec<String> = (0..450).map(|number| format!("/home/ada/p/{number}")).collect();
    let machine = machine(&files.iter().map(String::as_str).chain(["/usr/bin/node"]).collect::<Vec<_>>());
    let counted = Counted(&machine, std::cell::Cell::new(0));
    let said = entry("/usr/bin/node", &["/home/ada/p"]).with(|request| present(request, &counted)).sentences;
    assert!(said.iter().any(|sentence| sentence.starts_with("may write more than 100 files")), "{said:?}");
    assert!(counted.1.get() <= 110, "{} files", counted.1.get());
}
