//! A store of shards that keeps deciding while some of them are away.
