//! Audits manifests for `scripts/eval-audit`: reads one JSON object a line, `{ manifest, others }`, and writes the findings of each as one line.

use std::io::{self, BufRead as _, BufWriter, Write as _};

use hyperlight_mcp::catalog::Manifest;
use hyperlight_mcp::trust::audit_manifest_among;
use serde::Deserialize;

/// A manifest, and those of the servers among which it is used.
#[derive(Deserialize)]
struct Case {
    manifest: Manifest,
    others: Vec<Manifest>,
}

fn main() -> io::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    for line in io::stdin().lock().lines() {
        let case: Case = serde_json::from_str(&line?)?;
        let others: Vec<_> = case.others.iter().map(|other| (other.server_name.as_str(), other)).collect();
        serde_json::to_writer(&mut out, &audit_manifest_among(&case.manifest, &others))?;
        out.write_all(b"\n")?;
    }
    out.flush()
}
