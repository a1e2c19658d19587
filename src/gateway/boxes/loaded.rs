//! The files from which this process runs.

use std::path::PathBuf;

/// The ranges of this process's memory, each with the file from which it was mapped (proc(5)).
const MAPS: &str = "/proc/self/maps";

/// Returns the program of this process, such as Node, and the file that contains this code. In Node, that file is the addon, which a
/// bundler may have moved to any place.
pub(super) fn loaded_files() -> Vec<PathBuf> {
    let own_code = loaded_files as fn() -> Vec<PathBuf> as usize;
    let addon = std::fs::read_to_string(MAPS).ok().and_then(|maps| file_at(&maps, own_code));
    std::env::current_exe().into_iter().chain(addon).collect()
}

/// Returns the file from which the memory at an address was mapped.
fn file_at(maps: &str, address: usize) -> Option<PathBuf> {
    let hex = |text: &str| usize::from_str_radix(text, 16).ok();
    maps.lines().find_map(|line| {
        let (first, end) = line.split_once(' ')?.0.split_once('-')?;
        let is_there = (hex(first)?..hex(end)?).contains(&address);
        // The first slash of a line begins the path: the fields before it are numbers and rights.
        is_there.then(|| line.find('/').map(|start| PathBuf::from(&line[start..])))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_an_address_is_found() {
        let maps =
            "1000-2000 r-xp 00000000 08:01 7    /a b/x.node\n2000-3000 rw-p 00000000 00:00 0 \n3000-4000 r-xp 00000000 08:01 8    /c\n";
        assert_eq!(file_at(maps, 0x1fff), Some("/a b/x.node".into()));
        assert_eq!(file_at(maps, 0x2000), None);
        assert_eq!(file_at(maps, 0x3000), Some("/c".into()));
    }

    #[test]
    fn the_program_that_has_this_code_is_found() {
        let own = std::env::current_exe().unwrap();
        assert_eq!(loaded_files(), [own.clone(), own]);
    }
}
