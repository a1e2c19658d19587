//! Runs programs in boxes, and the machine around them.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::io::{self, BufRead, BufReader, IoSlice, IoSliceMut, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::net::{IpAddr, Shutdown};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use hyperlight_mcp::boxes::border::{Border, BorderSettings, Descriptors, Refusal};
use hyperlight_mcp::boxes::{BoxInput, Disk, HOME, Order, OwnFile, Report, contents};
use hyperlight_mcp::config::{BoxBase, BoxHost, BoxNetwork, BoxSettings};
use hyperlight_mcp::fetch::Resolve;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use tokio::runtime::Runtime;

/// The variable with the folder of the programs, if they are not where they were built.
pub const PROGRAMS: &str = "HYPERLIGHT_MCP_TEST_PROGRAMS";
/// The program that makes boxes, and the one that tries to leave them.
pub static BOX: LazyLock<String> = LazyLock::new(|| placed(BUILT_BOX));
pub static ATTACKER: LazyLock<String> = LazyLock::new(|| placed(BUILT_ATTACKER));
const BUILT_BOX: &str = env!("CARGO_BIN_EXE_hyperlight-mcp-box");
const BUILT_ATTACKER: &str = env!("CARGO_BIN_EXE_fixture-attacker");
const PATIENCE: Duration = Duration::from_mins(1);
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

fn placed(built: &'static str) -> String {
    static FOLDER: LazyLock<Option<PathBuf>> = LazyLock::new(|| {
        let named = std::env::var_os(PROGRAMS).map(PathBuf::from);
        // A box of a program in this repository has the whole package, whose folders are looked through at each start. The emulated machine
        // needs seconds for that. The copies end with the machine.
        named.or_else(|| is_emulated().then(|| install(&[BUILT_BOX, BUILT_ATTACKER]).keep()))
    });
    let name = Path::new(built).file_name().unwrap();
    FOLDER.as_ref().map_or_else(|| built.to_owned(), |folder| folder.join(name).display().to_string())
}

/// Copies programs to a new folder that all users can read.
pub fn install(programs: &[impl AsRef<OsStr>]) -> tempfile::TempDir {
    let folder = tempfile::Builder::new().permissions(Permissions::from_mode(0o755)).tempdir().unwrap();
    // Another test that forks while this process writes a program would keep it from being started. So another process writes it.
    let copied = Command::new("install").args(["-m", "755"]).args(programs).arg(folder.path()).status();
    assert!(copied.unwrap().success());
    folder
}

/// A folder of the machine with a user's home, the gateway's own folder and the private home of one server.
pub struct Scene {
    folder: tempfile::TempDir,
    machine: Machine,
}

/// The features of the machine of a scene.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Machine {
    All,
    /// No namespaces.
    Bare,
    /// No namespaces, and a table of processes that hides some.
    BareAndHiding,
    /// Namespaces, of which all are in use.
    Full,
}

/// The result of a program.
#[derive(Debug)]
pub struct Ran {
    pub report: Option<Report>,
    pub output: String,
    pub errors: String,
    pub status: Option<i32>,
    /// The attempts that its box has refused, in their order: host and port as in a list of hosts, and the reason.
    pub refused: Vec<String>,
    /// The id of the outer process.
    pub id: u32,
}

/// Returns the name of the step that failed.
pub fn failed_step(ran: &Ran) -> Option<&str> {
    match &ran.report {
        Some(Report::Failed { step, .. }) => Some(step),
        _ => None,
    }
}

/// Returns whether this is the emulated machine, which has a kernel of Debian 12.
pub fn is_emulated() -> bool {
    std::env::var_os("HYPERLIGHT_MCP_EMULATED").is_some()
}

/// Polls until something is true.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Returns how many processes of the machine have this argument.
pub fn processes_with(argument: &str) -> usize {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let has = |line: Vec<u8>| line.split(|byte| *byte == 0).any(|word| word == argument.as_bytes());
    entries.filter(|entry| fs::read(entry.path().join("cmdline")).is_ok_and(has)).count()
}

