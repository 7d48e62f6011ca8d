//! Split frames, comparison with Redis, real clients, misbehaving clients.

mod clients;
mod commands;
mod conduct;
mod frames;
mod server;
mod waiting;
