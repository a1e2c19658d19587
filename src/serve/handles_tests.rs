use super::*;

const MINUTE: Duration = Duration::from_mins(1);

fn handles() -> Handles<u32> {
    Handles::new(&[7; 32], 100, MINUTE)
}

fn owner(key: &str) -> Owner {
    Owner { key: key.into(), ended: Arc::default() }
}

fn problem(handles: &Handles<u32>, owner: &Owner, handle: &str, now: Instant) -> &'static str {
    match handles.find(owner, handle, now) {
        Err(error @ Error::UnknownSession { problem }) => {
            assert_eq!(error.code(), "ERR_UNKNOWN_SESSION");
            problem
        }
        other => panic!("not refused: {other:?}"),
    }
}

/// Stores a new session, and returns its handle.
fn keep(handles: &Handles<u32>, owner: &Owner, bytes: usize, now: Instant) -> Option<String> {
    handles.keep(owner, None, &Arc::new(1), bytes, now).unwrap()
}

#[test]
fn a_handle_finds_its_session_for_its_caller_and_process_alone() {
    let (handles, other_process, now) = (handles(), Handles::<u32>::new(&[8; 32], 100, MINUTE), Instant::now());
    let (one, two) = (owner("name:one"), owner("name:two"));
    let handle = handles.keep(&one, None, &Arc::new(41), 1, now).unwrap().unwrap();
    assert!(handle.len() == 50 && handle.bytes().all(|digit| digit.is_ascii_lowercase() || digit.is_ascii_digit()), "{handle}");
    assert_eq!(*handles.find(&one, &handle, now).unwrap(), 41);
    assert_eq!(problem(&handles, &two, &handle, now), FOREIGN);
    assert_eq!(problem(&other_process, &one, &handle, now), FOREIGN);
    for index in 0..handle.len() {
        let mut forged = handle.clone().into_bytes();
        forged[index] = if forged[index] == b'0' { b'1' } else { b'0' };
        assert_eq!(problem(&handles, &one, std::str::from_utf8(&forged).unwrap(), now), FOREIGN);
    }
    for nonsense in ["", "0", "é", &handle[1..], &format!("{handle}{handle}"), &"0".repeat(50)] {
        assert_eq!(problem(&handles, &one, nonsense, now), FOREIGN);
    }
}

#[test]
fn a_later_run_keeps_its_session_under_the_same_handle() {
    let (handles, one, start) = (handles(), owner("one"), Instant::now());
    let handle = keep(&handles, &one, 1, start).unwrap();
    let session = handles.find(&one, &handle, start + MINUTE).unwrap();
    assert_eq!(handles.keep(&one, Some(&handle), &session, 2, start + MINUTE).unwrap().as_deref(), Some(handle.as_str()));
    drop(session);
    assert!(handles.find(&one, &handle, start + 2 * MINUTE).is_ok());
    assert_eq!(problem(&handles, &one, &handle, start + 4 * MINUTE), ENDED);
}

#[test]
fn what_a_run_uses_is_not_left() {
    let (handles, one, start) = (handles(), owner("one"), Instant::now());
    let handle = keep(&handles, &one, 1, start).unwrap();
    let session = handles.find(&one, &handle, start).unwrap();
    handles.end_left(start + 9 * MINUTE);
    assert!(handles.keep(&one, Some(&handle), &session, 1, start + 9 * MINUTE).unwrap().is_some());
}

#[test]
fn a_caller_that_takes_all_room_takes_its_own() {
    let (handles, start) = (handles(), Instant::now());
    let (greedy, modest) = (owner("greedy"), owner("modest"));
    let of_modest = keep(&handles, &modest, 100, start).unwrap();
    let all: Vec<_> = (0..100).map(|index| keep(&handles, &greedy, 1, start + Duration::from_millis(index)).unwrap()).collect();
    let found = |handle: &String| handles.find(&greedy, handle, start).is_ok();
    assert_eq!(all.iter().filter(|handle| found(handle)).count(), MAX_OF_CALLER);
    assert!(all[100 - MAX_OF_CALLER..].iter().all(found));
    // The saved values of one caller may have at most 400 bytes in total.
    let large = keep(&handles, &greedy, 390, start + MINUTE).unwrap();
    assert_eq!(all.iter().filter(|handle| found(handle)).count(), 10);
    assert!(found(&large));
    assert!(handles.find(&modest, &of_modest, start).is_ok());
}

#[test]
fn where_all_room_is_taken_nobody_loses_a_handle_to_another_caller() {
    let (handles, start) = (handles(), Instant::now());
    let owners: Vec<_> = (0..MAX_OF_ALL / MAX_OF_CALLER).map(|index| owner(&format!("{index}"))).collect();
    let of = |index: usize| &owners[index / MAX_OF_CALLER];
    let all: Vec<_> = (0..MAX_OF_ALL).map(|index| (of(index), keep(&handles, of(index), 1, start).unwrap())).collect();
    let late = owner("late");
    assert_eq!(keep(&handles, &late, 1, start), None);
    assert!(all.iter().all(|(owner, handle)| handles.find(owner, handle, start).is_ok()));
    owners[0].ended.cancel();
    assert!(keep(&handles, &late, 1, start).is_some());
}

#[test]
fn a_caller_whose_token_is_withdrawn_has_no_handles_any_more() {
    let (handles, one, now) = (handles(), owner("one"), Instant::now());
    let session = Arc::new(1);
    let handle = handles.keep(&one, None, &session, 1, now).unwrap().unwrap();
    one.ended.cancel();
    handles.end_left(now);
    assert_eq!(Arc::strong_count(&session), 1);
    // The handle is not restored by a run that ends later. It is not restored for a new token of the same name either.
    assert_eq!(handles.keep(&one, Some(&handle), &session, 1, now).unwrap(), None);
    assert_eq!(problem(&handles, &owner("one"), &handle, now), ENDED);
}
