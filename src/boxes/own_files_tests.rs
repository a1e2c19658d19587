//! Tests of the access that a box has to the gateway's own files.

use super::*;
use crate::boxes::{FileOwner, FileTrust, Given, Link, OwnFileUse, check_variables};

fn own_file(path: &str, use_of: OwnFileUse) -> OwnFile {
    OwnFile::new(path, use_of)
}

/// Returns the access of a box to one of the gateway's own files: what is hidden, and what can only be read. The box has the folder
/// `/home/ada/p`.
fn held_of(machine: &Machine, access: Access, path: &str, use_of: OwnFileUse) -> Result<Vec<String>, String> {
    let mut entry = entry("/usr/bin/node", &[]);
    let folders = vec![PathBuf::from("/home/ada/p")];
    (entry.read, entry.write) = if access == Access::Read { (folders, vec![]) } else { (vec![], folders) };
    entry.own_files = vec![own_file(path, use_of)];
    let (contents, _) = entry.contents(machine)?;
    let hidden = contents.hidden.iter().filter(|path| path.starts_with("/home/ada/p")).map(|path| format!("hidden {}", path.display()));
    let within = |path: &Path| path.starts_with("/home/ada/p") && path != Path::new("/home/ada/p");
    let read = contents.given.iter().filter(|given| within(&given.path) && given.access == Access::Read);
    Ok(hidden.chain(read.map(|given| format!("read {}", given.path.display()))).collect())
}

#[test]
fn own_files_of_the_gateway_are_hidden_or_refused() {
    use OwnFileUse::{Base, Config, Secret, Variables};
    let lines = [
        "/usr/bin/node",
        "/home/ada/.state/store",
        "/home/ada/p/mcp.json",
        "/home/ada/p/.env",
        "/home/ada/p/link -> /home/ada/conf",
        "/home/ada/conf/c.json",
    ];
    let machine = machine(&lines);
    let (own, other) = (Variables { by_this: true }, Variables { by_this: false });
    let [read, write] = [Access::Read, Access::Write].map(|access| {
        let machine = &machine;
        move |path: &str, use_of| held_of(machine, access, path, use_of)
    });
    for held in [&read as &dyn Fn(&str, OwnFileUse) -> Result<Vec<String>, String>, &write] {
        for use_of in [Config, Base] {
            assert_eq!(held("/home/ada/p/mcp.json", use_of).unwrap(), ["hidden /home/ada/p/mcp.json"]);
        }
        assert_eq!(held("/home/ada/p/.env", other).unwrap(), ["hidden /home/ada/p/.env"]);
        assert_eq!(held("/home/ada/p/.env", own).unwrap(), ["read /home/ada/p/.env"]);
        assert!(held("/home/ada/p/mcp.json", Secret).unwrap_err().contains("put it outside"));
        assert!(held("/home/ada/elsewhere", Config).unwrap().is_empty());
    }
    // A missing file could be made, and a link could be replaced.
    assert!(write("/home/ada/p/none", Config).unwrap_err().contains("make it first"));
    assert!(write("/home/ada/p/none", other).unwrap_err().contains("make it first"));
    assert_eq!(write("/home/ada/p/none", Base).unwrap(), ["hidden /home/ada/p/none"]);
    assert_eq!(read("/home/ada/p/none", Config).unwrap(), ["hidden /home/ada/p/none"]);
    assert!(write("/home/ada/p/link/c.json", Config).unwrap_err().contains("through /home/ada/p/link, which"));
    for use_of in [Config, Secret, other] {
        // A folder that the path leaves again can become a link.
        let path = "/home/ada/p/folder/../../conf/c.json";
        assert!(write(path, use_of).unwrap_err().contains("through /home/ada/p/folder, which"));
        assert!(read(path, use_of).unwrap().is_empty());
        assert!(write("/home/ada/p/../conf/c.json", use_of).unwrap().is_empty(), "the box cannot replace what it was given");
    }
    assert!(read("/home/ada/p/link/c.json", Config).unwrap().is_empty());
}

#[test]
fn a_missing_file_is_told_with_its_server_and_the_way_out() {
    let machine = machine(&["/usr/bin/node", "/home/ada/.state/store", "/home/ada/p/"]);
    let refused = |server: Option<FileOwner>, by_this| {
        let file = OwnFile { path: "/home/ada/p/.env".into(), use_of: OwnFileUse::Variables { by_this }, server, leads_out: false };
        Entry { write: vec!["/home/ada/p".into()], own_files: vec![file], ..entry("/usr/bin/node", &[]) }.contents(&machine).unwrap_err()
    };
    let missing = |owner: &str, way_out: &str| {
        format!(
            "/home/ada/p/.env, the envFile of {owner}, does not exist, and this box could make it: make it first, even if it is empty{way_out}"
        )
    };
    let owner = |is_gone| Some(FileOwner { server: "b".into(), is_gone, trust: FileTrust::Approved });
    assert_eq!(refused(None, true), missing("this server", ""));
    assert_eq!(refused(owner(false), false), missing("the server \"b\"", ""));
    let gone = missing("the server \"b\", which is approved and has no entry now", ", or revoke the approval of the server \"b\"");
    assert_eq!(refused(owner(true), false), gone);
}

