use std::fs::File;

use super::*;
use crate::files::testing::{at_once, pipe};

fn server_logs(folder: &Path) -> ServerLogs {
    ServerLogs::new(folder, Arc::new(Redactor::new(None, None)))
}

fn flush(server_logs: &ServerLogs) {
    server_logs.flush_now();
}

#[tokio::test]
async fn a_closed_log_has_what_was_noted_before_and_nothing_more_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let server_logs = server_logs(folder.path());
    server_logs.note("weather", Note::Stderr("before".to_owned()));
    server_logs.close().await;
    server_logs.note("weather", Note::Stderr("after".to_owned()));
    server_logs.close().await;
    let texts: Vec<_> = server_logs.read("weather", 10).into_iter().map(|line| line.text).collect();
    assert_eq!(texts, ["before"]);
}

#[test]
fn another_process_reads_what_was_noted_the_last_lines_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let first = server_logs(folder.path());
    for number in 0..5 {
        first.note("weather", Note::Stderr(format!("line {number}\x1b[31m")));
    }
    first.note("other", Note::Failed(Error::ServerDisabled { server: "other".into() }));
    flush(&first);
    let second = server_logs(folder.path());
    let texts: Vec<_> = second.read("weather", 2).into_iter().map(|line| (line.kind, line.text)).collect();
    assert_eq!(texts.len(), 2);
    assert!(texts[1].1.starts_with("line 4") && !texts[1].1.contains('\x1b'), "{texts:?}");
    assert_eq!(second.read("other", 9)[0].error.as_deref(), Some("ERR_SERVER_DISABLED"));
    assert!(second.read("nobody", 9).is_empty());
}

#[test]
fn servers_of_two_sources_have_logs_of_their_own_though_they_have_one_name() {
    let folder = tempfile::tempdir().unwrap();
    let server_logs = server_logs(folder.path());
    let keys = [
        "files",
        "agent:a:files",
        "agent:b:files",
        "provider:../..:files",
        "task::files@task-0123456789abcdef",
        "../../files",
        "config::files",
    ];
    for key in keys {
        server_logs.note(key, Note::Stderr(format!("of {key}")));
    }
    for key in keys {
        let texts: Vec<_> = server_logs.read(key, 9).into_iter().map(|line| line.text).collect();
        assert_eq!(texts, [format!("of {key}")]);
    }
    let files = fs::read_dir(folder.path().join(FOLDER)).unwrap();
    let names: Vec<_> = files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    let is_plain = |name: &String| name.chars().all(|next| next.is_ascii_alphanumeric() || "-.".contains(next));
    assert!(names.len() == keys.len() && names.contains(&"files.jsonl".to_owned()) && names.iter().all(is_plain), "{names:?}");
}

#[test]
fn an_event_goes_to_the_log_of_the_server_that_has_the_name_now() {
    let folder = tempfile::tempdir().unwrap();
    let server_logs = server_logs(folder.path());
    server_logs.find_keys_by(|name| Some(format!("agent:a:{name}")));
    server_logs.event(Event::ConnectionIdle { server: "files".to_owned() });
    assert_eq!((server_logs.read("agent:a:files", 9).len(), server_logs.read("files", 9).len()), (1, 0));
}

#[test]
fn a_log_does_not_grow_without_end_and_only_its_owner_reads_it() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let line = json!(LogLine { at: 1, pid: 1, kind: "stderr".into(), text: "x".repeat(1_000), error: None });
    for _ in 0..400 {
        append(folder.path(), "s", &format!("{line}\n")).unwrap();
    }
    let sizes: Vec<u64> = fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).collect();
    assert_eq!(sizes.len(), 2);
    assert!(sizes.iter().all(|size| *size < MAX_BYTES + 2_000), "{sizes:?}");
    assert_eq!(fs::metadata(path_of(folder.path(), "s")).unwrap().permissions().mode() & 0o777, 0o600);
    let server_logs = ServerLogs { folder: Arc::new(folder.path().to_owned()), ..server_logs(folder.path()) };
    assert_eq!(server_logs.read("s", 10).len(), 10);
}

#[test]
fn what_was_removed_with_all_around_it_is_not_made_again() {
    let parent = tempfile::tempdir().unwrap();
    let state = parent.path().join("state");
    let server_logs = server_logs(&state);
    server_logs.note("s", Note::Stderr("a line".into()));
    flush(&server_logs);
    fs::remove_dir_all(&state).unwrap();
    server_logs.note("s", Note::Stderr("another".into()));
    flush(&server_logs);
    assert!(!state.exists());
}

