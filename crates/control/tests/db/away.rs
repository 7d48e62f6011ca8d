//! A database that goes away and comes back.
