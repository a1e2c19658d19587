//! Files and folders of this program, and files that somebody names: opened so that nothing can hang it, read within a limit, checked for
//! who else may have written them, replaced as a whole. All of it blocks, for as long as a disk takes.

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