impl Scene {
    pub fn new() -> Self {
        let scene = Self { folder: tempfile::Builder::new().prefix("hyperlight-mcp-box-").tempdir().unwrap(), machine: Machine::All };
        for name in ["user/.ssh", "state/boxes/own", "state/boxes/other"] {
            fs::create_dir_all(scene.path(name)).unwrap();
        }
        scene
    }

    /// Returns a scene on a machine without namespaces.
    pub fn bare() -> Self {
        Self { machine: Machine::Bare, ..Self::new() }
    }

    /// Returns a scene on a machine without namespaces whose table of processes hides some. Only root can make it.
    pub fn bare_and_hiding() -> Self {
        Self { machine: Machine::BareAndHiding, ..Self::new() }
    }

    /// Returns a scene on a machine on which all namespaces are in use.
    pub fn full() -> Self {
        Self { machine: Machine::Full, ..Self::new() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join(name)
    }

    pub fn folder(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(&path).unwrap();
        path
    }

    /// Returns the program that makes boxes, which is about to start.
    pub fn box_program(&self) -> Command {
        box_program(self.machine)
    }

    /// Returns the folder that is the private home.
    pub fn home(&self) -> PathBuf {
        self.path("state/boxes/own")
    }

    pub fn command<'a>(&'a self, program: &'a str, arguments: &[&str]) -> Boxed<'a> {
        Boxed {
            scene: self,
            program,
            arguments: arguments.iter().map(|argument| (*argument).to_owned()).collect(),
            settings: BoxSettings::of(BoxBase::Standard),
            start_hosts: BTreeSet::new(),
            names: HashMap::new(),
            read: Vec::new(),
            write: Vec::new(),
            fails_at: None,
            home_bytes: None,
            own_files: Vec::new(),
            descriptors: Descriptors::of_process(),
            working_directory: HOME.into(),
        }
    }

    /// Gives these bytes to the program.
    pub fn raw(&self, bytes: &[u8]) -> Ran {
        assert!(self.home().is_dir());
        start(bytes, b"", None, self.machine).finish()
    }

    /// Makes these attempts in one box, and returns the lines with their results.
    pub fn attack(&self, settings: &BoxSettings, attempts: &[(&str, String)]) -> Vec<String> {
        let mut command = self.command(&ATTACKER, &[]);
        command.settings = settings.clone();
        command.read = vec![self.folder("given/read")];
        command.write = vec![self.folder("given/write")];
        let ran = command.run(&lines_of(attempts));
        assert_eq!((&ran.report, ran.status), (&Some(Report::Ready), Some(0)), "{} {}", ran.output, ran.errors);
        ran.output.lines().map(str::to_owned).collect()
    }
}

/// Returns attempts as the attacker reads them.
pub fn lines_of(attempts: &[(&str, String)]) -> String {
    attempts.iter().map(|(name, about)| format!("{name}\t{about}\n")).collect::<Vec<_>>().concat()
}

/// A program that is about to run in a box.
pub struct Boxed<'a> {
    scene: &'a Scene,
    program: &'a str,
    arguments: Vec<String>,
    pub settings: BoxSettings,
    pub start_hosts: BTreeSet<BoxHost>,
    /// The addresses that names have outside.
    pub names: HashMap<&'static str, Vec<IpAddr>>,
    pub read: Vec<PathBuf>,
    pub write: Vec<PathBuf>,
    pub fails_at: Option<&'static str>,
    /// The size of the private home, if it is not the usual one.
    pub home_bytes: Option<u64>,
    /// Files of the gateway.
    pub own_files: Vec<OwnFile>,
    /// The descriptors that its border shares with others.
    pub descriptors: Arc<Descriptors>,
    pub working_directory: PathBuf,
}

