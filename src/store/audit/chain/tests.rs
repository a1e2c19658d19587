//! Tests of the chain against every kind of change to its rows and its head.

use proptest::prelude::*;

use super::*;
use crate::store::audit::AuditDetails;

fn key() -> (tempfile::TempDir, MachineKey) {
    let folder = tempfile::tempdir().unwrap();
    let key = MachineKey::open(folder.path()).unwrap();
    (folder, key)
}

fn entry(text: &str) -> Entry {
    Entry { server: Some(text.to_owned()), ..Entry::new(7, AuditKind::Revocation, &AuditDetails::default()) }
}

fn chain(key: &MachineKey, length: u64) -> (Head, Vec<Linked>) {
    let mut head = Head::default();
    let rows = (0..length).map(|number| head.append(key, entry(&number.to_string()))).collect();
    (head, rows)
}

fn verified(key: &MachineKey, head: HeadFound, rows: &[Linked]) -> AuditReport {
    verified_with(key, head, rows, AnchoredAudit::Nothing)
}

fn verified_with(key: &MachineKey, head: HeadFound, rows: &[Linked], anchored: AnchoredAudit) -> AuditReport {
    let mut verification = Verification::new(key, head, anchored, None);
    for row in rows {
        verification.row(row);
    }
    verification.end()
}

#[test]
fn a_chain_as_it_was_written_is_whole_also_after_its_beginning_was_removed() {
    let (_folder, key) = key();
    assert_eq!(verified(&key, HeadFound::Missing, &[]), AuditReport { whole: true, ..AuditReport::default() });
    let (mut head, rows) = chain(&key, 9);
    let report = verified(&key, HeadFound::Sound(head.clone()), &rows);
    assert!(report.whole, "{report:?}");
    assert_eq!((report.rows, report.first, report.last, report.head), (9, Some(1), Some(9), Some(hex::encode(&head.digest))));
    let bytes = head.bytes;
    rows[..4].iter().for_each(|row| head.drop_first(row.clone()));
    let report = verified(&key, HeadFound::Sound(head.clone()), &rows[4..]);
    assert!(report.whole && report.first == Some(5) && head.bytes < bytes, "{report:?}");
}

#[test]
fn an_older_copy_and_a_cut_end_are_told_by_the_anchor() {
    let (_folder, key) = key();
    let (old, _) = chain(&key, 4);
    let (mut head, rows) = chain(&key, 9);
    let at = |number: usize| AnchoredAudit::At(AuditEnd { number: number as u64, digest: hex::encode(&rows[number - 1].digest) });
    let problems = |head: &Head, rows: &[Linked], anchored| verified_with(&key, HeadFound::Sound(head.clone()), rows, anchored).problems;
    for number in 1..=9 {
        assert!(problems(&head, &rows, at(number)).is_empty(), "{number}");
    }
    assert_eq!(
        problems(&old, &rows[..4], at(5)),
        ["the audit ends with row 4, but row 5 was written once: the file is an older copy, or its end was cut"]
    );
    let empty = verified_with(&key, HeadFound::Missing, &[], at(5)).problems;
    assert_eq!(empty, ["the audit is empty, but row 5 was written once: the file is an older copy, or its end was cut"]);
    // The older copy was used again, so it has other rows with the same numbers as the anchored rows.
    let other = AnchoredAudit::At(AuditEnd { number: 7, digest: "00".to_owned() });
    assert!(problems(&head, &rows, other.clone())[0].contains("was continued from an older copy"));
    assert!(problems(&head, &rows, AnchoredAudit::Lost)[0].contains("store.anchor is missing"));
    assert!(verified_with(&key, HeadFound::Missing, &[], AnchoredAudit::Lost).whole, "there never was a row");
    rows[..7].iter().for_each(|row| head.drop_first(row.clone()));
    for number in 1..=9 {
        assert!(problems(&head, &rows[7..], at(number)).is_empty(), "{number}");
    }
    assert!(problems(&head, &rows[7..], other)[0].contains("was continued from an older copy"));
}

#[test]
fn what_was_done_to_rows_is_told_with_the_place() {
    let (_folder, key) = key();
    let (head, rows) = chain(&key, 9);
    let problems = |rows: &[Linked]| {
        let report = verified(&key, HeadFound::Sound(head.clone()), rows);
        assert!(!report.whole);
        report.problems.join("; ")
    };
    let without = |from: usize, to: usize| [&rows[..from], &rows[to..]].concat();
    assert_eq!(problems(&without(4, 5)), "row 5 is missing");
    assert_eq!(problems(&without(0, 2)), "rows 1 to 2 are missing");
    assert_eq!(problems(&without(7, 9)), "rows 8 to 9 are missing");
    assert_eq!(problems(&[]), "rows 1 to 9 are missing");
    let mut changed = rows.clone();
    changed[3].entry.server = Some("other".to_owned());
    assert_eq!(problems(&changed), "row 4 is not as it was written, or is not in its place");
    let mut moved = rows.clone();
    moved.swap(2, 3);
    (moved[2].number, moved[3].number) = (3, 4);
    assert!(problems(&moved).starts_with("row 3 is not as it was written"));
    let mut more = rows.clone();
    more.push(Linked { number: 10, ..rows[8].clone() });
    assert!(problems(&more).contains("row 10 is not as it was written") && problems(&more).contains("after row 9"));
}

