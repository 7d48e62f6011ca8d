//! The reference page, docs/settings.md, which a test holds to the table.
