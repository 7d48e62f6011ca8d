-- What servers tell each other of themselves: a row for each, written every few seconds and soon forgotten.
CREATE TABLE servers (
    id TEXT PRIMARY KEY,
    -- By the database's clock, in microseconds since 1970.
    at BIGINT NOT NULL,
    document TEXT NOT NULL
);

-- The key of the hashes that replace callers where those are hidden. Unlike the identity it is secret, and never changes.
ALTER TABLE control ADD COLUMN secret TEXT NOT NULL DEFAULT '';
UPDATE control SET secret = lower(hex(randomblob(16)));
