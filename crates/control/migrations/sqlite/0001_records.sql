-- One row. Every write begins by taking it, so writes follow one another in the order of their generations.
CREATE TABLE control (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    generation BIGINT NOT NULL,
    -- The highest generation among the deleted records that are forgotten.
    swept BIGINT NOT NULL,
    -- Tells this history of generations from all others: of other databases, and of this one before it was restored from a backup.
    identity TEXT NOT NULL
);
INSERT INTO control (one, generation, swept, identity) VALUES (1, 0, 0, lower(hex(randomblob(16))));

-- Times are microseconds since 1970. A document is a JSON object, stored as it was written; NULL means deleted.
CREATE TABLE records (
    kind TEXT NOT NULL,
    domain TEXT NOT NULL,
    name TEXT NOT NULL,
    generation BIGINT NOT NULL,
    document TEXT CHECK (document IS NULL OR json_valid(document)),
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    updated_by TEXT NOT NULL,
    reason TEXT NOT NULL,
    PRIMARY KEY (kind, domain, name)
);
CREATE INDEX records_generation ON records (generation);
CREATE INDEX records_deleted ON records (updated_at) WHERE document IS NULL;

-- What happened. Rows are added and never changed.
CREATE TABLE audit (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    generation BIGINT NOT NULL,
    at BIGINT NOT NULL,
    who TEXT NOT NULL,
    address TEXT NOT NULL,
    action TEXT NOT NULL,
    kind TEXT NOT NULL,
    domain TEXT NOT NULL,
    name TEXT NOT NULL,
    before TEXT,
    after TEXT,
    reason TEXT NOT NULL
);
CREATE INDEX audit_name ON audit (kind, domain, name, id);
CREATE INDEX audit_who ON audit (who, id);
CREATE INDEX audit_at ON audit (at);
CREATE TRIGGER audit_is_not_changed BEFORE UPDATE ON audit
BEGIN
    SELECT RAISE(ABORT, 'the audit log is only added to');
END;
CREATE TRIGGER audit_is_not_deleted BEFORE DELETE ON audit
BEGIN
    SELECT RAISE(ABORT, 'the audit log is only added to');
END;

-- Writes under idempotency keys.
CREATE TABLE once (
    key TEXT PRIMARY KEY,
    digest TEXT NOT NULL,
    answer TEXT NOT NULL,
    generation BIGINT NOT NULL,
    at BIGINT NOT NULL
);
CREATE INDEX once_at ON once (at);

-- For people and their tools: a row for each override, and one for a caller that has a tier alone.
CREATE VIEW quota_overrides AS
SELECT
    r.domain AS domain,
    r.name AS caller,
    json_extract(r.document, '$.tier') AS tier,
    json_extract(o.value, '$.descriptor') AS descriptor,
    json_extract(o.value, '$.rule') AS rule,
    json_extract(o.value, '$.requests_per_unit') AS requests_per_unit,
    json_extract(o.value, '$.unit') AS unit,
    json_extract(o.value, '$.limit') AS "limit",
    coalesce(json_extract(o.value, '$.effective_at'), json_extract(r.document, '$.effective_at')) AS effective_at,
    coalesce(json_extract(o.value, '$.expires_at'), json_extract(r.document, '$.expires_at')) AS expires_at,
    strftime('%Y-%m-%dT%H:%M:%S', r.created_at / 1000000, 'unixepoch') || printf('.%06dZ', r.created_at % 1000000) AS created_at,
    strftime('%Y-%m-%dT%H:%M:%S', r.updated_at / 1000000, 'unixepoch') || printf('.%06dZ', r.updated_at % 1000000) AS updated_at,
    r.updated_by AS updated_by,
    r.reason AS reason,
    r.generation AS generation
FROM records r
LEFT JOIN json_each(r.document, '$.overrides') o ON o.type = 'object'
WHERE r.kind = 'quota' AND r.document IS NOT NULL;

CREATE VIEW audit_log AS
SELECT
    id,
    strftime('%Y-%m-%dT%H:%M:%S', at / 1000000, 'unixepoch') || printf('.%06dZ', at % 1000000) AS at,
    who, address, action, kind, domain, name, before, after, reason, generation
FROM audit;
