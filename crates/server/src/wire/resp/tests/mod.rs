//! Frames split anywhere, Redis's own words beside ours, real clients, clients that misbehave.

mod clients;
mod conduct;
mod frames;
mod server;
mod waiting;
mod words;
