-- What servers tell each other of themselves: a row for each, written every few seconds and soon forgotten. Nothing of it needs to
-- survive the database.
CREATE UNLOGGED TABLE servers (
    id TEXT COLLATE "C" PRIMARY KEY,
    -- By the database's clock, in microseconds since 1970.
    at BIGINT NOT NULL,
    document TEXT NOT NULL
);

-- The key of the hashes that replace callers where those are hidden. Unlike the identity it is secret, and never changes.
ALTER TABLE control ADD COLUMN secret TEXT NOT NULL DEFAULT '';
UPDATE control SET secret = replace(gen_random_uuid()::text, '-', '');
