//! Optional globals of agent code. A run has only those optional globals that its [`GuestFeatures`] name. Runs with different features
//! start from different images. So a run without features has no cost for the optional globals.

use std::sync::LazyLock;

/// The globals that a run's guest has in addition to the globals of every run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum GuestFeatures {
    /// No additional globals.
    #[default]
    Basic,
    /// `fetch`, and the classes that belong to it.
    Fetch,
}

/// The name of the module that defines the globals for fetch. It runs before the snapshot is taken.
const FETCH_GLOBALS: &str = "agent:fetch-globals";

/// The files that define the globals for fetch. Each file comes after the files that it needs.
const FETCH_PARTS: [&str; 12] = [
    include_str!("fetch_globals/tools.js"),
    include_str!("fetch_globals/streams.js"),
    include_str!("fetch_globals/stream_classes.js"),
    include_str!("fetch_globals/mime.js"),
    include_str!("fetch_globals/blob.js"),
    include_str!("fetch_globals/form_data.js"),
    include_str!("fetch_globals/headers.js"),
    include_str!("fetch_globals/body.js"),
    include_str!("fetch_globals/request.js"),
    include_str!("fetch_globals/response.js"),
    include_str!("fetch_globals/data_url.js"),
    include_str!("fetch_globals/fetch.js"),
];

/// The source of [`FETCH_GLOBALS`]. Each file is one expression: a function that receives the objects that earlier files have made.
static FETCH_SOURCE: LazyLock<String> = LazyLock::new(|| {
    let parts = FETCH_PARTS.map(|part| format!("{{ const part =\n{part}\npart(web); }}\n"));
    format!("const web = {{}};\n{}export const handler = () => 0;\n", parts.concat())
});

impl GuestFeatures {
    /// All combinations of features. Each has its own image.
    pub(super) const ALL: [Self; 2] = [Self::Basic, Self::Fetch];

    /// Returns the name and the source of the module that defines the globals of these features. The module runs once, at the guest's boot.
    pub(super) fn globals(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Basic => None,
            Self::Fetch => Some((FETCH_GLOBALS, &FETCH_SOURCE)),
        }
    }

    /// Returns the source of a module that defines globals, by its name.
    pub(super) fn source(module: &str) -> Option<&'static str> {
        Self::ALL.into_iter().filter_map(Self::globals).find(|(name, _)| *name == module).map(|(_, source)| source)
    }
}
