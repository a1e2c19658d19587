//! Reads the config and its base layers, at the start and at each reload.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use parking_lot::Mutex;
use serde_json::Value as Json;

use super::Gateway;
use crate::config::{BaseFile, Config, Program, Surroundings, base_layer, config_paths, parse_object, parse_text};
use crate::error::{Error, Result};
use crate::files::{Links, Stamp, read_bounded};
use crate::limits::{LimitChanges, Limits};

/// The maximum size of a config file, in bytes.
const MAX_CONFIG_BYTES: u64 = 16 * 1024 * 1024;

/// A file, and its stamp when it was read. `None` if the file did not exist.
pub(super) type Version = (PathBuf, Option<Stamp>);

/// The source of the config.
pub(super) struct ConfigSource {
    content: ConfigContent,
    /// The limits that the gateway was given. They override the limits of the config.
    given: LimitChanges,
    /// The config's limits when the gateway was opened. They are used as long as the gateway is open.
    at_open: OnceLock<LimitChanges>,
    surroundings: Surroundings,
    /// The versions of the files that were read last, even if their content was not usable. The first is the config, if it is a file. The
    /// others are the files of its bases.
    last: Mutex<Vec<Version>>,
    /// The file versions about which a warning says that the gateway does not read them automatically.
    held: Mutex<Vec<Version>>,
}

pub(super) enum ConfigContent {
    Given(Json),
    File(PathBuf),
    /// The default file. If it does not exist, the config is empty.
    DefaultFile(PathBuf),
}

impl Gateway {
    /// Returns the configs of other programs from which this gateway has taken servers (`base`).
    pub(crate) fn base_files(&self) -> Vec<PathBuf> {
        let source = &self.core.source;
        source.last_read().into_iter().map(|(path, _)| path).filter(|path| Some(path.as_path()) != source.path()).collect()
    }
}

impl ConfigSource {
    pub(super) fn new(content: ConfigContent, given: LimitChanges, surroundings: Surroundings) -> Self {
        Self { content, given, at_open: OnceLock::new(), surroundings, last: Mutex::default(), held: Mutex::default() }
    }

    /// Returns the limits of a gateway with this config.
    pub(super) fn limits(&self, config: &Config) -> Result<Limits> {
        Limits::default().changed_by(&config.limits)?.changed_by(&self.given)
    }

    /// Returns the path of the config, if it is a file.
    pub(super) fn path(&self) -> Option<&Path> {
        match &self.content {
            ConfigContent::Given(_) => None,
            ConfigContent::File(path) | ConfigContent::DefaultFile(path) => Some(path),
        }
    }

    /// Returns the files of the last read, with the versions that were read.
    pub(super) fn last_read(&self) -> Vec<Version> {
        self.last.lock().clone()
    }

    /// Reads the present config and the files of its bases. A base that cannot be read only adds a warning.
    pub(super) fn read(&self) -> Result<Config> {
        // The version is taken before the file is read, so that a change during the read has another stamp.
        let own = self.path().map(version);
        self.note_own(own.clone());
        let mut config = self.read_own()?;
        if *self.at_open.get_or_init(|| config.limits.clone()) != config.limits {
            config.warnings.push("limits: these have changed, and apply from the next start".to_owned());
        }
        let folder = self.surroundings.workspace_folder.display().to_string();
        let mut versions: Vec<Version> = own.into_iter().collect();
        let mut inputs: Vec<String> = config.inputs.iter().map(|input| input.id.clone()).collect();
        for program in config.base.clone() {
            let paths = self.paths_of(program);
            versions.extend(paths.iter().map(|path| version(path)));
            let files: Vec<_> = paths.iter().map(|path| base_file(path)).collect();
            let mut layer = base_layer(program, &files, &folder, &inputs);
            inputs.extend(layer.inputs.iter().map(|input| input.id.clone()));
            config.warnings.append(&mut layer.warnings);
            config.bases.push(layer);
        }
        *self.last.lock() = versions;
        Ok(config)
    }

    /// Records that the present versions of the files are not read automatically. Returns whether these versions were not recorded before.
    pub(super) fn note_held(&self) -> bool {
        let mut held = self.held.lock();
        let now = present(&self.last_read());
        let is_new = *held != now;
        *held = now;
        is_new
    }

    /// Records the version of the config's own file. The versions of the base files stay, so that they are watched even while the config is
    /// not usable.
    fn note_own(&self, own: Option<Version>) {
        let Some(own) = own else { return };
        let mut last = self.last.lock();
        match last.first_mut() {
            Some(first) => *first = own,
            None => last.push(own),
        }
    }

    fn paths_of(&self, program: Program) -> Vec<PathBuf> {
        let Surroundings { environment, workspace_folder, .. } = &self.surroundings;
        config_paths(&[program], environment, workspace_folder).into_iter().map(|(_, path)| path).collect()
    }

    fn read_own(&self) -> Result<Config> {
        let path = match &self.content {
            ConfigContent::Given(config) => return parse_object(config, "config", self.given.max_servers),
            ConfigContent::File(path) | ConfigContent::DefaultFile(path) => path,
        };
        let unreadable = |problem: String| Error::ConfigUnreadable { path: path.clone().into(), problem: problem.into() };
        match read_bounded(path, Links::Follow, MAX_CONFIG_BYTES).map(String::from_utf8) {
            Ok(Err(_)) => Err(unreadable("it is not text in UTF-8".to_owned())),
            Ok(Ok(text)) => parse_text(&text, &path.display().to_string(), self.given.max_servers),
            Err(error) if error.kind() == ErrorKind::NotFound && matches!(self.content, ConfigContent::DefaultFile(_)) => {
                Ok(Config::default())
            }
            Err(error) => Err(unreadable(error.to_string())),
        }
    }
}

fn version(path: &Path) -> Version {
    (path.to_owned(), Stamp::of(path))
}

/// Returns the present versions of files.
pub(super) fn present(files: &[Version]) -> Vec<Version> {
    files.iter().map(|(path, _)| version(path)).collect()
}

/// Reads a config file of another program that the config's key `base` names. Accepts only a regular file, because the program, and not
/// the user, determines the path.
fn base_file(path: &Path) -> BaseFile {
    let content = match read_bounded(path, Links::Follow, MAX_CONFIG_BYTES) {
        Ok(bytes) => String::from_utf8(bytes).map(Some).map_err(|_| "it is not text (UTF-8)".to_owned()),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(error.to_string()),
    };
    BaseFile { path: path.display().to_string(), content }
}
