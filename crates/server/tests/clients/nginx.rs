//! nginx
