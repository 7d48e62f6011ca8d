-- One row. Every write begins by taking it, so writes follow one another in the order of their generations.
CREATE TABLE control (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    generation BIGINT NOT NULL,
    -- The highest generation among the deleted records that are forgotten.
    swept BIGINT NOT NULL,
    -- Tells this history of generations from all others: of other databases, and of this one before it was restored from a backup.
    identity TEXT NOT NULL
);
INSERT INTO control (one, generation, swept, identity) VALUES (1, 0, 0, replace(gen_random_uuid()::text, '-', ''));

-- Times are microseconds since 1970. A document is a JSON object, stored as it was written; NULL means deleted.
-- Names are ordered by their bytes, as in SQLite, whatever the database's language.
CREATE TABLE records (
    kind TEXT COLLATE "C" NOT NULL,
    domain TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    generation BIGINT NOT NULL,
    document TEXT CHECK (document::jsonb IS NOT NULL OR document IS NULL),
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    updated_by TEXT NOT NULL,
    reason TEXT NOT NULL,
    PRIMARY KEY (kind, domain, name)
);
CREATE INDEX records_generation ON records (generation);
CREATE INDEX records_deleted ON records (updated_at) WHERE document IS NULL;
-- Who is on a tier. Without it a million documents are read as JSON to find a few. An index takes no long texts.
CREATE INDEX records_tier ON records (kind, left(document::jsonb ->> 'tier', 64), domain, name);

-- What happened. Rows are added and never changed.
CREATE TABLE audit (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    generation BIGINT NOT NULL,
    at BIGINT NOT NULL,
    who TEXT COLLATE "C" NOT NULL,
    address TEXT NOT NULL,
    action TEXT NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    domain TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    before TEXT,
    after TEXT,
    reason TEXT NOT NULL
);
CREATE INDEX audit_name ON audit (kind, domain, name, id);
CREATE INDEX audit_who ON audit (who, id);
CREATE INDEX audit_at ON audit (at);
CREATE FUNCTION audit_is_only_added_to() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the audit log is only added to';
END
$$;
CREATE TRIGGER audit_is_not_changed BEFORE UPDATE OR DELETE ON audit
    FOR EACH ROW EXECUTE FUNCTION audit_is_only_added_to();
CREATE TRIGGER audit_is_not_emptied BEFORE TRUNCATE ON audit
    FOR EACH STATEMENT EXECUTE FUNCTION audit_is_only_added_to();

-- Writes under idempotency keys.
CREATE TABLE once (
    key TEXT COLLATE "C" PRIMARY KEY,
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
    d.document ->> 'tier' AS tier,
    o.value ->> 'descriptor' AS descriptor,
    o.value ->> 'rule' AS rule,
    CASE jsonb_typeof(o.value -> 'requests_per_unit') WHEN 'number' THEN (o.value ->> 'requests_per_unit')::numeric END
        AS requests_per_unit,
    o.value ->> 'unit' AS unit,
    o.value ->> 'limit' AS "limit",
    coalesce(o.value ->> 'effective_at', d.document ->> 'effective_at') AS effective_at,
    coalesce(o.value ->> 'expires_at', d.document ->> 'expires_at') AS expires_at,
    timestamptz 'epoch' + r.created_at * interval '1 microsecond' AS created_at,
    timestamptz 'epoch' + r.updated_at * interval '1 microsecond' AS updated_at,
    r.updated_by AS updated_by,
    r.reason AS reason,
    r.generation AS generation
FROM records r
CROSS JOIN LATERAL (SELECT r.document::jsonb AS document) d
LEFT JOIN LATERAL jsonb_array_elements(
    CASE jsonb_typeof(d.document -> 'overrides') WHEN 'array' THEN d.document -> 'overrides' ELSE '[]' END
) o ON jsonb_typeof(o.value) = 'object'
WHERE r.kind = 'quota' AND r.document IS NOT NULL;

CREATE VIEW audit_log AS
SELECT
    id,
    timestamptz 'epoch' + at * interval '1 microsecond' AS at,
    who, address, action, kind, domain, name, before, after, reason, generation
FROM audit;