fn call(tool: &str) -> Note {
    let (server, tool) = ("s".to_owned(), tool.to_owned());
    Note::Event(Box::new(Event::Call { server, tool, duration_ms: 1.0, argument_bytes: 0, result_bytes: None, error: None }))
}

#[test]
fn calls_are_gathered_in_their_order_and_written_before_they_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let server_logs = server_logs(folder.path());
    (0..700).for_each(|number| server_logs.note("s", call(&format!("tool-{number}"))));
    let texts: Vec<_> = server_logs.read("s", 300).into_iter().map(|line| line.text).collect();
    assert_eq!(texts.len(), 300);
    assert!(texts.iter().zip(400..).all(|(text, number)| text.starts_with(&format!("tool-{number} was answered"))), "{texts:?}");
}

#[test]
fn what_was_gathered_is_written_when_the_gateway_goes() {
    let folder = tempfile::tempdir().unwrap();
    let gone = server_logs(folder.path());
    gone.note("s", call("last"));
    let queue = Arc::clone(&gone.writer.queue);
    drop(gone);
    // The writer thread drops its reference after it has written.
    while Arc::strong_count(&queue) > 1 {
        std::thread::yield_now();
    }
    assert_eq!(lines_of(&path_of(&folder.path().join(FOLDER), "s")).len(), 1);
}

#[tokio::test]
async fn a_journal_that_is_closed_has_no_thread_and_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let server_logs = server_logs(folder.path());
    server_logs.note("s", call("before"));
    server_logs.close().await;
    // The writer thread drops its reference when it ends.
    while Arc::strong_count(&server_logs.writer.queue) > 1 {
        std::thread::yield_now();
    }
    server_logs.note("s", call("after"));
    assert_eq!(server_logs.read("s", 10).len(), 1);
    assert_eq!(Arc::strong_count(&server_logs.writer.queue), 1);
    assert!(server_logs.writer.queue.waiting().orders.is_empty());
}

#[test]
fn writers_that_find_a_full_log_at_once_move_it_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = path_of(folder.path(), "s");
    fs::write(&path, "x".repeat(usize::try_from(MAX_BYTES).unwrap() + 1)).unwrap();
    // While the test holds the lock, all other writers see a full file before it is renamed.
    let first = File::open(&path).unwrap();
    first.lock().unwrap();
    std::thread::scope(|scope| {
        let others: Vec<_> = (0..8).map(|_| scope.spawn(|| rotate(&path))).collect();
        fs::rename(&path, older(&path)).unwrap();
        fs::write(&path, "new\n").unwrap();
        first.unlock().unwrap();
        for other in others {
            other.join().unwrap().unwrap();
        }
    });
    assert_eq!(fs::read_to_string(&path).unwrap(), "new\n");
    assert_eq!(fs::metadata(older(&path)).unwrap().len(), MAX_BYTES + 1);
}

#[test]
fn what_is_no_line_of_ours_is_skipped() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(path_of(folder.path(), "s"), "{}\nno json\n{\"at\":1,\"pid\":2,\"kind\":\"call\",\"text\":\"t\"}\n\u{0}").unwrap();
    assert_eq!(lines_of(&path_of(folder.path(), "s")).len(), 1);
}

#[test]
fn a_server_that_holds_its_log_or_puts_a_pipe_there_keeps_nobody_from_writing_and_reading() {
    let folder = tempfile::tempdir().unwrap();
    let path = path_of(folder.path(), "s");
    fs::write(&path, "x".repeat(usize::try_from(MAX_BYTES).unwrap() + 1)).unwrap();
    let held = File::open(&path).unwrap();
    held.lock().unwrap();
    let within = folder.path().to_owned();
    at_once(move || append(&within, "s", "new\n")).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "new\n");
    fs::remove_file(&path).unwrap();
    pipe(folder.path(), "s.jsonl");
    let within = folder.path().to_owned();
    assert!(at_once(move || append(&within, "s", "lost\n").is_err() && lines_of(&path).is_empty()));
}

#[test]
fn no_server_and_no_variant_has_the_log_of_another() {
    let folder = Path::new("logs");
    let names = ["a", "a@x", "a@x.old", "a@x.y", "a@x+y", "a@task-0f"];
    let paths: std::collections::BTreeSet<_> =
        names.iter().map(|name| path_of(folder, &file_of(name))).flat_map(|path| [older(&path), path]).collect();
    assert_eq!(paths.len(), 2 * names.len());
    assert!(paths.iter().all(|path| path.parent() == Some(folder)));
}