/// Anybody can commit an entry to a config of another program. So its `envFile` refuses no box until a person approves the entry.
#[test]
fn the_variables_of_an_entry_that_is_not_approved_refuse_no_box() {
    let machine = machine(&[
        "/usr/bin/node",
        "/home/ada/.state/store",
        "/home/ada/p/src/x",
        "/home/ada/p/.env",
        "/home/ada/p/link -> /home/ada/q",
        "/home/ada/q/x.env",
        "/home/ada/p/linked",
        "/home/ada/copy same as /home/ada/p/linked",
        "/home/ada/r/other",
        "/home/ada/p/another same as /home/ada/r/other",
    ]);
    let with = |path: &str, trust, write: &str| {
        let server = Some(FileOwner { server: "b".into(), is_gone: false, trust });
        let own_files = vec![OwnFile { path: path.into(), use_of: OwnFileUse::Variables { by_this: false }, server, leads_out: false }];
        let kept = vec![Kept { path: path.into(), owner: Owner::Uses("b".into()) }];
        Entry { write: vec![write.into()], own_files, kept, ..entry("/usr/bin/node", &[]) }
    };
    let missing = "can make /home/ada/p/none, which the server \"b\" uses";
    for (path, write, is_there, said) in [
        ("/home/ada/p/none", "/home/ada/p", false, Some(missing)),
        ("/home/ada/p/src", "/home/ada/p", true, Some("can change /home/ada/p/src, which the server \"b\" uses")),
        ("/home/ada/p", "/home/ada/p", true, Some("can change /home/ada/p, which the server \"b\" uses")),
        ("/home/ada/p/.env", "/home/ada/p/.env", true, Some("can change /home/ada/p/.env, which the server \"b\" uses")),
        ("/home/ada/p/link/x.env", "/home/ada/p", true, Some("can change /home/ada/p/link, which the server \"b\" uses")),
        ("/home/ada/p/linked", "/home/ada/p", true, Some("can change /home/ada/p/linked, which the server \"b\" uses")),
        ("/home/ada/r/other", "/home/ada/p", true, None),
        ("/home/ada/p/.env", "/home/ada/p", true, None),
    ] {
        let foreign = with(path, FileTrust::Unapproved, write);
        let (contents, _) = foreign.contents(&machine).unwrap_or_else(|refused| panic!("{path}: {refused}"));
        let present = foreign.present(&machine);
        assert!(said.is_none_or(|said| present.contains(&said.to_owned())), "{path}: {present:#?}");
        let names_file = present.iter().any(|said| said.contains(" /home/ada/p/.env, which"));
        assert_eq!(names_file, said.is_some_and(|said| said.contains(" /home/ada/p/.env, which")), "{path}: {present:#?}");
        // A file that exists is hidden, approved or not.
        let is_hidden = ["/home/ada/p/none", "/home/ada/p/linked", "/home/ada/p/.env"].contains(&path) && write != path;
        assert_eq!(contents.hidden.contains(&PathBuf::from(path)), is_hidden, "{path}");
        let refuses = |trust| with(path, trust, write).contents(&machine).is_err();
        let is_refused = said.is_some() && path != "/home/ada/p/src" || path == "/home/ada/r/other";
        assert_eq!([refuses(FileTrust::Approved), refuses(FileTrust::Configured)], [is_refused, is_refused && is_there], "{path}");
        // A box that was made before the approval does not go on after it.
        let given: Vec<Given> = contents.given.iter().filter(|given| given.link != Link::System).cloned().collect();
        let checked = |trust| check_variables(&with(path, trust, write).own_files, &given, &machine).is_err();
        assert_eq!([checked(FileTrust::Approved), checked(FileTrust::Unapproved)], [is_refused, false], "{path}");
    }
}

#[test]
fn an_own_file_is_given_only_to_be_read_and_only_by_name() {
    let machine = machine(&["/usr/bin/node", "/home/ada/.state/store", "/home/ada/p/mcp.json", "/home/ada/p/.env"]);
    let made = |read: &[&str], write: &[&str], arguments: &[&str]| {
        let mut entry = entry("/usr/bin/node", arguments);
        (entry.read, entry.write) = (read.iter().map(PathBuf::from).collect(), write.iter().map(PathBuf::from).collect());
        entry.own_files = vec![
            own_file("/home/ada/p/mcp.json", OwnFileUse::Config),
            own_file("/home/ada/p/.env", OwnFileUse::Variables { by_this: false }),
        ];
        entry.contents(&machine).map(|(contents, _)| contents.given.iter().any(|given| given.path.starts_with("/home/ada/p")))
    };
    assert_eq!(made(&["/home/ada/p/.env"], &[], &[]), Ok(true));
    assert_eq!(made(&[], &[], &["/home/ada/p/mcp.json", "/home/ada/p/.env"]), Ok(false), "an argument alone gives nothing");
    for (read, write) in [(&["/home/ada/p/mcp.json"][..], &[][..]), (&[], &["/home/ada/p/mcp.json"]), (&[], &["/home/ada/p/.env"])] {
        assert!(made(read, write, &[]).unwrap_err().contains("cannot be given"), "{read:?} {write:?}");
    }
}

