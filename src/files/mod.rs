//! Accesses this program's own files and folders, and files that a user names. Opening a file never waits, and the number of bytes that are
//! read is limited. The owners and modes of this program's files are checked. A file is always replaced as a whole. All functions block the
//! calling thread during disk operations.

mod lock;
mod locked;
mod private;
mod projects;
mod read;
mod replace;
mod stamp;
mod target;
#[cfg(test)]
pub(crate) mod testing;
mod tree;

pub(crate) use lock::{lock_within, share_within, wait_for};
pub(crate) use locked::LockedFiles;
pub(crate) use private::{PrivateFolder, append_own, close_own, named_folder, open_own, private_folder, read_own};
pub(crate) use projects::{Followed, MAX_STEPS, Projects, follow};
pub(crate) use read::{Links, open_regular, read_bounded, read_open};
pub(crate) use replace::{Writing, create, replace, replace_kept, replace_with_mode};
pub(crate) use stamp::Stamp;
pub(crate) use target::{target_in_project, target_of_user};
pub(crate) use tree::{remove_tree, tree_size};
