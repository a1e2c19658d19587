//! Runs tests in separate processes, so that their use of memory can be measured.

use std::process::Command;

/// The variable that is set in the process that runs the test itself.
const MARK: &str = "HYPERLIGHT_MCP_TEST_APART";
/// The memory that a hostile server may use in addition.
const MOST_GROWTH_KB: u64 = 64 * 1024;

/// Runs a test's body in a separate process. The test is the function that contains the body.
pub fn apart<B: Future<Output = ()>>(body: impl FnOnce() -> B) {
    let name = test_of(&body);
    if std::env::var_os(MARK).is_some() {
        tokio::runtime::Runtime::new().unwrap().block_on(body());
        return;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &name, "--nocapture"]).env(MARK, "1");
    let output = command.output().unwrap();
    let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(output.status.success() && said.contains("1 passed"), "{name}: {said}");
}

/// Returns the path of the test that contains a closure: `module::test`, without the program's name.
fn test_of<T>(_: &T) -> String {
    let path: Vec<_> = std::any::type_name::<T>().split("::").skip(1).take_while(|part| !part.starts_with('{')).collect();
    path.join("::")
}

/// The memory of this process at one moment.
pub struct Memory {
    before_kb: u64,
}

impl Memory {
    pub fn now() -> Self {
        Self { before_kb: status_kb("VmRSS") }
    }

    /// Returns the difference between the highest use of memory since the process began and that moment.
    pub fn growth_kb(&self) -> u64 {
        status_kb("VmHWM").saturating_sub(self.before_kb)
    }

    /// Fails if the memory has grown by more than a hostile server may use.
    pub fn assert_level(&self, what: &str) {
        let grown = self.growth_kb();
        eprintln!("{what}: at most {grown} KiB more");
        assert!(grown <= MOST_GROWTH_KB, "{what}: {grown} KiB more");
    }
}

fn status_kb(key: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    line.unwrap().trim().trim_end_matches(" kB").parse().unwrap()
}
