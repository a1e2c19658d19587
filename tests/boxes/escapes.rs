//! Ways out of a box, each a line of a table. None works. Where a way needs nothing but the user's rights, it is also tried outside of a box, so
//! that the test can see.

use std::ffi::CString;
use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process::{Command, Stdio};

use hyperlight_mcp::config::{BoxBase, BoxNetwork, BoxSettings};

use super::scene::{ATTACKER, Scene};

/// How a way is tried.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outside {
    /// It works without a box.
    Works,
    /// It needs more than the user's rights, would harm the machine, or depends on it.
    NotTried,
}
use Outside::{NotTried, Works};

/// Returns a socket that answers each datagram.
fn answering() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let own = socket.try_clone().unwrap();
    std::thread::spawn(move || {
        while let Ok((_, from)) = own.recv_from(&mut [0; 9]) {
            let _ = own.send_to(b"y", from);
        }
    });
    socket
}

/// A machine with things that a box must not reach.
struct Machine {
    scene: Scene,
    tcp: TcpListener,
    tcp6: Option<TcpListener>,
    udp: UdpSocket,
    _docker: UnixListener,
    _abstract: UnixListener,
    abstract_name: String,
    other: std::process::Child,
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.other.kill();
        let _ = self.other.wait();
    }
}

impl Machine {
    fn new() -> Self {
        let scene = Scene::new();
        for name in ["user/.ssh/id", "state/machine.key", "state/boxes/other/token", "user/notes"] {
            fs::write(scene.path(name), "secret").unwrap();
        }
        let read = scene.folder("given/read");
        fs::write(read.join("file"), "given").unwrap();
        fs::write(read.join("empty"), "").unwrap();
        symlink(scene.path("user/.ssh/id"), scene.folder("given/write").join("planted")).unwrap();
        symlink(scene.path("user"), scene.path("given/write/folder")).unwrap();
        fs::copy("/usr/bin/id", scene.path("given/read/id")).unwrap();
        fs::set_permissions(scene.path("given/read/id"), fs::Permissions::from_mode(0o4755)).unwrap();
        let fifo = CString::new(scene.path("user/fifo").to_str().unwrap()).unwrap();
        // SAFETY: the path is a string with its end.
        assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
        let abstract_name = scene.path("abstract").display().to_string();
        let other = Command::new("/bin/sleep").arg("1000").env("OTHER_SECRET", "secret").stdin(Stdio::null()).spawn().unwrap();
        Self {
            tcp: TcpListener::bind("127.0.0.1:0").unwrap(),
            tcp6: TcpListener::bind("[::1]:0").ok(),
            udp: answering(),
            _docker: UnixListener::bind(scene.path("user/docker.sock")).unwrap(),
            _abstract: UnixListener::bind_addr(&SocketAddr::from_abstract_name(&abstract_name).unwrap()).unwrap(),
            abstract_name,
            other,
            scene,
        }
    }

    fn path(&self, name: &str) -> String {
        self.scene.path(name).display().to_string()
    }

    fn reads(&self) -> Vec<(&'static str, String, Outside)> {
        let key = || self.path("user/.ssh/id");
        vec![
            ("read", key(), Works),
            ("read", self.path("user/notes"), Works),
            ("list", self.path("user"), Works),
            ("list", self.path("user/.ssh"), Works),
            ("read", self.path("state/machine.key"), Works),
            ("list", self.path("state"), Works),
            ("read", self.path("state/boxes/other/token"), Works),
            ("list", self.path("state/boxes"), Works),
            ("read", self.path("given/read/../../user/.ssh/id"), Works),
            ("read", self.path("given/write/planted"), Works),
            ("list", self.path("given/write/folder"), Works),
            ("read", self.path("given/write/folder/notes"), Works),
            ("read through a link", key(), Works),
            ("read through the working folder", key(), NotTried),
            ("read through the own root", key(), Works),
            ("read by ..", key(), Works),
            ("read inherited descriptors", String::new(), NotTried),
            ("open below inherited descriptors", key(), NotTried),
            ("hard link", key(), NotTried),
            ("rename", key(), NotTried),
            ("read", self.path("user/fifo"), Works),
            ("read", format!("/proc/{}/environ", self.other.id()), Works),
            ("list", format!("/proc/{}/fd", std::process::id()), NotTried),
            ("read", "/proc/1/environ".to_owned(), NotTried),
            ("read", format!("/proc/1/root{}", key()), NotTried),
            ("list", "/proc/1/cwd".to_owned(), NotTried),
            ("list", "/proc/1/root".to_owned(), NotTried),
            ("read", "/proc/1/fd/2".to_owned(), NotTried),
            ("read", "/proc/1/maps".to_owned(), NotTried),
            ("read", "/proc/1/mem".to_owned(), NotTried),
            ("read", "/proc/1/auxv".to_owned(), NotTried),
            ("read", "/proc/kcore".to_owned(), NotTried),
            ("read", "/proc/kmsg".to_owned(), NotTried),
            ("read", "/etc/shadow".to_owned(), NotTried),
            ("list", "/etc/ssl/private".to_owned(), NotTried),
            ("list", "/etc/ssh".to_owned(), NotTried),
            ("list", "/root".to_owned(), NotTried),
            ("list", "/home".to_owned(), NotTried),
            ("list", "/var".to_owned(), NotTried),
            ("list", "/run".to_owned(), NotTried),
            ("list", "/sys".to_owned(), NotTried),
            ("read", "/dev/mem".to_owned(), NotTried),
            ("read", "/dev/kvm".to_owned(), NotTried),
            ("read", "/dev/vda".to_owned(), NotTried),
            ("make a device", "device".to_owned(), NotTried),
        ]
    }