#[test]
fn a_config_that_can_be_made_is_named_at_the_approval() {
    let machine = machine(&["/usr/bin/node", "/home/ada/.state/store", "/home/ada/p/x"]);
    let mut entry = entry("/usr/bin/node", &["/home/ada/p"]);
    entry.own_files = vec![own_file("/home/ada/p/.mcp.json", OwnFileUse::Base), own_file("/home/ada/q", OwnFileUse::Base)];
    let told = "can make /home/ada/p/.mcp.json, from which this gateway takes servers that need an approval";
    assert!(entry.present(&machine).iter().any(|said| said == told), "{:?}", entry.present(&machine));
}

/// Each box has the folders of the system, so a file of the gateway cannot lie in them.
#[test]
fn an_own_file_in_a_folder_of_the_system_is_kept_from_each_box() {
    let machine = machine(&[
        "/usr/bin/node",
        "/usr/src/app/mcp.json",
        "/usr/src/app/.env",
        "/home/ada/.state/store",
        "/etc/ssl/certs -> /srv/certs",
        "/srv/certs/mcp.json",
    ]);
    let made = |path: &str, use_of| {
        let mut entry = entry("/usr/bin/node", &[]);
        entry.own_files = vec![own_file(path, use_of)];
        entry.contents(&machine).map(|(contents, _)| contents)
    };
    for (path, use_of) in [("/usr/src/app/mcp.json", OwnFileUse::Config), ("/usr/src/app/.env", OwnFileUse::Variables { by_this: false })] {
        assert!(made(path, use_of).unwrap().hidden.contains(&PathBuf::from(path)), "{path}");
    }
    assert!(made("/usr/src/app/tokens", OwnFileUse::Secret).unwrap_err().contains("put it outside"));
    assert!(made("/srv/certs/mcp.json", OwnFileUse::Config).unwrap_err().contains("which each box has as /etc/ssl/certs"));
    assert!(made("/srv/mcp.json", OwnFileUse::Secret).is_ok());
}

/// The gateway would take a folder in the place of the link for its own folder.
#[test]
fn no_box_can_replace_a_link_to_the_gateways_own_folder() {
    let machine =
        machine(&["/usr/bin/node", "/home/ada/.state/store", "/home/ada/.cache/x", "/home/ada/.cache/own -> /srv/own", "/srv/own/"]);
    let made = |read: &[&str], write: &[&str]| {
        let mut entry = entry("/usr/bin/node", &[]);
        (entry.read, entry.write) = (read.iter().map(PathBuf::from).collect(), write.iter().map(PathBuf::from).collect());
        entry.contents(&machine).map(drop)
    };
    assert!(made(&[], &["/home/ada/.cache"]).unwrap_err().contains("own folder, leads through /home/ada/.cache/own, which this box"));
    assert!(made(&["/home/ada/.cache"], &[]).is_ok());
}

#[test]
fn an_own_file_with_another_name_is_recognised() {
    let lines = [
        "/usr/bin/node",
        "/home/ada/.state/store",
        "/home/ada/q/mcp.json",
        "/home/ada/p/",
        "/home/ada/p/linked.json",
        "/home/ada/copy same as /home/ada/p/linked.json",
        "/mnt/q/ same as /home/ada/q",
        "/mnt/mcp.json same as /home/ada/q/mcp.json",
    ];
    let machine = machine(&lines);
    let made = |given: &str, config: &str, use_of| {
        let mut entry = entry("/usr/bin/node", &[]);
        (entry.read, entry.own_files) = (vec![given.into()], vec![own_file(config, use_of)]);
        entry.contents(&machine).map(drop)
    };
    for use_of in [OwnFileUse::Config, OwnFileUse::Secret, OwnFileUse::Variables { by_this: true }] {
        assert!(made("/mnt/q", "/home/ada/q/mcp.json", use_of).unwrap_err().contains("another name in this box, /mnt/q/mcp.json: give"));
        assert!(
            made("/mnt/mcp.json", "/home/ada/q/mcp.json", use_of).unwrap_err().contains("another name in this box, /mnt/mcp.json: give")
        );
    }
    assert!(made("/home/ada/p", "/home/ada/p/linked.json", OwnFileUse::Config).unwrap_err().contains("hard links"));
    assert!(made("/home/ada/p", "/home/ada/p/linked.json", OwnFileUse::Base).is_ok());
    assert!(made("/home/ada/p", "/home/ada/q/mcp.json", OwnFileUse::Config).is_ok());
}
