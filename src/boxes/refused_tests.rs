//! Tests of boxes that cannot be made at the moment of an approval request.

use super::*;
use crate::boxes::{Change, Effect, OtherServer, OwnFileUse};

/// The reason why the box cannot be made may be gone a moment after the request. So all possible changes are listed nevertheless.
#[test]
fn a_box_that_cannot_be_made_now_says_why_and_what_it_could_change() {
    let lines = [
        "/usr/bin/node",
        "/home/ada/.state/store",
        "/home/ada/p/package.json",
        "/home/ada/p/x/docker.sock=",
        "/home/ada/p/link -> /home/ada/q",
        "/home/ada/q/",
    ];
    let machine = machine(&lines);
    let kept = |path: &str, owner: fn(OtherServer) -> Owner| Kept { path: path.into(), owner: owner("b".into()) };
    let with = |arguments: &[&str], own_files: Vec<OwnFile>, own: Option<&str>| {
        let own = own.map(|path| Kept { path: path.into(), owner: Owner::Gateway });
        let kept = own.into_iter().chain([kept("/home/ada/p", Owner::MayRun), kept("/home/ada/p/b.mjs", Owner::Server)]).collect();
        Entry { own_files, kept, ..entry("/usr/bin/node", arguments) }
    };
    let missing = vec![OwnFile::new("/home/ada/p/.env", OwnFileUse::Variables { by_this: false })];
    for (server, reason) in [
        (with(&["/home/ada/p"], vec![], None), "the socket of Docker is within"),
        (Entry { services: vec![], ..with(&["/home/ada/p/link", "/home/ada/p"], vec![], None) }, "leads through a link"),
        (Entry { write: vec!["/home/ada/p".into(), "/proc".into()], ..with(&[], vec![], None) }, "/proc cannot be given"),
        (with(&["/home/ada/p"], missing, None), "/home/ada/p/.env, the envFile of a server, does not exist"),
        (with(&["/home/ada/p"], vec![], Some("/home/ada/p")), "this gateway's own program is loaded through it"),
        (with(&["/home/ada/p"], vec![], Some("/home/ada/p/n")), "this gateway would load it"),
    ] {
        let refused = server.with(|request| examine(request, &machine)).refused;
        assert!(refused.iter().any(|refused| refused.contains(reason)), "{reason}: {refused:?}");
        let said = server.with(|request| present(request, &machine));
        let first = format!("this box cannot be made now: {}", refused[0]);
        assert_eq!((said.refusal.as_ref(), said.sentences.first()), (Some(&refused[0]), Some(&first)));
        for sentence in [
            "can make /home/ada/p/b.mjs, which the server \"b\" runs",
            "can change files in /home/ada/p, from which the server \"b\" may run code",
            "can change package.json in /home/ada/p",
        ] {
            assert!(said.sentences.iter().any(|said| said.starts_with(sentence)), "{reason}: {sentence}: {said:#?}");
        }
    }
    let closed = super::machine(&[&lines[..3], &["/home/ada/p/x/b.mjs", "closed /home/ada/p/x"]].concat());
    let server = Entry { kept: vec![kept("/home/ada/p/x/b.mjs", Owner::Server)], ..with(&["/home/ada/p"], vec![], None) };
    let Examined { decided, refused, .. } = server.with(|request| examine(request, &closed));
    let change = Change { server: "b".into(), effect: Effect::Makes, path: "/home/ada/p/x/b.mjs".into() };
    assert!(refused[0].contains("cannot be searched") && decided.changes.of_servers.contains(&change), "{decided:?}");
}

/// A drive, or another branch of a repository, can come later. Then the box has the path without another approval.
#[test]
fn an_argument_that_is_missing_counts_for_what_a_box_can_change() {
    let machine = machine(&["/usr/bin/node", "/home/ada/.state/store", "/home/ada/p/", "/link -> /home/ada/p"]);
    let kept = |path: &str, owner: fn(OtherServer) -> Owner| Kept { path: path.into(), owner: owner("b".into()) };
    let kept = vec![kept("/home/ada/p/later/srv", Owner::MayRun), kept("/home/ada/p/later/srv/b.mjs", Owner::Server)];
    let changes = |argument: &str| {
        let server = Entry { kept: kept.clone(), ..entry("/usr/bin/node", &[argument]) };
        let Examined { decided, refused, .. } = server.with(|request| examine(request, &machine));
        assert_eq!(refused, [] as [String; 0]);
        assert!(decided.contents.given.iter().all(|given| !given.path.starts_with("/home/ada/p")), "it is not given");
        decided.changes.of_servers.into_iter().map(|change| (change.effect, change.path)).collect::<Vec<_>>()
    };
    let expected = [(Effect::Makes, "/home/ada/p/later/srv/b.mjs".into()), (Effect::MayPlant, "/home/ada/p/later/srv".into())];
    for argument in ["/home/ada/p/later", "/home/ada/p/later/srv/", "/link/later"] {
        assert_eq!(changes(argument), expected, "{argument}");
    }
    for argument in ["/home/ada/p/other", "/home/ada/p/later/srv/main.mjs", "/api"] {
        assert_eq!(changes(argument), [], "{argument}");
    }
}
