-- What servers tell each other of themselves: a row for each, written every few seconds and soon forgotten.
CREATE TABLE servers (
    id TEXT PRIMARY KEY,
    -- By the database's clock, in microseconds since 1970.
    at BIGINT NOT NULL,
    document TEXT NOT NULL
);

-- The key of hashes that stand for callers where those are not shown. Unlike the identity it is told to nobody, and stays.
ALTER TABLE control ADD COLUMN secret TEXT NOT NULL DEFAULT '';
UPDATE control SET secret = lower(hex(randomblob(16)));
