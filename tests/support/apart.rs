//! Tests in a process of their own, whose memory is theirs alone.

use std::process::Command;

/// Set where the test itself is to be run.
const MARK: &str = "HYPERLIGHT_MCP_TEST_APART";
/// Memory that a hostile server may cost.
const MOST_GROWTH_KB: u64 = 64 * 1024;

/// Runs a test's body in a process of its own. The test is the function in which the body is written.
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

/// The path of the test that a closure stands in: `module::test`, without the program's name.
fn test_of<T>(_: &T) -> String {
    let path: Vec<_> = std::any::type_name::<T>().split("::").skip(1).take_while(|part| !part.starts_with('{')).collect();
    path.join("::")
}

/// This process's memory before something happens.
pub struct Memory {
    before_kb: u64,
}

impl Memory {
    pub fn now() -> Self {
        Self { before_kb: status_kb("VmRSS") }
    }

    /// How far the highest level so far, since the process began, is above that.
    pub fn growth_kb(&self) -> u64 {
        status_kb("VmHWM").saturating_sub(self.before_kb)
    }

    /// Fails where it grew by more than a hostile server may cost.
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
