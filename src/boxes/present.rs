//! Describes, for the person who approves a box, what this box has on this machine now in addition to what its settings name.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::changes::{made_sentences, sentences_of_box, servers_in};
use super::contents::{BoxInput, Decided, Examined, examine};
use super::kept::planting;
use super::order::{Access, Given, Link};
use super::other_names::other_names_sentence;
use super::own_files::makeable;
use super::paths::Lookup;
use super::sentences::{SHARED, may_write};
use super::services::sockets_sentences;
use super::shown::{is_plain, shown_path};

/// The files, sockets and changeable paths that a box has on this machine at the moment of an approval request.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Present {
    pub sentences: Vec<String>,
    /// The reason why the box cannot be made now. It is among the sentences too.
    pub refusal: Option<String>,
    /// The missing programs of other servers that the box could make. They are among the sentences too.
    pub makes: Vec<String>,
    /// The other servers that the sentences name or count, written as in the sentences.
    pub servers: Vec<String>,
    /// The paths that the box may write, and those in its arguments that do not exist yet.
    pub writes: Vec<String>,
}

/// Returns sentences about what the box has on this machine in addition to what the config names: the folders of the program, its runtime
/// and its packages, the sockets in given paths, and what the box can change that runs outside of it. There are such sentences even for a
/// box that cannot be made now, because it may be made later.
pub fn present(request: &BoxInput<'_>, lookup: &impl Lookup) -> Present {
    let Examined { decided: Decided { contents, places, changes, program: _ }, writes, refused } = examine(request, lookup);
    let refusal = refused.into_iter().next();
    let given: Vec<&Given> = contents.given.iter().filter(|given| given.link == Link::Refused).collect();
    let named = request.arguments.iter().map(PathBuf::from).chain(request.read.iter().cloned()).chain(request.roots.iter().cloned());
    let named: Vec<PathBuf> = named.map(|path| request.working_directory.map_or(path.clone(), |folder| folder.join(path))).collect();
    let is_place = |path: &PathBuf| [&places.runtime, &places.packages, &places.files].iter().any(|places| places.contains(path));
    let is_own = |given: &&&Given| given.access == Access::Read && is_place(&given.path) && !named.contains(&given.path);
    let own = grouped(given.iter().filter(is_own).map(|given| given.path.as_path()));
    let of_program = (!own.is_empty()).then(|| format!("its program, runtime and package are in {}", own.join(", ")));
    let paths = given.iter().map(|given| (given.path.clone(), given.access)).collect();
    let own_files = makeable(request.own_files, &paths, lookup);
    let mounted: Vec<PathBuf> = lookup.mounts().into_iter().map(|mount| mount.point).collect();
    let sockets = sockets_sentences(given.iter().map(|given| given.path.as_path()), &mounted);
    let written: Vec<&Path> = given.iter().filter(|given| given.access == Access::Write).map(|given| given.path.as_path()).collect();
    // A folder can have the name of a program. Then the entry alone does not show that the box may write this folder.
    let is_unsaid = !written.is_empty() && !may_write(request.settings, request.arguments, !request.roots.is_empty());
    let shared = is_unsaid.then(|| SHARED.to_owned());
    let planted = written.iter().filter_map(|path| planting(path, &paths, lookup)).chain(other_names_sentence(&paths, lookup));
    let outside = sentences_of_box(&changes.of_servers, request.is_always_named).into_iter().chain(made_sentences(&changes)).chain(planted);
    let of_refusal = refusal.as_ref().map(|reason| format!("this box cannot be made now: {reason}"));
    let sentences = of_refusal.into_iter().chain(of_program).chain(sockets).chain(own_files).chain(shared).chain(outside).collect();
    // Rows of the store are JSON, so a path that is not Unicode is left out.
    let text = |path: &PathBuf| path.to_str().map(str::to_owned);
    Present {
        sentences,
        refusal,
        makes: changes.makes().filter_map(text).collect(),
        servers: servers_in(&changes.of_servers),
        writes: writes.iter().filter_map(text).collect(),
    }
}

/// Returns paths as texts. Paths in the same folder share one text: `/a/{bin, lib}`. A path within another path is left out.
fn grouped<'p>(paths: impl Iterator<Item = &'p Path>) -> Vec<String> {
    let all: BTreeSet<&Path> = paths.collect();
    let mut by_folder: BTreeMap<&Path, Vec<String>> = BTreeMap::new();
    for path in all.iter().filter(|path| !path.ancestors().skip(1).any(|above| all.contains(above))) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        by_folder.entry(path.parent().unwrap_or(Path::new("/"))).or_default().push(name);
    }
    let text = |(folder, names): (&Path, Vec<String>)| {
        let paths: Vec<PathBuf> = names.iter().map(|name| folder.join(name)).collect();
        if paths.len() > 1 && paths.iter().all(|path| is_plain(path)) {
            return vec![folder.join(format!("{{{}}}", names.join(", "))).display().to_string()];
        }
        paths.iter().map(|path| shown_path(path)).collect()
    };
    by_folder.into_iter().flat_map(text).collect()
}
