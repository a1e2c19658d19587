//! The folders of the user, as variables name them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Returns the folder that a variable names. A variable that is empty or has a relative path counts as missing, as in the XDG Base
/// Directory Specification: the folder in which a program is started must not decide which files are the user's own.
pub(crate) fn folder_of_variable(environment: &BTreeMap<String, String>, name: &str) -> Option<PathBuf> {
    environment.get(name).map(PathBuf::from).filter(|path| path.is_absolute())
}

/// Returns the home of the user (`HOME`), or the root folder if there is none.
pub(crate) fn user_home(environment: &BTreeMap<String, String>) -> PathBuf {
    folder_of_variable(environment, "HOME").unwrap_or_else(|| Path::new("/").to_owned())
}

/// Returns the folder for settings of programs (`XDG_CONFIG_HOME`).
pub(crate) fn settings_folder(environment: &BTreeMap<String, String>) -> PathBuf {
    folder_of_variable(environment, "XDG_CONFIG_HOME").unwrap_or_else(|| user_home(environment).join(".config"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_in_which_a_program_starts_is_never_the_home_of_the_user() {
        for (home, expected) in [("/home/ada", "/home/ada"), ("", "/"), (".", "/"), ("project", "/")] {
            let environment = [("HOME".to_owned(), home.to_owned()), ("XDG_CONFIG_HOME".to_owned(), "settings".to_owned())].into();
            assert_eq!(user_home(&environment), Path::new(expected));
            assert_eq!(settings_folder(&environment), Path::new(expected).join(".config"));
        }
        assert_eq!(user_home(&BTreeMap::new()), Path::new("/"));
    }
}
