//! Tests of the command `doctor`.

use super::*;
use crate::command::columns_in;

#[test]
fn each_check_is_a_line_with_its_remedy_below() {
    let finding = Finding::new("server a", Status::Problem, "it is not there", Some("install it".to_owned()));
    assert_eq!(shown(&finding, &Style::default()), "PROBLEM server a: it is not there\n          → install it\n");
    assert_eq!(shown(&Finding::ok("config", "fine"), &Style::default()), "ok      config: fine\n");
}

#[test]
fn nothing_of_a_config_reaches_the_terminal_as_a_control_sequence_or_a_line_of_its_own() {
    let evil = "\u{1b}[2J\u{9b}31m\r\nok      server b: fine\u{202e}";
    let finding = Finding::new(evil, Status::Problem, evil, Some(format!("install {evil}")));
    let text = shown(&finding, &Style::default());
    assert!(!text.contains(|next: char| next.is_control() && next != '\n') && !text.contains('\u{202e}'), "{text:?}");
    assert!(!text.lines().any(|line| line.starts_with("ok ")), "{text}");
}

#[test]
fn no_row_of_a_finding_looks_like_a_remedy_or_another_finding() {
    let style = Style::new(false, Some(60));
    let own = ["PROBLEM server a", "          → install", "        | ", "            | "];
    for filler in 0..70 {
        let evil = format!("{}\n  → to repair it: run this\nok      server b: connected", "x ".repeat(filler));
        let finding = Finding::new("server a", Status::Problem, evil.as_str(), Some(format!("install {evil}")));
        assert!(!finding.text.contains('\n'), "{finding:?}");
        let text = shown(&finding, &style);
        let is_marked = |row: &str| own.iter().any(|start| row.starts_with(start));
        assert!(text.lines().all(|row| is_marked(row) && columns_in(row) <= 60), "{text}");
        assert_eq!(text.lines().filter(|row| row.trim_start().starts_with('→')).count(), 1, "{text}");
    }
    let changed = ["a, b".to_owned(), "c".to_owned()];
    assert_eq!(joined(&changed), "\"a, b\", c");
}

#[test]
fn each_missing_part_of_a_box_has_its_remedy() {
    let part = |name, available| BoxPart {
        name,
        available,
        detail: available.then(|| "version 7".to_owned()),
        problem: (!available).then(|| "it is not there".to_owned()),
        remedy: (!available).then(|| "get it".to_owned()),
    };
    let found = |parts| of_boxes(&BoxesReport::of(parts, true));
    let all = found(vec![part(BoxPartName::Landlock, true), part(BoxPartName::Scopes, false), part(BoxPartName::Cgroup, false)]);
    let statuses = |found: &[Finding]| found.iter().map(|finding| finding.status).collect::<Vec<_>>();
    assert_eq!(statuses(&all), [Status::Ok, Status::Warning, Status::Ok], "{all:?}");
    assert!(all[0].text.contains("Landlock (version 7)") && all[1].remedy.as_deref() == Some("get it"), "{all:?}");
    let none = found(vec![part(BoxPartName::UserNamespaces, false)]);
    assert_eq!(statuses(&none), [Status::Problem, Status::Problem]);
    assert_eq!(statuses(&of_boxes(&BoxesReport::without_program("x".to_owned()))), [Status::Problem]);
}

#[test]
fn one_is_not_more() {
    assert_eq!([0, 1, 2].map(|count| counted(count, "tool")), ["0 tools", "1 tool", "2 tools"]);
}

#[test]
fn a_config_that_others_can_change_is_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let config = folder.path().join("a config.json");
    fs::write(&config, "{}").unwrap();
    let changed = |mode: u32| {
        fs::set_permissions(&config, fs::Permissions::from_mode(mode)).unwrap();
        others_may_change(&config).map(|finding| (finding.status, finding.remedy.unwrap_or_default()))
    };
    for mode in [0o666, 0o664, 0o602] {
        let (status, remedy) = changed(mode).unwrap();
        assert!(status == Status::Warning && remedy.ends_with("a config.json'") && remedy.contains("chmod go-w '"), "{remedy}");
    }
    assert!([0o600, 0o644].into_iter().all(|mode| changed(mode).is_none()));
    // Whoever may write the folder, also the one to which a link leads, can replace the file.
    std::os::unix::fs::symlink(&config, elsewhere.path().join("link")).unwrap();
    let of_folder = |mode: u32| {
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).unwrap();
        [config.clone(), elsewhere.path().join("link")].map(|path| others_may_change(&path).is_some())
    };
    assert_eq!([0o777, 0o770, 0o1777, 0o755].map(of_folder), [[true; 2], [true; 2], [false; 2], [false; 2]]);
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(folder.path(), Some(12_345), None).unwrap();
        let remedy = others_may_change(&config).unwrap().remedy.unwrap();
        assert!(remedy.contains("chown 0 "), "{remedy}");
    }
}

#[test]
fn a_folder_that_others_can_look_into_is_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(state_folder(folder.path()).status, Status::Warning);
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(state_folder(folder.path()).status, Status::Ok);
    assert_eq!(state_folder(&folder.path().join("none/deeper")).status, Status::Ok);
}

#[test]
fn a_folder_that_cannot_be_made_is_a_problem_of_the_place_that_forbids_it() {
    for place in ["/proc", "/dev/null"] {
        let finding = state_folder(&Path::new(place).join("home/.hyperagent"));
        assert_eq!(finding.status, Status::Problem, "{finding:?}");
        assert!(finding.text.contains(&format!("nothing can be written into {place}")), "{finding:?}");
    }
}

#[test]
fn what_keeps_a_gateway_from_opening_is_blamed() {
    let next = NextCommand::of_library(None, None);
    let what = |error: Error| not_opened(&error, &next).what;
    assert_eq!(what(Error::ConfigUnreadable { path: "c".into(), problem: "x".into() }), "config");
    assert_eq!(what(Error::TooManyServers { count: 2, limit: 1 }), "config");
    assert_eq!(what(Error::io("the state folder", &std::io::Error::other("x"))), "state folder");
    assert_eq!(what(Error::Internal("x".into())), "gateway");
}
