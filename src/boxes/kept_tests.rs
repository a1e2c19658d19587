use std::collections::BTreeMap;

use super::*;
use crate::boxes::changes::{made_sentences, sentences_of_box};
use crate::boxes::{Entry, Identity, Kind, Mount};

/// A machine with these files and links.
struct Files(BTreeMap<&'static str, &'static str>);

impl Lookup for Files {
    fn real(&self, path: &Path) -> Option<PathBuf> {
        self.kind(path).map(|_| path.to_owned())
    }

    fn link(&self, path: &Path) -> Option<PathBuf> {
        self.0.get(path.to_str()?).filter(|target| !target.is_empty()).map(PathBuf::from)
    }

    fn kind(&self, path: &Path) -> Option<Kind> {
        self.0.keys().any(|file| Path::new(file).starts_with(path)).then_some(Kind::File)
    }

    fn interpreter(&self, _path: &Path) -> Option<Vec<String>> {
        None
    }

    fn is_program(&self, _path: &Path) -> bool {
        false
    }

    fn identity(&self, _path: &Path) -> Option<Identity> {
        None
    }

    fn entries(&self, _folder: &Path, _most: usize) -> Option<Vec<Entry>> {
        Some(Vec::new())
    }

    fn is_unknown(&self, _path: &Path) -> bool {
        false
    }

    fn is_shared(&self, _path: &Path) -> bool {
        false
    }

    fn mounts(&self) -> Vec<Mount> {
        Vec::new()
    }
}

fn no_mounts(files: &Files) -> OtherMounts {
    OtherMounts::of([].into_iter(), files)
}

/// Boxes may write programs that nobody has approved, so the request says that the box can write them.
#[test]
fn a_program_that_is_not_kept_yet_can_be_written_and_is_named() {
    let files = Files([("/ws/b/package.json", ""), ("/ws/b/server.mjs", "")].into());
    let kept = ["/ws/b", "/ws/b/server.mjs", "/ws/later", "/opt/x"].map(|path| Kept { path: path.into(), owner: Owner::Runs("b".into()) });
    let mut paths = BTreeMap::from([("/ws".into(), Access::Write)]);
    let changes = kept_in(&kept, &mut paths, &files).unwrap();
    assert_eq!(paths.len(), 1, "nothing is read-only");
    let said = ["can change /ws/b, and so can change what the server \"b\" runs", "can make /ws/later, which the server \"b\" runs"];
    assert_eq!(sentences_of_box(&changes.of_servers, &|_| false), said);
}

fn kept_in(kept: &[Kept], paths: &mut BTreeMap<PathBuf, Access>, files: &Files) -> Result<Changes, String> {
    let mut refused = Vec::new();
    let changes = keep(kept, paths, &no_mounts(files), files, &mut refused);
    refused.into_iter().next().map_or(Ok(changes), Err)
}

/// Returns two results for a box that may write `written`: the paths that it can only read, and the sentences about its changes.
fn kept(written: &[&str], path: &str, owner: Owner) -> Result<(Vec<PathBuf>, Vec<String>), String> {
    let files = Files(
        [("/ws/node_modules/p/index.js", ""), ("/ws/tools/server.mjs", ""), ("/ws/link", "/opt/tool"), ("/opt/tool", ""), ("/ws/.git", "")]
            .into(),
    );
    let mut paths: BTreeMap<PathBuf, Access> = written.iter().map(|path| (path.into(), Access::Write)).collect();
    let changes = kept_in(&[Kept { path: path.into(), owner }], &mut paths, &files)?;
    let read = paths.into_iter().filter(|(_, access)| *access == Access::Read);
    let said = sentences_of_box(&changes.of_servers, &|_| false).into_iter().chain(made_sentences(&changes)).collect();
    Ok((read.map(|(path, _)| path).collect(), said))
}

#[test]
fn the_gateways_own_program_is_never_written() {
    let of = |written: &[&str], path: &str| kept(written, path, Owner::Gateway);
    assert_eq!(of(&["/ws"], "/ws/node_modules"), Ok((vec!["/ws/node_modules".into()], vec![])));
    assert_eq!(of(&["/other"], "/ws/node_modules"), Ok((vec![], vec![])));
    assert!(of(&["/ws"], "/ws/missing").unwrap_err().contains("/ws/missing does not exist, and this box could make it"));
    for (written, path) in
        [(&["/ws"][..], "/ws/link"), (&["/ws/node_modules"], "/ws/node_modules"), (&["/ws", "/ws/node_modules/p"], "/ws/node_modules")]
    {
        assert!(of(written, path).unwrap_err().contains("this gateway's own program"), "{written:?} {path}");
    }
}