    fn writes(&self) -> Vec<(&'static str, String, Outside)> {
        vec![
            ("write", self.path("user/notes"), Works),
            ("append", self.path("user/.ssh/id"), Works),
            ("create", self.path("user"), Works),
            ("create", self.path("user/.ssh"), Works),
            ("create", self.path("state/boxes/other"), Works),
            ("write", self.path("given/write/folder/notes"), Works),
            ("write", self.path("given/read/file"), Works),
            ("append", self.path("given/read/file"), Works),
            ("truncate", self.path("given/read/empty"), Works),
            ("chmod", self.path("given/read/file"), Works),
            ("create", self.path("given/read"), Works),
            ("remove", self.path("given/read/created"), Works),
            ("create", "/".to_owned(), NotTried),
            ("create", "/usr/bin".to_owned(), NotTried),
            ("create", "/etc".to_owned(), NotTried),
            ("write", "/etc/passwd".to_owned(), NotTried),
            ("append", "/etc/hosts".to_owned(), NotTried),
            ("remove", "/usr/bin/env".to_owned(), NotTried),
            ("create", "/proc".to_owned(), NotTried),
            ("create", "/dev".to_owned(), NotTried),
            ("write", "/proc/sys/kernel/core_pattern".to_owned(), NotTried),
            ("write", "/proc/sys/kernel/hostname".to_owned(), NotTried),
            ("write", "/proc/sysrq-trigger".to_owned(), NotTried),
            ("write", "/proc/self/uid_map".to_owned(), NotTried),
            ("write", "/proc/self/oom_score_adj".to_owned(), NotTried),
            ("fill", "/tmp/all".to_owned(), NotTried),
            ("fill", "/dev/shm/all".to_owned(), NotTried),
        ]
    }

    fn sockets(&self) -> Vec<(&'static str, String, Outside)> {
        let tcp = self.tcp.local_addr().unwrap();
        let tcp6 = self.tcp6.as_ref().map(|tcp| ("connect", tcp.local_addr().unwrap().to_string(), Works));
        let mut all = vec![
            ("connect", tcp.to_string(), Works),
            ("connect", format!("[::ffff:127.0.0.1]:{}", tcp.port()), Works),
            ("connect", format!("0.0.0.0:{}", tcp.port()), Works),
            ("connect", "169.254.169.254:80".to_owned(), NotTried),
            ("connect", "10.0.0.1:80".to_owned(), NotTried),
            ("connect", "192.0.2.1:443".to_owned(), NotTried),
            ("connect", "[2001:db8::1]:443".to_owned(), NotTried),
            ("send", self.udp.local_addr().unwrap().to_string(), Works),
            ("send", "192.0.2.1:53".to_owned(), NotTried),
            ("look up", "localhost.example.com".to_owned(), NotTried),
            ("connect to a socket file", self.path("user/docker.sock"), Works),
            ("connect to a socket file", "/var/run/docker.sock".to_owned(), NotTried),
            ("connect to a socket file", "/run/dbus/system_bus_socket".to_owned(), NotTried),
            ("send to a socket file", "/dev/log".to_owned(), NotTried),
            ("connect to an abstract socket", self.abstract_name.clone(), Works),
            ("raw socket", String::new(), NotTried),
            ("raw socket of IPv6", String::new(), NotTried),
            ("packet socket", String::new(), NotTried),
            ("socket to the hypervisor", String::new(), NotTried),
            ("socket of the kernel's ciphers", String::new(), NotTried),
            ("socket of Bluetooth", String::new(), NotTried),
            ("add a route", String::new(), NotTried),
        ];
        all.extend(tcp6);
        all
    }

