//! Where the sidecar listens, and who may come in. Whoever reaches the filter's listener can drain any bucket, so it is a Unix
//! socket that only named users can open; TCP is for a trial on the same machine.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use tokio::net::{TcpListener, UnixListener};

/// The socket's mode: its user and group may connect.
const SOCKET_MODE: u32 = 0o660;
/// The mode of a directory that is made for it.
const DIRECTORY_MODE: u32 = 0o750;
/// The longest path that a Unix socket can have on Linux, in bytes.
const PATH_MAX: usize = 107;

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A Unix socket's path.
    Unix(PathBuf),
    /// An address and port.
    Tcp(SocketAddr),
}

/// A bound socket.
#[derive(Debug)]
pub enum Listener {
    /// A Unix socket, and the users that may connect.
    Unix(UnixListener, Vec<u32>),
    /// A TCP socket.
    Tcp(TcpListener),
}

// === impl Address ===

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("unix", path)) if path.len() > PATH_MAX => {
                Err(format!("the path has more than {PATH_MAX} bytes; use a shorter one"))
            }
            Some(("unix", path)) if !path.is_empty() => Ok(Self::Unix(path.into())),
            Some(("tcp", address)) => address
                .parse()
                .map(Self::Tcp)
                .map_err(|_| "want an address and port, such as tcp:127.0.0.1:9181".to_owned()),
            _ => Err("want unix:PATH or tcp:ADDRESS:PORT".to_owned()),
        }
    }
}

// === impl Listener ===

impl Listener {
    /// Binds the filter's listener. `allowed` are the users that may connect to a Unix socket.
    ///
    /// # Errors
    /// It can't be bound; the message names the path or port.
    pub async fn bind(address: &Address, allowed: &[u32]) -> Result<Self, String> {
        match address {
            Address::Unix(path) => bind_unix(path)
                .await
                .map(|listener| Self::Unix(listener, allowed.to_vec()))
                .map_err(|error| format!("cannot listen on unix:{}: {error}", path.display())),
            Address::Tcp(address) => Self::bind_tcp(*address).await,
        }
    }

    /// Binds a TCP port.
    ///
    /// # Errors
    /// It can't be bound; the message names it.
    pub async fn bind_tcp(address: SocketAddr) -> Result<Self, String> {
        TcpListener::bind(address)
            .await
            .map(Self::Tcp)
            .map_err(|error| format!("cannot listen on tcp:{address}: {error}"))
    }

    /// Where it listens: a port that was 0 is the one that was given.
    #[must_use]
    pub fn address(&self) -> String {
        match self {
            Self::Unix(listener, _) => listener
                .local_addr()
                .ok()
                .and_then(|address| Some(format!("unix:{}", address.as_pathname()?.display())))
                .unwrap_or_default(),
            Self::Tcp(listener) => {
                listener.local_addr().map(|address| format!("tcp:{address}")).unwrap_or_default()
            }
        }
    }
}

async fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty())
        && !directory.exists()
    {
        fs::DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(directory)?;
    }
    remove_stale(path).await?;
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(SOCKET_MODE))?;
    Ok(listener)
}

/// Removes a socket that nobody listens on. Anything else at its place is somebody's, and stays.
async fn remove_stale(path: &Path) -> io::Result<()> {
    let kind = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !kind.is_socket() {
        return Err(io::Error::other("something that is no socket is there; move it away"));
    }
    match tokio::net::UnixStream::connect(path).await {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        _ => Err(io::Error::other("another process listens there; stop it or choose another path")),
    }
}

#[cfg(test)]
mod tests;
