//! Access to this program's own files and folders, and to files that a user names. Opening never hangs, reads are bounded, owners and modes
//! are checked, and files are replaced as a whole. All functions block for as long as the disk takes.

mod lock;
mod private;
mod read;
mod replace;
#[cfg(test)]
pub(crate) mod testing;

pub(crate) use lock::{lock_within, wait_for};
pub(crate) use private::{PrivateFolder, append_own, open_own, private_folder, read_own};
pub(crate) use read::{Links, open_regular, read_bounded, read_open};
pub(crate) use replace::{Writing, create, replace, replace_with_mode};