    fn processes(&self) -> Vec<(&'static str, String, Outside)> {
        let named = |name| (name, String::new(), NotTried);
        let mut all = vec![
            ("look for", self.other.id().to_string(), Works),
            ("kill", self.other.id().to_string(), NotTried),
            ("run a set-user-ID program", self.path("given/read/id"), NotTried),
        ];
        all.extend(
            [
                "end init",
                "stop init",
                "signal its parent's group",
                "become root",
                "become the machine's root",
                "get capabilities",
                "allow privileges",
                "raise a limit",
                "run first",
                "be more important",
            ]
            .map(named),
        );
        all
    }
}

const CALLS: [&str; 45] = [
    "mount",
    "umount2",
    "pivot_root",
    "chroot",
    "open_tree",
    "move_mount",
    "fsopen",
    "fsmount",
    "fspick",
    "mount_setattr",
    "unshare",
    "setns",
    "clone3",
    "ptrace",
    "process_vm_readv",
    "process_vm_writev",
    "pidfd_getfd",
    "kcmp",
    "keyctl",
    "add_key",
    "request_key",
    "bpf",
    "perf_event_open",
    "io_uring_setup",
    "io_uring_register",
    "userfaultfd",
    "fanotify_init",
    "open_by_handle_at",
    "init_module",
    "finit_module",
    "delete_module",
    "kexec_load",
    "reboot",
    "swapon",
    "syslog",
    "quotactl",
    "settimeofday",
    "clock_settime",
    "iopl",
    "modify_ldt",
    "sethostname",
    "a call of x32",
    "a user namespace by clone",
    "a mount namespace by clone",
    "type into a terminal",
];

/// Tries all ways in one box, and then those that must work outside of it.
fn none_works(ways: impl Fn(&Machine) -> Vec<(&'static str, String, Outside)>, has_network: bool) {
    let machine = Machine::new();
    let ways = ways(&machine);
    let network = if has_network { BoxNetwork::Any } else { BoxNetwork::none() };
    let settings = BoxSettings { network, ..BoxSettings::of(BoxBase::Standard) };
    let attempts: Vec<_> = ways.iter().map(|(name, about, _)| (*name, about.clone())).collect();
    let lines = machine.scene.attack(&settings, &attempts);
    assert_eq!(lines.len(), ways.len(), "{lines:#?}");
    let worked: Vec<_> = lines.iter().filter(|line| !line.starts_with("refused\t")).collect();
    assert!(worked.is_empty(), "{worked:#?}");
    for (name, about, _) in ways.iter().filter(|(_, _, outside)| *outside == Works) {
        let line = outside(&machine, name, about);
        assert!(line.starts_with("done\t"), "the test cannot see: {line}");
    }
}

/// Tries a way without a box.
fn outside(machine: &Machine, name: &str, about: &str) -> String {
    use std::io::Write as _;
    let mut child =
        Command::new(ATTACKER.as_str()).current_dir(machine.scene.home()).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    writeln!(child.stdin.take().unwrap(), "{name}\t{about}").unwrap();
    String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
}

#[test]
fn nothing_that_was_not_given_is_read() {
    none_works(Machine::reads, false);
}

#[test]
fn nothing_that_was_not_given_is_written() {
    none_works(Machine::writes, false);
}

#[test]
fn nothing_is_reached_without_a_network() {
    none_works(Machine::sockets, false);
}

#[test]
fn no_other_process_is_reached_and_no_right_is_won() {
    none_works(Machine::processes, false);
}

#[test]
fn no_call_that_a_box_refuses_reaches_the_kernel() {
    none_works(|_| CALLS.map(|name| (name, String::new(), NotTried)).into(), false);
}

/// With a network, the files and processes of the machine are as far away as without.
#[test]
fn a_network_opens_nothing_else() {
    let files = |machine: &Machine| [machine.reads(), machine.writes(), machine.processes()].concat();
    none_works(files, true);
    none_works(|_| CALLS.map(|name| (name, String::new(), NotTried)).into(), true);
}
