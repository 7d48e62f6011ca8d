//! The script that settles claims: the files of `lua/`, concatenated.

/// The text of the script.
pub(super) const SCRIPT: &str = concat!(
    include_str!("lua/head.lua"),
    include_str!("lua/values.lua"),
    include_str!("lua/simple.lua"),
    include_str!("lua/general.lua"),
    include_str!("lua/bucket.lua"),
    include_str!("lua/fixed_window.lua"),
    include_str!("lua/sliding_window.lua"),
    include_str!("lua/sliding_log.lua"),
    include_str!("lua/holds.lua"),
    include_str!("lua/slots.lua"),
    include_str!("lua/settle.lua"),
    include_str!("lua/interacting.lua"),
    include_str!("lua/once.lua"),
    include_str!("lua/main.lua"),
);
