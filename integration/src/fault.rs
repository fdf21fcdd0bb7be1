//! A proxy that stands between two parts and misbehaves on demand: TCP or Unix socket, whatever the protocol.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::bootstrap::Endpoint;
use crate::wait;

/// What the proxy does with the traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Hands everything on.
    Pass,
    /// Hands everything on, answers later than they came. Pipelined answers keep their distance.
    Delay(Duration),
    /// Nobody listens: connections are refused, or the socket is missing; those that exist are closed.
    Gone,
    /// Accepts, then closes at once; existing connections are closed too.
    Cut,
    /// Accepts and reads, hands on nothing and answers nothing.
    Swallow,
    /// Accepts and reads, hands on nothing and answers with nonsense.
    Garbage,
    /// Hands requests on, and of the answers on each connection only so many bytes more; then silence.
    Half(usize),
    /// As `Half`, but then closes the connection.
    HalfThenCut(usize),
    /// Hands requests on and drops the answers: done, but nobody hears of it.
    DropReply,
}

/// A running proxy. Dropping it closes everything.
#[derive(Debug)]
pub struct FaultProxy {
    shared: Arc<Shared>,
    front: Endpoint,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    applied: AtomicU64, // the newest generation that the accepting thread has seen
    accepted: AtomicU64,
}

#[derive(Debug)]
struct State {
    fault: Fault,
    generation: u64,
    ended: bool,
    open: Vec<Socket>,
}

#[derive(Debug)]
enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

// === impl FaultProxy ===

impl FaultProxy {
    /// Listens on `front` and hands on to `back`.
    ///
    /// # Panics
    /// When it can't listen.
    #[must_use]
    pub fn start(front: Endpoint, back: Endpoint) -> Self {
        let state = State { fault: Fault::Pass, generation: 1, ended: false, open: Vec::new() };
        let shared =
            Shared { state: Mutex::new(state), applied: AtomicU64::new(0), accepted: AtomicU64::new(0) };
        let shared = Arc::new(shared);
        let (ours, listen) = (Arc::clone(&shared), front.clone());
        thread::Builder::new()
            .name("fault-proxy".into())
            .spawn(move || accept(&ours, &listen, &back))
            .expect("a thread");
        let proxy = Self { shared, front };
        proxy.wait_applied(1);
        proxy
    }

    /// Where it listens.
    #[must_use]
    pub fn front(&self) -> &Endpoint {
        &self.front
    }

    /// Misbehaves like this from now on. Connections that a fault has left out of step are closed when it ends; `Delay` to `Pass` keeps them.
    pub fn set(&self, fault: Fault) {
        let generation = {
            let mut state = self.shared.state();
            let soft = |fault| matches!(fault, Fault::Pass | Fault::Delay(_));
            if !soft(state.fault) || matches!(fault, Fault::Cut | Fault::Gone) {
                state.close_all();
            }
            state.fault = fault;
            state.generation += 1;
            state.generation
        };
        self.wait_applied(generation);
    }

    /// Closes the connections that exist and keeps the fault as it is.
    pub fn disconnect(&self) {
        self.shared.state().close_all();
    }

    /// Connections accepted so far.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.shared.accepted.load(Ordering::Relaxed)
    }

    fn wait_applied(&self, generation: u64) {
        wait::until_true("the proxy has taken the fault", || {
            self.shared.applied.load(Ordering::Acquire) >= generation
        });
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.ended = true;
        state.close_all();
    }
}

// === impl Shared ===

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fault(&self) -> Fault {
        self.state().fault
    }
}

// === impl State ===

impl State {
    fn close_all(&mut self) {
        for socket in self.open.drain(..) {
            socket.close();
        }
    }
}

/// The accepting thread: opens and closes the listener as the fault wants, and starts a pair of pumps for each connection.
fn accept(shared: &Arc<Shared>, front: &Endpoint, back: &Endpoint) {
    let mut listener = None;
    loop {
        let (fault, generation, ended) = {
            let state = shared.state();
            (state.fault, state.generation, state.ended)
        };
        if ended || fault == Fault::Gone {
            listener = None;
            if let Endpoint::Unix(path) = front {
                let _ = std::fs::remove_file(path); // absent is what is wanted
            }
        } else if listener.is_none() {
            listener = Some(Listener::bind(front).unwrap_or_else(|e| panic!("{front:?}: {e}")));
        }
        if ended {
            return;
        }
        shared.applied.fetch_max(generation, Ordering::Release);
        match listener.as_ref().map(Listener::accept) {
            Some(Ok(client)) => {
                shared.accepted.fetch_add(1, Ordering::Relaxed);
                let _ = serve(shared, client, back); // a back end that is away closes the connection
            }
            _ => thread::sleep(Duration::from_millis(1)),
        }
    }
}

