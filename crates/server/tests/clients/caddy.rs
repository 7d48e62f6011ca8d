//! caddy