#[test]
fn the_program_of_another_server_is_only_read_or_said_to_be_changed() {
    let of = |written: &[&str], path: &str| kept(written, path, Owner::Server("b".into())).unwrap();
    assert_eq!(of(&["/ws"], "/ws/tools/server.mjs"), (vec!["/ws/tools/server.mjs".into()], vec![]));
    let changes = |path: &str| vec![format!("can change {path}, and so can change what the server \"b\" runs")];
    assert_eq!(of(&["/ws"], "/ws"), (vec![], changes("/ws")), "its package is the folder itself");
    assert_eq!(of(&["/ws/tools"], "/ws"), (vec![], changes("/ws/tools")));
    assert_eq!(of(&["/ws"], "/ws/link"), (vec![], changes("/ws/link")));
    assert_eq!(of(&["/ws", "/ws/tools"], "/ws/tools"), (vec![], changes("/ws/tools")), "named itself");
    assert_eq!(of(&["/ws"], "/ws/new"), (vec![], vec!["can make /ws/new, which the server \"b\" runs".to_owned()]));
}

#[test]
fn what_others_run_in_a_written_folder_is_said() {
    let files = Files([("/ws/.git", ""), ("/ws/node_modules/p", ""), ("/data/table", "")].into());
    let mut given = BTreeMap::from(["/ws", "/data"].map(|path| (path.into(), Access::Write)));
    let said = planting(Path::new("/ws"), &given, &files).unwrap();
    assert!(said.starts_with("can change .git, node_modules in /ws: "), "{said}");
    given.insert("/ws/node_modules".into(), Access::Read);
    let said = planting(Path::new("/ws"), &given, &files).unwrap();
    assert!(said.starts_with("can change .git in /ws: "), "what is kept cannot be changed: {said}");
    assert_eq!(planting(Path::new("/data"), &given, &files), None);
}

#[test]
fn what_others_run_is_said_if_it_or_a_part_of_it_is_given_itself() {
    let files = Files([("/ws/.git/hooks/x", ""), ("/ws/package.json", "")].into());
    for (path, said) in [
        ("/ws/.git", "can change /ws/.git: git, "),
        ("/ws/.git/hooks", "can change /ws/.git/hooks, a part of /ws/.git: git, "),
        ("/ws/package.json", "can change /ws/package.json: git, "),
        ("/ws/node_modules/x", "can change /ws/node_modules/x, a part of /ws/node_modules: git, "),
    ] {
        let given = [(path.into(), Access::Write)].into();
        let sentence = planting(Path::new(path), &given, &files).unwrap();
        assert!(sentence.starts_with(said), "{sentence}");
    }
}

#[test]
fn a_folder_with_code_of_another_server_stays_written_and_is_said() {
    let of = |written: &[&str], path: &str| kept(written, path, Owner::MayRun("b".into())).unwrap();
    let changes = |path: &str| vec![format!("can change files in {path}, from which the server \"b\" may run code")];
    for (written, path, said) in [
        ("/ws", "/ws/tools", "/ws/tools"),
        ("/ws/tools", "/ws", "/ws/tools"),
        ("/ws", "/ws/new", "/ws/new"),
        ("/ws", "/ws/link", "/ws/link"),
    ] {
        assert_eq!(of(&[written], path), (vec![], changes(said)), "{written} {path}");
    }
    assert_eq!(of(&["/ws/tools"], "/ws/other"), (vec![], vec![]));
}

#[test]
fn all_that_a_box_may_write_is_said_for_a_server_that_was_not_examined() {
    let unexamined = || Owner::Unexamined("b".into());
    let said = "can write /opt, /ws, and so may be able to change what the server \"b\" runs: its entry is too long to be examined";
    assert_eq!(kept(&["/ws", "/ws/tools", "/opt"], "/", unexamined()).unwrap(), (vec![], vec![said.to_owned()]));
    assert_eq!(kept(&[], "/", unexamined()).unwrap(), (vec![], vec![]));
}

