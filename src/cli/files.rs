//! Reads and writes files whose paths a person gives.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::error::{CliError, FILE};
use crate::files::{Links, Writing, read_bounded, replace_with_mode};
use crate::sandbox::Stop;

/// Maximum size of a script, an input or a config, in bytes.
const MAX_BYTES: u64 = 64 * 1024 * 1024;
/// Maximum number of symbolic links that are followed. Linux has the same limit.
const MAX_LINKS: usize = 40;

/// Reads a text from a file or, for `-`, from standard input.
pub(super) fn read(path: &Path) -> Result<String, CliError> {
    let (name, mut bytes) = (path.display(), Vec::new());
    let read = if path == Path::new("-") {
        io::stdin().lock().take(MAX_BYTES + 1).read_to_end(&mut bytes)
    } else {
        File::open(path).and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes))
    };
    match read {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(CliError::Message(FILE, format!("there is no file {name}"))),
        Err(error) => Err(CliError::Message(FILE, format!("{name} cannot be read: {error}"))),
        Ok(_) if bytes.len() as u64 > MAX_BYTES => {
            Err(CliError::Message(FILE, format!("{name} is too large: the limit is {MAX_BYTES} bytes")))
        }
        Ok(_) => String::from_utf8(bytes).map_err(|_| CliError::Message(FILE, format!("{name} is not text (UTF-8)"))),
    }
}

