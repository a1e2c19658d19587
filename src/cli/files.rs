//! Files that a person names.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::fault::Fault;

/// No script, input or config is larger.
const MAX_BYTES: u64 = 64 * 1024 * 1024;

/// A text, from a file or, for `-`, from standard input.
pub(super) fn read(path: &Path) -> Result<String, Fault> {
    let (name, mut bytes) = (path.display(), Vec::new());
    let read = if path == Path::new("-") {
        io::stdin().lock().take(MAX_BYTES + 1).read_to_end(&mut bytes)
    } else {
        File::open(path).and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes))
    };
    match read {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Fault::Message(format!("there is no file {name}"))),
        Err(error) => Err(Fault::Message(format!("{name} cannot be read: {error}"))),
        Ok(_) if bytes.len() as u64 > MAX_BYTES => Err(Fault::Message(format!("{name} has more than {MAX_BYTES} bytes"))),
        Ok(_) => String::from_utf8(bytes).map_err(|_| Fault::Message(format!("{name} is no text (UTF-8)"))),
    }
}

/// Writes a file whole or not at all. One that was there keeps its permissions; a new one has `mode`.
pub(super) fn write(path: &Path, text: &str, mode: u32) -> Result<(), Fault> {
    let failed = |error: io::Error| Fault::Message(format!("{} cannot be written: {error}", path.display()));
    // Through a link, so that the link stays one.
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(folder).map_err(failed)?;
    let mode = fs::metadata(&target).map_or(mode, |file| file.permissions().mode() & 0o7777);
    let mut file = tempfile::Builder::new().permissions(fs::Permissions::from_mode(mode)).tempfile_in(folder).map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)?;
    file.persist(&target).map(drop).map_err(|error| failed(error.error))
}