impl Boxed<'_> {
    /// Returns the bytes for the program `hyperlight-mcp-box`, with what the gateway would decide.
    pub fn order(&self) -> Vec<u8> {
        let (user_home, own_folders, home) = (self.scene.path("user"), [self.scene.path("state")], self.scene.home());
        let input = BoxInput {
            settings: &self.settings,
            program: Path::new(self.program),
            arguments: &self.arguments,
            working_directory: None,
            workspace: None,
            search_path: OsStr::new(PATH),
            read: self.read.clone(),
            write: self.write.clone(),
            roots: Vec::new(),
            start_hosts: &self.start_hosts,
            user_home: &user_home,
            own_folders: &own_folders,
            private_home: &home,
            services: &[],
            socket_folders: &[],
            own_files: &self.own_files,
            kept: &Vec::new,
            is_always_named: &|_| true,
        };
        let (mut contents, program) = contents(&input, &Disk).unwrap();
        contents.ceilings.home_bytes = self.home_bytes.unwrap_or(contents.ceilings.home_bytes);
        let order = Order {
            contents,
            program,
            name: self.program.to_owned(),
            arguments: self.arguments.clone(),
            environment: [("PATH", PATH), ("HOME", HOME), ("TMPDIR", "/tmp")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            working_directory: self.working_directory.clone(),
            fails_at: self.fails_at.map(str::to_owned),
        };
        order.bytes().unwrap()
    }

    pub fn run(&self, input: &str) -> Ran {
        self.run_bytes(input.as_bytes())
    }

    pub fn run_bytes(&self, input: &[u8]) -> Ran {
        start(&self.order(), input, Some(self), self.scene.machine).finish()
    }

    /// Starts the program, and leaves its input open.
    pub fn start(&self, input: &str) -> Running {
        start(&self.order(), input.as_bytes(), Some(self), self.scene.machine)
    }
}

/// Resolves names as a test says.
struct Names(HashMap<&'static str, Vec<IpAddr>>, Arc<Mutex<Vec<String>>>);

impl Resolve for Names {
    fn resolve(&self, host: &str) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        self.1.lock().unwrap().push(host.to_owned());
        let found = self.0.get(host).cloned().ok_or_else(|| io::Error::other("no such name"));
        Box::pin(async move { found })
    }
}

/// The runtime that serves the borders of all tests, as one runtime serves those of a gateway.
fn runtime() -> &'static Runtime {
    static RUNTIME: LazyLock<Runtime> =
        LazyLock::new(|| tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap());
    &RUNTIME
}

pub struct Running {
    child: Child,
    border: Option<Border>,
    refused: Arc<Mutex<Vec<String>>>,
    /// The names that were looked up outside.
    pub looked_up: Arc<Mutex<Vec<String>>>,
}

fn start(order: &[u8], input: &[u8], boxed: Option<&Boxed<'_>>, machine: Machine) -> Running {
    let (socket, theirs) = UnixStream::pair().unwrap();
    let (read, mut write) = io::pipe().unwrap();
    let mut child = box_program(machine)
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .unwrap();
    let (refused, looked_up) = (Arc::default(), Arc::default());
    // A program that has refused its order reads no more of it.
    let sockets = (&socket).write_all(order).and_then(|()| exchange(&socket, read)).unwrap_or_default();
    drop(socket);
    let border = boxed.filter(|_| !sockets.is_empty()).map(|boxed| {
        let BoxNetwork::Hosts(hosts) = boxed.settings.network.clone() else { panic!("a border for the whole network") };
        let told: Arc<Mutex<Vec<String>>> = Arc::clone(&refused);
        let on_refused = Arc::new(move |refusal: &Refusal| {
            let reason = serde_json::to_value(refusal.reason).unwrap();
            told.lock().unwrap().push(format!("{} {}", refusal.target(), reason.as_str().unwrap()));
        });
        let resolver = Arc::new(Names(boxed.names.clone(), Arc::clone(&looked_up)));
        let (start_hosts, descriptors) = (boxed.start_hosts.clone(), Arc::clone(&boxed.descriptors));
        let settings = BorderSettings { hosts, start_hosts, resolver, on_refused, descriptors };
        Border::start(sockets, &settings, runtime().handle()).unwrap()
    });
    let _ = write.write_all(input);
    child.stdin = Some(ChildStdin::from(OwnedFd::from(write)));
    Running { child, border, refused, looked_up }
}

/// Gives the pipe for the server's input, and takes the sockets of the border.
pub fn exchange(socket: &UnixStream, read: io::PipeReader) -> io::Result<Vec<OwnedFd>> {
    let given = [read.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&given));
    sendmsg(socket, &[IoSlice::new(b"p")], &mut control, SendFlags::NOSIGNAL)?;
    // Only the program has it now.
    drop(read);
    // A program that waits for the rest of an order finds its end.
    socket.shutdown(Shutdown::Write)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    recvmsg(socket, &mut [IoSliceMut::new(&mut [0])], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let rights = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(sockets) => Some(sockets),
        _ => None,
    });
    Ok(rights.flatten().collect())
}

