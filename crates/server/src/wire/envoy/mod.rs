//! Envoy's rate limit messages and what they mean: the part that gRPC and `/json` share.

pub(crate) mod descriptor;
