-- What servers tell each other of themselves: a row for each, written every few seconds and soon forgotten. Nothing of it needs to
-- survive the database.
CREATE UNLOGGED TABLE servers (
    id TEXT COLLATE "C" PRIMARY KEY,
    -- By the database's clock, in microseconds since 1970.
    at BIGINT NOT NULL,
    document TEXT NOT NULL
);

-- The key of hashes that stand for callers where those are not shown. Unlike the identity it is told to nobody, and stays.
ALTER TABLE control ADD COLUMN secret TEXT NOT NULL DEFAULT '';
UPDATE control SET secret = replace(gen_random_uuid()::text, '-', '');