/// Returns the program that makes boxes, which is about to start on this machine.
fn box_program(machine: Machine) -> Command {
    let mut command = Command::new(BOX.as_str());
    command.env_clear();
    if machine != Machine::All {
        // SAFETY: takes no arguments. The closure writes files, for which it may need memory: the C library lets a child allocate.
        let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
        unsafe { command.pre_exec(move || move_to(machine, user, group)) };
    }
    command
}

/// Moves this process to a user namespace that has all of the machine, and in which no other namespace can be made.
fn move_to(machine: Machine, user: u32, group: u32) -> io::Result<()> {
    if machine == Machine::BareAndHiding {
        hide_processes()?;
    }
    enter_user_namespace(user, group)?;
    let allowed = if machine == Machine::Full { "1" } else { "0" };
    fs::write("/proc/sys/user/max_user_namespaces", allowed)?;
    // The one user namespace that is allowed is made here. It has no limit of its own.
    if machine == Machine::Full { enter_user_namespace(user, group) } else { Ok(()) }
}

fn enter_user_namespace(user: u32, group: u32) -> io::Result<()> {
    // SAFETY: takes an integer.
    if unsafe { libc::unshare(libc::CLONE_NEWUSER) } == -1 {
        return Err(io::Error::last_os_error());
    }
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
    fs::write("/proc/self/gid_map", format!("{group} {group} 1"))
}

/// Mounts a table of processes upon that of the machine, for this process and its children.
fn hide_processes() -> io::Result<()> {
    let (none, proc) = (std::ptr::null(), c"proc".as_ptr());
    // SAFETY: takes strings with their ends, and integers.
    let results = unsafe {
        [
            libc::unshare(libc::CLONE_NEWNS),
            libc::mount(none, c"/".as_ptr(), none, libc::MS_PRIVATE | libc::MS_REC, std::ptr::null()),
            libc::mount(proc, c"/proc".as_ptr(), proc, 0, c"hidepid=2".as_ptr().cast()),
        ]
    };
    if results == [0; 3] { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A test that fails leaves nothing behind: the box ends with its outer process.
impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    /// Returns the id of the outer process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills the process group of the outer process.
    pub fn kill_group(&mut self) {
        // SAFETY: takes two integers.
        assert_eq!(unsafe { libc::kill(-i32::try_from(self.child.id()).unwrap(), libc::SIGKILL) }, 0);
        self.child.wait().unwrap();
    }

    /// Kills only the outer process.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Returns the output as it comes.
    pub fn output(&mut self) -> impl BufRead + use<> {
        BufReader::new(self.child.stdout.take().unwrap())
    }

    /// Writes to the program's input.
    pub fn tell(&mut self, input: &str) {
        self.child.stdin.as_mut().unwrap().write_all(input.as_bytes()).unwrap();
    }

    pub fn border(&self) -> &Border {
        self.border.as_ref().unwrap()
    }

    /// Ends the border, as the end of the gateway does.
    pub fn end_border(&mut self) {
        drop(self.border.take());
    }

    pub fn finish(mut self) -> Ran {
        drop(self.child.stdin.take());
        let (mut errors, mut output) = (self.child.stderr.take().unwrap(), Vec::new());
        let reading = std::thread::spawn(move || {
            let mut text = Vec::new();
            errors.read_to_end(&mut text).map(|_| text)
        });
        self.child.stdout.take().unwrap().read_to_end(&mut output).unwrap();
        let errors = String::from_utf8_lossy(&reading.join().unwrap().unwrap()).into_owned();
        let status = self.child.wait().unwrap().code();
        let output = String::from_utf8_lossy(&output).into_owned();
        let (report, output) = match output.split_once('\n').map(|(line, rest)| (serde_json::from_str(line), rest)) {
            Some((Ok(report), rest)) => (Some(report), rest.to_owned()),
            _ => (None, output),
        };
        let refused = self.refused.lock().unwrap().clone();
        Ran { report, output, errors, status, refused, id: self.child.id() }
    }
}
