//! Against the wire itself, over a connection.
