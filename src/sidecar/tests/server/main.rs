//! The sidecar's two listeners, over real sockets.

mod changing;
mod check;
mod detached;
mod front;
mod ready;
mod secrets;
mod server;
mod slots;