#[test]
fn a_head_that_is_gone_forged_or_older_is_told() {
    let (_folder, key) = key();
    let (head, rows) = chain(&key, 5);
    let (older, _) = chain(&key, 3);
    let problems = |head, rows: &[Linked]| verified(&key, head, rows).problems.join("; ");
    assert!(problems(HeadFound::Missing, &rows).contains("head of the chain is missing"));
    assert!(problems(HeadFound::Changed, &rows).contains("head of the chain or the list of gateways that write the audit was changed"));
    assert!(problems(HeadFound::Sound(older.clone()), &rows).contains("after row 3"));
    let other = Head { digest: older.digest, ..head.clone() };
    assert!(problems(HeadFound::Sound(other), &rows).contains("the last row, 5, is not the one"));
    assert_ne!(head.mac(&key, &[]), Head { last: 4, ..head.clone() }.mac(&key, &[]));
    let writers = |told| [WriterRow { id: "a".to_owned(), told }];
    assert!(head.mac(&key, &[]) != head.mac(&key, &writers(1)) && head.mac(&key, &writers(1)) != head.mac(&key, &writers(2)));
    let damage = chain(&key, 1).0.append(&key, Entry::damage(1, 1));
    assert!(problems(HeadFound::Missing, &[damage]).contains("another program has changed the audit"));
}

#[test]
fn a_writer_takes_no_head_that_does_not_go_on_from_what_it_has_seen() {
    let (_folder, key) = key();
    let (mut head, rows) = chain(&key, 5);
    let end = |number: u64, digest: &str| AuditEnd { number, digest: digest.to_owned() };
    let digest = |number: usize| hex::encode(&rows[number - 1].digest);
    let usable =
        |head: HeadFound, is_empty, known: Option<AuditEnd>, there: Option<&str>| head.usable(is_empty, known.as_ref(), there).is_some();
    let sound = |known, there| usable(HeadFound::Sound(head.clone()), false, Some(known), there);
    assert!(
        sound(end(5, "ab"), Some("ab")) && sound(end(2, "ab"), Some("ab")) && usable(HeadFound::Sound(head.clone()), false, None, None)
    );
    assert!(!sound(end(6, "ab"), None), "the head is behind");
    assert!(
        !sound(end(5, "ab"), Some("cd")) && !sound(end(2, "ab"), Some("cd")) && !sound(end(2, "ab"), None),
        "another row is in its place"
    );
    rows[..3].iter().for_each(|row| head.drop_first(row.clone()));
    let trimmed = |known| usable(HeadFound::Sound(head.clone()), false, Some(known), None);
    assert!(trimmed(end(3, &digest(3))) && trimmed(end(2, "ab")) && !trimmed(end(3, "ab")));
    let missing = |is_empty, known| usable(HeadFound::Missing, is_empty, known, None);
    assert!(missing(true, None) && !missing(true, Some(end(1, "ab"))) && !missing(false, None));
    assert!(!usable(HeadFound::Changed, true, None, None));
}

#[test]
fn a_chain_that_is_not_the_one_that_a_process_has_seen_is_told_whatever_the_anchor_says() {
    let (_folder, key) = key();
    let (head, rows) = chain(&key, 5);
    let problems = |seen: AuditEnd| {
        let mut verification = Verification::new(&key, HeadFound::Sound(head.clone()), AnchoredAudit::Nothing, Some(seen));
        for row in &rows {
            verification.row(row);
        }
        verification.end().problems.join("; ")
    };
    assert_eq!(problems(head.end().unwrap()), "");
    let other = |number| AuditEnd { number, digest: "00".to_owned() };
    assert_eq!(problems(other(4)), "row 4 is not the row that was seen by this process: the audit was continued from an older copy");
    assert!(problems(other(6)).contains("the audit ends with row 5, but row 6 was written once"));
}

/// The changes that somebody without the key can make to one row.
#[derive(Debug, Clone)]
enum Tampering {
    Remove(usize),
    Swap(usize, usize),
    Repeat(usize),
    Text(usize),
    Time(usize),
    Digest(usize),
    Cut(usize),
}

fn tampering() -> impl Strategy<Value = Tampering> {
    prop_oneof![
        (0..12_usize).prop_map(Tampering::Remove),
        (0..12_usize, 1..12_usize).prop_map(|(one, by)| Tampering::Swap(one, (one + by) % 12)),
        (0..12_usize).prop_map(Tampering::Repeat),
        (0..12_usize).prop_map(Tampering::Text),
        (0..12_usize).prop_map(Tampering::Time),
        (0..12_usize).prop_map(Tampering::Digest),
        (1..12_usize).prop_map(Tampering::Cut),
    ]
}

proptest! {
    #[test]
    fn whatever_is_done_to_rows_without_the_key_is_noticed(tampering in tampering(), renumbers in any::<bool>()) {
        let (_folder, key) = key();
        let (head, mut rows) = chain(&key, 12);
        match tampering {
            Tampering::Remove(at) => drop(rows.remove(at)),
            Tampering::Swap(one, other) => rows.swap(one, other),
            Tampering::Repeat(at) => rows.insert(at, rows[at].clone()),
            Tampering::Text(at) => rows[at].entry.body.push(' '),
            Tampering::Time(at) => rows[at].entry.at += 1,
            Tampering::Digest(at) => rows[at].digest[0] ^= 1,
            Tampering::Cut(by) => rows.truncate(12 - by),
        }
        if renumbers {
            (1..).zip(&mut rows).for_each(|(number, row)| row.number = number);
        }
        prop_assert!(!verified(&key, HeadFound::Sound(head), &rows).whole);
    }
}