fn serve(shared: &Arc<Shared>, client: Socket, back: &Endpoint) -> io::Result<()> {
    if shared.fault() == Fault::Cut {
        client.close();
        return Ok(());
    }
    let server = Socket::connect(back).inspect_err(|_| client.close())?;
    shared.state().open.extend([client.copy()?, server.copy()?]);
    let (shared_up, from_client, to_server) = (Arc::clone(shared), client.copy()?, server.copy()?);
    let to_client = client.copy()?;
    thread::spawn(move || pump_requests(&shared_up, from_client, to_server, to_client));
    let (later, due) = channel();
    let shared_down = Arc::clone(shared);
    let from_server = server.copy()?;
    thread::spawn(move || read_answers(from_server, &later));
    thread::spawn(move || pump_answers(&shared_down, &due, client, &server));
    Ok(())
}

fn pump_requests(shared: &Shared, mut client: Socket, mut server: Socket, mut back_to_client: Socket) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(read @ 1..) = client.read(&mut buffer) {
        let done = match shared.fault() {
            Fault::Swallow => Ok(()),
            Fault::Garbage => {
                back_to_client.write_all(b"\x00\xff\x13\x37 this is neither HTTP nor RESP\r\n\r\n")
            }
            _ => server.write_all(&buffer[..read]),
        };
        if done.is_err() {
            break;
        }
    }
    client.close();
    server.close();
}

fn read_answers(mut server: Socket, later: &Sender<(Instant, Vec<u8>)>) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(read @ 1..) = server.read(&mut buffer) {
        if later.send((Instant::now(), buffer[..read].to_vec())).is_err() {
            return;
        }
    }
}

fn pump_answers(shared: &Shared, due: &Receiver<(Instant, Vec<u8>)>, mut client: Socket, server: &Socket) {
    let mut passed = 0; // bytes of answers since this connection met `Half`
    for (came, bytes) in due {
        let done = match shared.fault() {
            Fault::Swallow | Fault::Garbage | Fault::DropReply | Fault::Cut | Fault::Gone => Ok(()),
            Fault::Pass => client.write_all(&bytes),
            Fault::Delay(by) => {
                thread::sleep((came + by).saturating_duration_since(Instant::now()));
                client.write_all(&bytes)
            }
            fault @ (Fault::Half(limit) | Fault::HalfThenCut(limit)) => {
                let part = bytes.len().min(limit.saturating_sub(passed));
                passed += part;
                let cut = part < bytes.len() && matches!(fault, Fault::HalfThenCut(_));
                client
                    .write_all(&bytes[..part])
                    .and_then(|()| if cut { Err(io::ErrorKind::Other.into()) } else { Ok(()) })
            }
        };
        if done.is_err() {
            break;
        }
    }
    client.close();
    server.close();
}

// === impl Listener ===

impl Listener {
    fn bind(at: &Endpoint) -> io::Result<Self> {
        match at {
            Endpoint::Tcp(port) => {
                let listener = TcpListener::bind(("127.0.0.1", *port))?;
                listener.set_nonblocking(true)?;
                Ok(Self::Tcp(listener))
            }
            Endpoint::Unix(path) => {
                let _ = std::fs::remove_file(path); // of an earlier listener
                let listener = UnixListener::bind(path)?;
                listener.set_nonblocking(true)?;
                Ok(Self::Unix(listener))
            }
        }
    }

    fn accept(&self) -> io::Result<Socket> {
        match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(false)?;
                stream.set_nodelay(true)?;
                Ok(Socket::Tcp(stream))
            }
            Self::Unix(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(false)?;
                Ok(Socket::Unix(stream))
            }
        }
    }
}

// === impl Socket ===

impl Socket {
    fn connect(to: &Endpoint) -> io::Result<Self> {
        match to {
            Endpoint::Tcp(port) => {
                let stream = TcpStream::connect(("127.0.0.1", *port))?;
                stream.set_nodelay(true)?;
                Ok(Self::Tcp(stream))
            }
            Endpoint::Unix(path) => UnixStream::connect(path).map(Self::Unix),
        }
    }

    fn copy(&self) -> io::Result<Self> {
        match self {
            Self::Tcp(stream) => stream.try_clone().map(Self::Tcp),
            Self::Unix(stream) => stream.try_clone().map(Self::Unix),
        }
    }

    /// Closes it for all its copies.
    fn close(&self) {
        let _ = match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Self::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