/// Reads a config of hyperlight-mcp or of another program. Accepts only a regular file: no person has given the path, so it could lead to a
/// pipe or a device. Returns `None` if there is no file.
///
/// # Errors
/// A sentence that describes the problem, without the name of the file.
pub(super) fn read_config(path: &Path) -> Result<Option<String>, String> {
    match read_bounded(path, Links::Follow, MAX_BYTES) {
        Ok(bytes) => String::from_utf8(bytes).map(Some).map_err(|_| "it is not text (UTF-8)".to_owned()),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

/// Reads a script or an input, like [`read`]. Stops waiting when the program is interrupted, because a pipe without a writer never ends.
pub(super) async fn read_until(path: &Path, stop: &Stop) -> Result<String, CliError> {
    let (sender, text) = tokio::sync::oneshot::channel();
    let owned = path.to_owned();
    let read = move || {
        let _ = sender.send(read(&owned));
    };
    // A separate thread is used, because the runtime would wait for a blocked thread of its pool before it ends.
    let started = std::thread::Builder::new().name("mcp-read".to_owned()).spawn(read);
    started.map_err(|error| CliError::Message(FILE, format!("{} cannot be read: {error}", path.display())))?;
    tokio::select! {
        biased;
        () = stop.stopped() => Err(CliError::Interrupted),
        read = text => read.unwrap_or(Err(CliError::Interrupted)),
    }
}

/// Replaces a regular file completely or not at all, or creates a new one. Writes directly to a pipe or a device. An existing file keeps
/// its permissions; a new file gets `mode`.
pub(super) fn write(path: &Path, text: &str, mode: u32) -> Result<(), CliError> {
    write_with(path, text, |before| before.unwrap_or(mode))
}

/// Writes a file like [`write`]. Afterwards, only this user may read the file.
pub(super) fn write_private(path: &Path, text: &str) -> Result<(), CliError> {
    write_with(path, text, |_| 0o600)
}

/// Writes a file. `mode` gets the mode of the replaced file, if there is one, and returns the mode of the new file.
fn write_with(path: &Path, text: &str, mode: impl FnOnce(Option<u32>) -> u32) -> Result<(), CliError> {
    let failed = |error: io::Error| CliError::Message(FILE, format!("{} cannot be written: {error}", path.display()));
    // Symbolic links are resolved first, so that the link itself is not replaced.
    let target = target_of(path).map_err(failed)?;
    let there = fs::metadata(&target).ok();
    if there.as_ref().is_some_and(|there| !there.is_file()) {
        // The original path is opened, because `/dev/stdout` can lead to a pipe that has no path.
        return File::options().write(true).open(path).and_then(|mut file| file.write_all(text.as_bytes())).map_err(failed);
    }
    let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(folder).map_err(failed)?;
    let mode = mode(there.map(|file| file.permissions().mode() & 0o7777));
    replace_with_mode(&target, text.as_bytes(), mode, Writing::Durable).map_err(failed)
}

/// Writes a file whose path the person did not give. Replaces only a regular file, because the author of a project could have placed a link
/// or a pipe with this name in it.
pub(super) fn write_in_project(path: &Path, text: &str, mode: u32) -> Result<(), CliError> {
    match fs::symlink_metadata(path) {
        Ok(there) if !there.is_file() => {
            let (name, kind) = (path.display(), if there.is_symlink() { "a symbolic link" } else { "not a regular file" });
            Err(CliError::Message(
                FILE,
                format!("{name} is {kind}, so it was not replaced: remove it, or name another output file with --out"),
            ))
        }
        Ok(_) | Err(_) => write(path, text, mode),
    }
}

/// Resolves the symbolic links of a path, even if their target does not exist yet.
fn target_of(path: &Path) -> io::Result<PathBuf> {
    let mut target = path.to_owned();
    for _ in 0..MAX_LINKS {
        // The kernel resolves links such as `/proc/self/fd/1` in its own way, and their targets have no path.
        if fs::metadata(&target).is_ok_and(|there| !there.is_file()) {
            return Ok(target);
        }
        match fs::read_link(&target) {
            Ok(next) => target = target.parent().unwrap_or(Path::new("")).join(next),
            Err(_) => return Ok(target),
        }
    }
    Err(io::Error::other("its symbolic links form a loop"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileTypeExt as _, symlink};

    use super::*;

    #[test]
    fn a_link_stays_one_also_where_it_leads_to_nothing_yet() {
        let folder = tempfile::tempdir().unwrap();
        let (link, other, target) = (folder.path().join("link"), folder.path().join("other"), folder.path().join("target"));
        symlink("other", &link).unwrap();
        symlink(&target, &other).unwrap();
        for text in ["new", "again"] {
            write(&link, text, 0o600).unwrap();
            assert_eq!(fs::read_to_string(&target).unwrap(), text);
            assert!(link.is_symlink() && other.is_symlink() && !target.is_symlink());
        }
        assert_eq!(fs::metadata(&target).unwrap().permissions().mode() & 0o777, 0o600);
        symlink("round", folder.path().join("round")).unwrap();
        assert!(matches!(write(&folder.path().join("round"), "x", 0o600), Err(CliError::Message(FILE, text)) if text.contains("loop")));
    }

    #[test]
    fn a_link_of_a_name_that_nobody_gave_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (link, target) = (folder.path().join("x.d.ts"), folder.path().join("target"));
        fs::write(&target, "precious").unwrap();
        symlink(&target, &link).unwrap();
        let refused = write_in_project(&link, "new", 0o644);
        assert!(matches!(refused, Err(CliError::Message(FILE, text)) if text.contains("--out")));
        assert_eq!(fs::read_to_string(&target).unwrap(), "precious");
        fs::remove_file(&link).unwrap();
        for text in ["new", "again"] {
            write_in_project(&link, text, 0o644).unwrap();
            assert_eq!(fs::read_to_string(&link).unwrap(), text);
        }
    }

    #[test]
    fn a_private_file_is_the_users_alone_also_where_another_stood() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        write(&path, "old", 0o644).unwrap();
        write_private(&path, "new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_pipe_is_written_to_and_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::from_raw_mode(0o600), 0).unwrap();
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || fs::read_to_string(pipe).unwrap()
        });
        write(&pipe, "text", 0o600).unwrap();
        assert_eq!(reader.join().unwrap(), "text");
        assert!(fs::symlink_metadata(&pipe).unwrap().file_type().is_fifo());
        write(Path::new("/dev/null"), "text", 0o600).unwrap();
    }
}
