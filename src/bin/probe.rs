//! Boots a guest, and prints the result as JSON to standard output. The exit code is 0 if the guest booted, and 3 if it did not.
//!
//! `hyperlight-probe [--guest auto|standard|ring3]`

use std::process::ExitCode;
use std::sync::Arc;

use hyperlight_mcp::Limits;
use hyperlight_mcp::redact::Redactor;
use hyperlight_mcp::sandbox::{GuestChoice, Sandboxes};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let choice = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] | ["--guest", "auto"] => GuestChoice::Auto,
        ["--guest", "standard"] => GuestChoice::Standard,
        ["--guest", "ring3"] => GuestChoice::Ring3,
        _ => {
            eprintln!("usage: hyperlight-probe [--guest auto|standard|ring3]");
            return ExitCode::from(2);
        }
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("hyperlight-probe: {error}");
            return ExitCode::from(2);
        }
    };
    let report = Sandboxes::new(choice, Arc::new(Limits::default()), runtime.handle().clone(), "hyperlight-mcp-reader")
        .report(&Redactor::new(None, None));
    match serde_json::to_string(&report) {
        Ok(json) => println!("{json}"),
        Err(error) => eprintln!("hyperlight-probe: {error}"),
    }
    if report.available { ExitCode::SUCCESS } else { ExitCode::from(3) }
}
