//! JSON that people write, read strictly: every fault is noted with its path and its remedy, and reading goes on.

pub(crate) mod fault;
pub(crate) mod number;
pub(crate) mod spot;
pub(crate) mod tree;
