//! See the next change.
fn main() {}
