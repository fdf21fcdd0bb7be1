//! What no client and no fault may do to Kota: trap its VM, leave a stream hanging, answer wrongly, or eat memory.
//!
//! Each case comes twice: a tenth of it in every run, the whole as an ignored test (`make test-long`, in release). Deadlines are
//! long (30 s), so that a slow machine fails nothing by chance; what a case does by chance follows from a seed that it prints
//! (`KOTA_SEED` repeats it).

mod calm;
mod chain;
mod changes;
mod chaos;
mod crowd;
mod frames;
mod h1;
mod h2;
mod random;
mod refused;
mod rules;
mod shape;
mod storm;
mod traffic;
mod waiting;
