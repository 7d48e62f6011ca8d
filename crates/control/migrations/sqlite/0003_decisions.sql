-- The decision log: what was decided about whom. A row is written once, by the server that decided (its origin, a number that it draws
-- when it starts), and forgotten after a while. The document is JSON. Times are microseconds since 1970.
CREATE TABLE decisions (
    origin BIGINT NOT NULL,
    number BIGINT NOT NULL,
    at BIGINT NOT NULL,
    domain TEXT NOT NULL,
    caller TEXT,
    rule TEXT,
    document TEXT NOT NULL,
    PRIMARY KEY (origin, number)
);
CREATE INDEX decisions_caller ON decisions (caller, at);
CREATE INDEX decisions_at ON decisions (at);
