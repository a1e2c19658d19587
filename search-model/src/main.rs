//! Turns texts into vectors with the sentence model in this program's folder, for the search of hyperlight-mcp.
//!
//! The program first writes `{"model":"…","dimensions":384}`. Then it answers each line `{"id":1,"text":"…"}` on standard input with a line
//! `{"id":1,"vector":[…]}` on standard output, in order. A vector has one whole number from -127 to 127 for each dimension; only its direction
//! has a meaning. The vector of a text that cannot be read is empty. At the end of its input the program ends.
//!
//! The texts come from MCP servers and from models. So before the program reads the first of them, it gives up what it no longer needs: it can
//! open no further file or connection, and use only a limited amount of memory.

mod model;

use std::error::Error;
use std::io::{self, BufRead as _, Read as _, Write as _};
use std::panic::{self, AssertUnwindSafe};

use rustix::process::{Resource, Rlimit, setrlimit};
use serde::{Deserialize, Serialize};

use model::Model;

/// The name of the model. The gateway accepts no other, as its constants were measured with this one.
const NAME: &str = "all-MiniLM-L6-v2-int8";
/// The longest line that is read. The gateway sends at most some kilobytes.
const MAX_LINE_BYTES: u64 = 64 * 1024;
/// The limit of the process's address space. The model needs about 250 MB of it.
const MAX_ADDRESS_SPACE: u64 = 1 << 30;
/// The number of open files: standard input, output and error.
const OPEN_FILES: u64 = 3;

#[derive(Serialize)]
struct Hello {
    model: &'static str,
    dimensions: usize,
}

#[derive(Deserialize)]
struct Question {
    id: u64,
    text: String,
}

#[derive(Serialize)]
struct Answer {
    id: u64,
    vector: Vec<i8>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let program = std::env::current_exe()?;
    let model = Model::load(program.parent().ok_or("the program has no folder")?)?;
    give_up_rights()?;
    write_line(&Hello { model: NAME, dimensions: model::DIMENSIONS })?;
    let mut input = io::stdin().lock();
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = input.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line)?;
        if read == 0 {
            return Ok(());
        }
        let Question { id, text } = serde_json::from_slice(&line)?;
        // Texts may be hostile, so neither an error nor a panic for one of them ends the program.
        let vector = panic::catch_unwind(AssertUnwindSafe(|| model.vector(&text).unwrap_or_default()));
        write_line(&Answer { id, vector: vector.unwrap_or_default() })?;
    }
}

/// Gives up the rights to open files and connections, to write files, and to use much memory. The limits cannot be raised again, except by root.
fn give_up_rights() -> io::Result<()> {
    for (resource, limit) in [
        (Resource::As, MAX_ADDRESS_SPACE),
        (Resource::Core, 0),
        (Resource::Fsize, 0),
        // Without a free descriptor, the kernel refuses each socket, file and pipe.
        (Resource::Nofile, OPEN_FILES),
    ] {
        setrlimit(resource, Rlimit { current: Some(limit), maximum: Some(limit) })?;
    }
    Ok(())
}

fn write_line(value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    let mut output = io::stdout().lock();
    output.write_all(&line)?;
    output.flush()
}