#[test]
fn each_written_path_and_link_is_said() {
    let written = ["/ws/node_modules/p", "/ws/tools"];
    let of = |owner: Owner| kept(&written, "/ws", owner).unwrap().1;
    let listed = "/ws/tools, /ws/node_modules/p";
    assert_eq!(of(Owner::Server("b".into())), [format!("can change {listed}, and so can change what the server \"b\" runs")]);
    assert_eq!(of(Owner::MayRun("b".into())), [format!("can change files in {listed}, from which the server \"b\" may run code")]);
    assert_eq!(of(Owner::Uses("b".into())), [format!("can change {listed}, which the server \"b\" uses")]);
    let files = Files([("/ws/one", "/ws/two"), ("/ws/two", "/opt/tool"), ("/opt/tool", "")].into());
    let mut paths = BTreeMap::from([("/ws".into(), Access::Write)]);
    let tool = Kept { path: "/ws/one".into(), owner: Owner::Server("b".into()) };
    let changes = kept_in(&[tool], &mut paths, &files).unwrap();
    let said = sentences_of_box(&changes.of_servers, &|_| false);
    assert_eq!(said, ["can change /ws/one, /ws/two, and so can change what the server \"b\" runs"]);
}

#[test]
fn a_link_in_something_kept_is_not_replaceable() {
    let files = Files([("/ws/node_modules/hyperlight-mcp", "/opt/tool"), ("/opt/tool", "")].into());
    let own = |path: &str| Kept { path: path.into(), owner: Owner::Gateway };
    let mut paths = BTreeMap::from([("/ws".into(), Access::Write)]);
    let link = own("/ws/node_modules/hyperlight-mcp");
    assert!(kept_in(std::slice::from_ref(&link), &mut paths.clone(), &files).is_err());
    assert_eq!(kept_in(&[link, own("/ws/node_modules")], &mut paths, &files), Ok(Changes::default()));
    assert_eq!(paths.get(Path::new("/ws/node_modules")), Some(&Access::Read));
}

#[test]
fn a_file_that_another_server_uses_stays_written_and_is_said() {
    let of = |written: &[&str], path: &str| kept(written, path, Owner::Uses("b".into())).unwrap();
    let said = |what: &str| vec![format!("can {what}, which the server \"b\" uses")];
    for (written, path, what) in [
        ("/ws", "/ws/.git", "change /ws/.git"),
        ("/ws/.git", "/ws/.git", "change /ws/.git"),
        ("/ws", "/ws/link", "change /ws/link"),
        ("/ws", "/ws/new", "make /ws/new"),
    ] {
        assert_eq!(of(&[written], path), (vec![], said(what)), "{written} {path}");
    }
    assert_eq!(of(&["/other"], "/ws/new"), (vec![], vec![]));
}

/// Only a few names in such a folder matter, and nothing in the folders within it.
#[test]
fn a_folder_that_is_only_searched_is_said_if_the_box_may_write_in_it() {
    let of = |written: &[&str], path: &str| kept(written, path, Owner::Searches("b".into())).unwrap();
    let said = vec!["can make or change node_modules, package.json and the like in /ws, where the server \"b\" looks for them".to_owned()];
    assert_eq!(of(&["/ws"], "/ws"), (vec![], said));
    assert_eq!(of(&["/ws/data"], "/ws"), (vec![], vec![]));
}

#[test]
fn what_hosts_and_the_gateway_find_later_is_kept_or_said_to_be_made() {
    assert_eq!(kept(&["/ws"], "/ws/.git", Owner::Host), Ok((vec!["/ws/.git".into()], vec![])));
    let said = vec!["can make /ws/.mcp.json: editors and other hosts start the servers in it, with all of your rights".to_owned()];
    assert_eq!(kept(&["/ws"], "/ws/.mcp.json", Owner::Host), Ok((vec![], said)));
    assert!(kept(&["/ws/.git"], "/ws/.git", Owner::Host).unwrap_err().contains("start the servers that it names"));
    assert_eq!(kept(&["/ws"], "/ws/node_modules", Owner::GatewayIfMade), Ok((vec!["/ws/node_modules".into()], vec![])));
    let said = vec!["can make /ws/x/node_modules, from which this gateway may load packages".to_owned()];
    assert_eq!(kept(&["/ws"], "/ws/x/node_modules", Owner::GatewayIfMade), Ok((vec![], said)));
}
