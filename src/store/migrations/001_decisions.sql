-- Rows that decide anything: approvals, grants, servers that agents added. Each row is authenticated, and so is the set of rows of one kind.
CREATE TABLE decisions (
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    mac  BLOB NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (kind, name)
) STRICT, WITHOUT ROWID;

-- All MACs of a kind are read whenever one of its rows has changed, so they also stand together, without the bodies.
CREATE INDEX macs ON decisions (kind, name, mac);

-- One row for each kind. The MAC covers the id of the anchor, the kind, the number of changes so far, and the MACs of all rows of this kind.
CREATE TABLE seals (
    kind    TEXT PRIMARY KEY,
    changes INTEGER NOT NULL,
    mac     BLOB NOT NULL
) STRICT, WITHOUT ROWID;

-- Rows whose seal did not fit. They decide nothing, and are kept so that a person can examine them.
CREATE TABLE set_aside (
    kind    TEXT NOT NULL,
    name    TEXT NOT NULL,
    body    BLOB NOT NULL,
    problem TEXT NOT NULL,
    time    INTEGER NOT NULL
) STRICT;
