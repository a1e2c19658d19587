//! Ways out of a box, each a line of a table. None works. If a way needs only the user's rights, it is also tried outside of a box, to show
//! that it works there.

use std::ffi::CString;
use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::process::{Command, Stdio};

use hyperlight_mcp::config::{BoxBase, BoxNetwork, BoxSettings};

use super::scene::{ATTACKER, Scene, is_emulated};

/// The conditions under which a way is tried.
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
    _log: UnixDatagram,
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
        Self::in_scene(Scene::new())
    }

    fn in_scene(scene: Scene) -> Self {
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
            _log: UnixDatagram::bind(scene.path("user/log.sock")).unwrap(),
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
            ("chmod", "/dev/null".to_owned(), NotTried),
            ("chmod", "/dev/urandom".to_owned(), NotTried),
            ("lend rights by chmod", self.path("given/write/lending"), Works),
            ("lend rights by fchmodat", self.path("given/write/lending"), Works),
            ("lend a group's rights", self.path("given/write/lending"), Works),
            ("lend rights by creating", self.path("given/write/lending"), Works),
            // The file system of the emulated machine has no files without a name.
            ("lend rights by a file without a name", self.path("given/write/lending"), if is_emulated() { NotTried } else { Works }),
            ("lend rights by chmod", "lending".to_owned(), Works),
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
                "take init's descriptors",
                "let init wait",
                "make init unimportant",
                "make the user unimportant",
            ]
            .map(named),
        );
        all
    }
}

const CALLS: [&str; 46] = [
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
    "openat2",
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
    let network = if has_network { BoxNetwork::Any } else { BoxNetwork::none() };
    none_works_in(&BoxSettings { network, ..BoxSettings::of(BoxBase::Standard) }, ways);
}

fn none_works_in(settings: &BoxSettings, ways: impl Fn(&Machine) -> Vec<(&'static str, String, Outside)>) {
    none_works_on(&Machine::new(), settings, ways);
}

fn none_works_on(machine: &Machine, settings: &BoxSettings, ways: impl Fn(&Machine) -> Vec<(&'static str, String, Outside)>) {
    let ways = ways(machine);
    let attempts: Vec<_> = ways.iter().map(|(name, about, _)| (*name, about.clone())).collect();
    let lines = machine.scene.attack(settings, &attempts);
    assert_eq!(lines.len(), ways.len(), "{lines:#?}");
    let worked: Vec<_> = lines.iter().filter(|line| !line.starts_with("refused\t")).collect();
    assert!(worked.is_empty(), "{worked:#?}");
    for (name, about, _) in ways.iter().filter(|(_, _, outside)| *outside == Works) {
        let line = outside(machine, name, about);
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

/// A box with a network reaches no more files and processes of the machine than a box without one.
#[test]
fn a_network_opens_nothing_else() {
    let files = |machine: &Machine| [machine.reads(), machine.writes(), machine.processes()].concat();
    none_works(files, true);
    none_works(|_| CALLS.map(|name| (name, String::new(), NotTried)).into(), true);
}

/// A browser's own sandbox, tried by a program that does what Chromium does.
const BROWSER: [&str; 2] = ["start a browser's sandbox", "make a user namespace by unshare"];

#[test]
fn a_browsers_own_sandbox_starts_in_a_nested_box_alone() {
    let attempts = BROWSER.map(|name| (name, String::new()));
    for is_nested in [false, true] {
        let scene = Scene::new();
        let lines = scene.attack(&BoxSettings { is_nested, ..BoxSettings::of(BoxBase::Standard) }, &attempts);
        let expected = if is_nested { "done\t" } else { "refused\t" };
        assert!(lines.len() == BROWSER.len() && lines.iter().all(|line| line.starts_with(expected)), "{is_nested}: {lines:#?}");
    }
}

/// The additional rights of a nested box open no other way out.
#[test]
fn namespaces_of_its_own_lead_a_server_nowhere() {
    let settings = BoxSettings { is_nested: true, ..BoxSettings::of(BoxBase::Standard) };
    // The importance of its processes is its own to choose, as the files of processes can be written.
    let files = |machine: &Machine| {
        let all = [machine.reads(), machine.writes(), machine.sockets(), machine.processes()].concat();
        all.into_iter().filter(|(_, about, _)| about != "/proc/self/oom_score_adj").collect()
    };
    none_works_in(&settings, files);
    let allowed = ["chroot", "unshare", "a user namespace by clone"];
    let named = |name: &'static str| (name, String::new(), NotTried);
    let calls = CALLS.into_iter().filter(|name| !allowed.contains(name)).map(named);
    let within = [
        "make a mount namespace within a user namespace",
        "mount within a user namespace",
        "uncover the kernel's files within a user namespace",
    ];
    let kernel = ["/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/proc/irq/default_smp_affinity", "/proc/sys/vm/drop_caches"];
    let kernel = kernel.map(|path| ("write", path.to_owned(), NotTried));
    none_works_in(&settings, |_| calls.clone().chain(within.map(named)).chain(kernel.clone()).collect());
}

impl Machine {
    /// Ways out that exist only on a machine without namespaces. On other machines, mounts and namespaces block them.
    fn around_landlock(&self) -> Vec<(&'static str, String, Outside)> {
        vec![
            ("chmod", self.path("user/notes"), Works),
            ("change the times", self.path("user/notes"), Works),
            ("change the times", self.path("given/read/file"), Works),
            ("set an attribute", self.path("given/read/file"), NotTried),
            ("change flags", self.path("given/read/file"), NotTried),
            ("watch a folder", self.path("user"), Works),
            ("share memory", String::new(), Works),
            ("send by a pair of sockets", self.path("user/log.sock"), Works),
            ("limit another process", self.other.id().to_string(), Works),
            ("kill", self.other.id().to_string(), NotTried),
            ("list", "/proc".to_owned(), Works),
            ("read", "/proc/self/environ".to_owned(), NotTried),
            ("read", "/proc/self/mountinfo".to_owned(), NotTried),
            ("read", "/proc/self/net/tcp".to_owned(), NotTried),
            ("read", "/etc/passwd".to_owned(), Works),
            ("create", "/tmp".to_owned(), NotTried),
            ("create", "/dev/shm".to_owned(), NotTried),
        ]
    }
}

/// Without namespaces, Landlock and the filter of system calls block all that namespaces block on other machines.
#[test]
fn without_namespaces_no_way_leads_out_either() {
    if !super::holds_alone() {
        return;
    }
    let is_root = rustix::process::geteuid().is_root();
    // Root stays root there, without its rights. The server is in the process group of the outer process, whose end is its own.
    let has_sense = |name: &str| name != "signal its parent's group" && (name != "become root" || !is_root);
    for network in [BoxNetwork::none(), BoxNetwork::Any] {
        let has_network = network == BoxNetwork::Any;
        let settings = BoxSettings { network, ..BoxSettings::of(BoxBase::Standard) };
        let machine = Machine::in_scene(Scene::bare());
        none_works_on(&machine, &settings, |machine| {
            let files = [machine.reads(), machine.writes(), machine.around_landlock(), machine.processes()].concat();
            let calls = CALLS.map(|name| (name, String::new(), NotTried));
            let sockets = machine.sockets().into_iter().filter(|(name, _, _)| !has_network || !REACHED.contains(name));
            files.into_iter().chain(sockets).chain(calls).filter(|(name, _, _)| has_sense(name)).collect()
        });
    }
}

/// Ways that a network allows.
const REACHED: [&str; 3] = ["connect", "send", "look up"];
