//! Measures the store with the approvals of 10,000 servers: reading what has not changed, and what another process has changed.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyperlight_mcp::store::{Kind, Rows, Store};

const SERVERS: usize = 10_000;
/// About the size of an approval with 20 tools.
const ROW_BYTES: usize = 4_000;
const ROUNDS: usize = 15;

fn main() -> hyperlight_mcp::Result<()> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let open = || Store::open(folder.path(), Arc::new(|problem| eprintln!("{problem}")));
    let (here, there) = (open()?, open()?);
    there.change(Kind::Approval, |rows| {
        rows.extend((0..SERVERS).map(|server| (format!("server-{server}"), Arc::from(vec![b'x'; ROW_BYTES]))));
        Ok(())
    })?;
    row("all rows: first reading", || open()?.rows(Kind::Approval))?;
    here.rows(Kind::Approval)?;
    row("all rows, unchanged", || here.rows(Kind::Approval))?;
    let mut rounds = 0_u64;
    let mut touch = |kind: Kind| {
        rounds += 1;
        let body = Arc::from(rounds.to_string().as_bytes());
        there.change(kind, |rows: &mut Rows| Ok(rows.insert("server-7".to_owned(), body).is_some()))
    };
    let mut timed = |name: &str, kind: Kind| {
        let mut times = Vec::new();
        let mut changes = Vec::new();
        for _ in 0..ROUNDS {
            let started = Instant::now();
            touch(kind)?;
            changes.push(started.elapsed());
            let started = Instant::now();
            black_box(here.rows(Kind::Approval)?);
            times.push(started.elapsed());
        }
        print(&format!("{name}: the change"), &mut changes);
        print(&format!("{name}: reading it elsewhere"), &mut times);
        Ok(())
    };
    timed("one row of 10,000 changed", Kind::Approval)?;
    timed("a row of another kind changed", Kind::Grant)
}

fn row<T>(name: &str, work: impl Fn() -> hyperlight_mcp::Result<T>) -> hyperlight_mcp::Result<()> {
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        let started = Instant::now();
        black_box(work()?);
        times.push(started.elapsed());
    }
    print(name, &mut times);
    Ok(())
}

fn print(name: &str, times: &mut [Duration]) {
    times.sort();
    println!("{name}: {:?}, at best {:?}", times[times.len() / 2], times[0]);
}
