//! Tests of the tokens on disk.

use std::os::unix::fs::PermissionsExt as _;

use super::*;

const URL: &str = "https://example.com/mcp";
const ISSUER: &str = "https://auth.example.com";

fn kept(access: &str) -> StoredCredentials {
    let token = Token {
        access: access.into(),
        refresh: Some("r3fresh".into()),
        received_at: 1,
        lifetime: Some(60),
        scopes: vec!["a".to_owned()],
        requested: None,
        resource: URL.to_owned(),
    };
    let client =
        Client { id: "me".to_owned(), secret: Some("s3cret".into()), registered_for: Some("http://127.0.0.1:1/callback".to_owned()) };
    StoredCredentials { client: Some(client), token: Some(token) }
}

impl TokenFile {
    fn put(&self, kept: &StoredCredentials) {
        assert_eq!(self.write(kept, &self.generations.current()).unwrap(), Stored::Kept);
    }
}

fn store() -> (tempfile::TempDir, TokenStore) {
    let folder = tempfile::tempdir().unwrap();
    let store = TokenStore::new(folder.path().join("tokens"));
    (folder, store)
}

fn access(file: &TokenFile) -> Option<String> {
    file.read().token.map(|token| token.access.expose_secret().to_owned())
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn what_was_written_is_read_again_and_is_the_users_alone() {
    let (_folder, store) = store();
    let file = store.file("a", URL, ISSUER);
    assert!(access(&file).is_none() && !store.has_any("a", URL));
    file.put(&kept("t0k"));
    file.put(&kept("t1k"));
    assert_eq!(access(&file).as_deref(), Some("t1k"));
    assert_eq!(file.read().client.unwrap().secret.unwrap().expose_secret(), "s3cret");
    assert_eq!((mode(&store.folder), mode(&file.path("json"))), (0o700, 0o600));
    let files = store.files().unwrap();
    assert_eq!(files.iter().filter(|path| path.extension().is_none_or(|kind| kind != "lock")).count(), 1);
}

#[test]
fn another_server_url_or_issuer_never_sees_it() {
    let (_folder, store) = store();
    store.file("a", URL, ISSUER).put(&kept("t0k"));
    for (server, url, issuer) in [("b", URL, ISSUER), ("a", "https://example.com/other", ISSUER), ("a", URL, "https://evil.example")] {
        assert!(access(&store.file(server, url, issuer)).is_none(), "{server} {url} {issuer}");
    }
    assert!(store.has_any("a", URL) && !store.has_any("b", URL) && !store.has_any("a", "https://example.com/other"));
}

#[test]
fn a_confirmed_issuer_holds_for_one_server_url_and_client_until_it_is_forgotten() {
    let (_folder, store) = store();
    store.confirm("a", URL, ISSUER, "me", &store.generation("a"));
    let later = TokenStore::new(store.folder.clone());
    for store in [&store, &later] {
        assert!(store.is_confirmed("a", URL, ISSUER, "me") && !store.has_any("a", URL));
        for (server, url, issuer, client) in [
            ("b", URL, ISSUER, "me"),
            ("a", "https://example.com/other", ISSUER, "me"),
            ("a", URL, "https://evil.example", "me"),
            ("a", URL, ISSUER, "you"),
        ] {
            assert!(!store.is_confirmed(server, url, issuer, client), "{server} {url} {issuer} {client}");
        }
    }
    let (one, _) = store.confirmation("a", URL, ISSUER, "me");
    let (other, _) = store.confirmation("a", URL, "https://evil.example", "me");
    assert_eq!(mode(&one), 0o600);
    fs::copy(&one, other).unwrap();
    assert!(!later.is_confirmed("a", URL, "https://evil.example", "me"), "a renamed file is not used for another issuer");
    store.forget("a").unwrap();
    assert!(!store.is_confirmed("a", URL, ISSUER, "me") && !later.is_confirmed("a", URL, ISSUER, "me"));
}

#[test]
fn a_file_that_was_renamed_is_no_token_of_another() {
    let (_folder, store) = store();
    let (ours, other) = (store.file("a", URL, ISSUER), store.file("b", URL, ISSUER));
    ours.put(&kept("t0k"));
    fs::copy(ours.path("json"), other.path("json")).unwrap();
    assert!(access(&other).is_none());
    assert!(!other.path("json").exists() && other.path("damaged").exists());
}

#[test]
fn a_damaged_file_is_moved_aside_as_if_there_were_none() {
    let (_folder, store) = store();
    let file = store.file("a", URL, ISSUER);
    file.put(&kept("t0k"));
    fs::write(file.path("json"), "{").unwrap();
    assert!(access(&file).is_none() && file.path("damaged").exists() && !store.has_any("a", URL));
    file.put(&kept("t1k"));
    assert_eq!(access(&file).as_deref(), Some("t1k"));
}

#[test]
fn a_pipe_or_what_others_may_have_written_is_not_a_token() {
    let (_folder, store) = store();
    let file = store.file("a", URL, ISSUER);
    file.put(&kept("t0k"));
    fs::set_permissions(file.path("json"), fs::Permissions::from_mode(0o622)).unwrap();
    assert!(access(&file).is_none());
    fs::remove_file(file.path("json")).unwrap();
    crate::files::testing::pipe(&store.folder, name_of(&file.path("json")));
    assert!(crate::files::testing::at_once(move || access(&file).is_none()));
}

#[test]
fn what_a_killed_writer_left_of_a_token_is_forgotten_with_its_server() {
    let (_folder, store) = store();
    let file = store.file("a", URL, ISSUER);
    file.put(&kept("t0k"));
    let left = store.folder.join(format!(".{}.a1B2c3.tmp", name_of(&file.path("json"))));
    fs::write(&left, "t0k").unwrap();
    store.forget("a").unwrap();
    assert!(!left.exists() && !file.path("json").exists());
}

#[test]
fn a_server_is_forgotten_with_all_of_its_urls_and_no_others() {
    let (_folder, store) = store();
    let slots = [store.file("a", URL, ISSUER), store.file("a", "https://other.example", ISSUER), store.file("b", URL, ISSUER)];
    for file in &slots {
        file.put(&kept("t0k"));
    }
    store.forget("a").unwrap();
    assert_eq!(slots.map(|file| access(&file).is_some()), [false, false, true]);
}

#[test]
fn no_debug_output_shows_a_secret() {
    let shown = format!("{:?}", kept("t0k"));
    assert!(!shown.contains("t0k") && !shown.contains("r3fresh") && !shown.contains("s3cret"), "{shown}");
}

#[tokio::test]
async fn who_renews_keeps_others_waiting() {
    let (_folder, store) = store();
    let file = store.file("a", URL, ISSUER);
    let held = file.lock().await.unwrap();
    let lock = File::options().write(true).open(file.path("lock")).unwrap();
    assert!(lock.try_lock().is_err() && mode(&file.path("lock")) == 0o600);
    drop(held);
    lock.try_lock().unwrap();
}
