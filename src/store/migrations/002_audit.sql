-- What has happened, in order. The digest of each row covers its content and the digest of the row before it, under the machine's key.
CREATE TABLE audit (
    number INTEGER PRIMARY KEY CHECK (number > 0),
    at     INTEGER NOT NULL CHECK (at >= 0),
    kind   TEXT NOT NULL,
    agent  TEXT,
    server TEXT,
    tool   TEXT,
    body   TEXT NOT NULL,
    digest BLOB NOT NULL
) STRICT;

-- One row: the ends of the chain, and the size of its rows. `anchor` is the digest of the row before the first one that is kept.
CREATE TABLE audit_head (
    id     INTEGER PRIMARY KEY CHECK (id = 1),
    first  INTEGER NOT NULL,
    anchor BLOB NOT NULL,
    last   INTEGER NOT NULL,
    digest BLOB NOT NULL,
    bytes  INTEGER NOT NULL,
    mac    BLOB NOT NULL
) STRICT;

-- The gateways that are writing, with the number of events that each of them has told so far.
CREATE TABLE audit_writers (
    id   TEXT PRIMARY KEY,
    told INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
