//! See README.
