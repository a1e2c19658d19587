//! Runs programs in boxes, and the machine around them.

use std::ffi::OsStr;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use hyperlight_mcp::boxes::{BoxInput, Disk, HOME, Order, Report, contents};
use hyperlight_mcp::config::{BoxBase, BoxSettings};

/// The variable with the folder of the programs, if they are not where they were built.
pub const PROGRAMS: &str = "HYPERLIGHT_MCP_TEST_PROGRAMS";
/// The program that makes boxes, and the one that tries to leave them.
pub static BOX: LazyLock<String> = LazyLock::new(|| placed(env!("CARGO_BIN_EXE_hyperlight-mcp-box")));
pub static ATTACKER: LazyLock<String> = LazyLock::new(|| placed(env!("CARGO_BIN_EXE_fixture-attacker")));
const PATIENCE: Duration = Duration::from_mins(1);
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

fn placed(built: &'static str) -> String {
    let name = Path::new(built).file_name().unwrap();
    std::env::var(PROGRAMS).map_or_else(|_| built.to_owned(), |folder| Path::new(&folder).join(name).display().to_string())
}

/// A folder of the machine with a user's home, the gateway's own folder and the private home of one server.
pub struct Scene {
    folder: tempfile::TempDir,
}

/// What a program did.
#[derive(Debug)]
pub struct Ran {
    pub report: Option<Report>,
    pub output: String,
    pub errors: String,
    pub status: Option<i32>,
}

/// Returns the name of the step that failed.
pub fn failed_step(ran: &Ran) -> Option<&str> {
    match &ran.report {
        Some(Report::Failed { step, .. }) => Some(step),
        _ => None,
    }
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
        let scene = Self { folder: tempfile::Builder::new().prefix("hyperlight-mcp-box-").tempdir().unwrap() };
        for name in ["user/.ssh", "state/boxes/own", "state/boxes/other"] {
            fs::create_dir_all(scene.path(name)).unwrap();
        }
        scene
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join(name)
    }

    pub fn folder(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(&path).unwrap();
        path
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
            read: Vec::new(),
            write: Vec::new(),
            fails_at: None,
        }
    }

    /// Gives these bytes to the program.
    pub fn raw(&self, bytes: &[u8]) -> Ran {
        assert!(self.home().is_dir());
        start(bytes).finish()
    }

    /// Tries these attempts in one box, and returns the lines that tell how they went.
    pub fn attack(&self, settings: &BoxSettings, attempts: &[(&str, String)]) -> Vec<String> {
        let mut command = self.command(&ATTACKER, &[]);
        command.settings = settings.clone();
        command.read = vec![self.folder("given/read")];
        command.write = vec![self.folder("given/write")];
        let lines: Vec<String> = attempts.iter().map(|(name, about)| format!("{name}\t{about}\n")).collect();
        let ran = command.run(&lines.concat());
        assert_eq!((&ran.report, ran.status), (&Some(Report::Ready), Some(0)), "{} {}", ran.output, ran.errors);
        ran.output.lines().map(str::to_owned).collect()
    }
}

/// A program that is about to run in a box.
pub struct Boxed<'a> {
    scene: &'a Scene,
    program: &'a str,
    arguments: Vec<String>,
    pub settings: BoxSettings,
    pub read: Vec<PathBuf>,
    pub write: Vec<PathBuf>,
    pub fails_at: Option<&'static str>,
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
            search_path: OsStr::new(PATH),
            read: self.read.clone(),
            write: self.write.clone(),
            roots: Vec::new(),
            user_home: &user_home,
            own_folders: &own_folders,
            private_home: &home,
        };
        let (contents, program) = contents(&input, &Disk).unwrap();
        let order = Order {
            contents,
            program,
            name: self.program.to_owned(),
            arguments: self.arguments.clone(),
            environment: [("PATH", PATH), ("HOME", HOME)].map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            working_directory: HOME.into(),
            fails_at: self.fails_at.map(str::to_owned),
        };
        order.bytes().unwrap()
    }

    pub fn run(&self, input: &str) -> Ran {
        self.run_bytes(input.as_bytes())
    }

    pub fn run_bytes(&self, input: &[u8]) -> Ran {
        start(&[&self.order(), input].concat()).finish()
    }

    /// Starts the program, and leaves its input open.
    pub fn start(&self, input: &str) -> Running {
        start(&[&self.order(), input.as_bytes()].concat())
    }
}

pub struct Running(Child);

fn start(input: &[u8]) -> Running {
    let mut child = Command::new(BOX.as_str())
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .unwrap();
    // A program that has refused its order reads no more of it.
    let _ = child.stdin.as_mut().unwrap().write_all(input);
    Running(child)
}

/// A test that fails leaves nothing behind: the box ends with its outer process.
impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    /// Kills the outer process alone.
    pub fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }

    fn finish(mut self) -> Ran {
        drop(self.0.stdin.take());
        let (mut errors, mut output) = (self.0.stderr.take().unwrap(), Vec::new());
        let reading = std::thread::spawn(move || {
            let mut text = Vec::new();
            errors.read_to_end(&mut text).map(|_| text)
        });
        self.0.stdout.take().unwrap().read_to_end(&mut output).unwrap();
        let errors = String::from_utf8_lossy(&reading.join().unwrap().unwrap()).into_owned();
        let status = self.0.wait().unwrap().code();
        let output = String::from_utf8_lossy(&output).into_owned();
        let (report, output) = match output.split_once('\n').map(|(line, rest)| (serde_json::from_str(line), rest)) {
            Some((Ok(report), rest)) => (Some(report), rest.to_owned()),
            _ => (None, output),
        };
        Ran { report, output, errors, status }
    }
}
