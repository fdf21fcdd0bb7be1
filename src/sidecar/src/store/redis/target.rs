//! Which Redis: a URL, kept so that its password can't be printed.

use super::check;
use super::tls::{BadFile, Tls, TlsFiles};
use crate::store::Status;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo};
use std::fmt;
use std::path::PathBuf;
use tokio::net::TcpStream;

/// The most hosts of a URL.
const HOSTS_MAX: usize = 32;
/// Pipelines that may wait to be written. The crate's 50 would make busy callers wait for each other.
const QUEUE: usize = 1_024;
const FORMS: &str = "want memory, redis://HOST:PORT[,HOST:PORT…], redis+cluster://…, rediss://…, rediss+cluster://… or unix:///PATH";

/// How Redis says, from 6.2 on, that the database may not be selected.
const NO_SELECT: &str = "no permissions to run the 'select' command";

/// A Redis to connect to.
#[derive(Clone)]
pub struct Target {
    shape: Shape,
    places: Vec<Place>,
    door: Door,
}

/// What the places of a URL are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// One primary; if there are several places, one of them is it and the others are its replicas.
    One,
    /// Some of a cluster's nodes.
    Cluster,
}

/// Where one server listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Place {
    /// A host's name or address (IPv6 without brackets), and a port.
    Tcp(String, u16),
    /// A socket.
    Unix(PathBuf),
}

/// How to come in, wherever that is: as whom, and behind TLS or not.
#[derive(Clone)]
pub(super) struct Door {
    login: RedisConnectionInfo,
    tls: Option<Tls>,
}

// === impl Target ===

impl Target {
    /// Reads a URL: `redis[s][+cluster]://[user][:password]@host[:port][,host[:port]…][/db]` or
    /// `unix:///path[?db=n&user=…&pass=…]`. TLS trusts nobody before [`Self::with_tls`].
    ///
    /// # Errors
    /// What to write instead; never any part of the URL but its scheme.
    pub fn parse(url: &str) -> Result<Self, String> {
        let (shape, tls) = match url.split_once("://").map(|(scheme, _)| scheme) {
            Some("redis" | "unix" | "redis+unix") => (Shape::One, false),
            Some("rediss") => (Shape::One, true),
            Some("redis+cluster") => (Shape::Cluster, false),
            Some("rediss+cluster") => (Shape::Cluster, true),
            _ => return Err(FORMS.to_owned()),
        };
        let (places, login) = places(url).ok_or_else(|| format!("is no Redis URL; {FORMS}"))?;
        if places.len() > HOSTS_MAX {
            return Err(format!("names {} hosts; at most {HOSTS_MAX} are of use", places.len()));
        }
        if shape == Shape::Cluster && login.db() != 0 {
            return Err("a Redis Cluster has database 0 only; leave the /DB out".to_owned());
        }
        let tls = if tls { Some(Tls::nobody().map_err(|bad| bad.remedy)?) } else { None };
        Ok(Self { shape, places, door: Door { login, tls } })
    }

    /// Whether it is reached through TLS.
    #[must_use]
    pub fn is_secure(&self) -> bool {
        self.door.tls.is_some()
    }

    /// The same with these files for TLS.
    ///
    /// # Errors
    /// A file that can't be used.
    pub fn with_tls(mut self, files: &TlsFiles) -> Result<Self, BadFile> {
        if self.is_secure() {
            self.door.tls = Some(Tls::load(files)?);
        }
        Ok(self)
    }

    pub(super) fn shape(&self) -> Shape {
        self.shape
    }

    /// Never empty.
    pub(super) fn places(&self) -> &[Place] {
        &self.places
    }

    pub(super) fn door(&self) -> &Door {
        &self.door
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places: Vec<String> = self.places.iter().map(ToString::to_string).collect();
        write!(out, "Target({})", places.join(","))
    }
}

// === impl Door ===

impl Door {
    /// Connects and logs in.
    ///
    /// # Errors
    /// What is in the way, as a status.
    pub(super) async fn open(&self, place: &Place) -> Result<MultiplexedConnection, Status> {
        let config = AsyncConnectionConfig::new()
            // Whoever connects and whoever calls has a deadline of his own.
            .set_connection_timeout(None)
            .set_response_timeout(None)
            .set_pipeline_buffer_size(QUEUE);
        let opened = match (place, &self.tls) {
            (Place::Tcp(host, port), Some(tls)) => {
                let away = |error| Status::Away(format!("connect: {error}"));
                let stream = TcpStream::connect((host.as_str(), *port)).await.map_err(away)?;
                stream.set_nodelay(true).map_err(away)?;
                let stream = tls.secure(host, stream).await?;
                MultiplexedConnection::new_with_config(&self.login, stream, config).await.map(
                    |(connection, driver)| {
                        // It ends with the last clone of the connection.
                        tokio::spawn(driver);
                        connection
                    },
                )
            }
            _ => match self.client(place) {
                Ok(client) => client.get_multiplexed_async_connection_with_config(&config).await,
                Err(error) => Err(error),
            },
        };
        opened.map_err(|error| match check::status("connect", &error) {
            // The library tells it in its own words.
            Status::Unfit(cause) if cause.contains(NO_SELECT) => {
                Status::Unfit(format!("{cause}; grant +select, or leave the /DB out"))
            }
            status => status,
        })
    }

    fn client(&self, place: &Place) -> redis::RedisResult<Client> {
        let addr = match place {
            Place::Tcp(host, port) => ConnectionAddr::Tcp(host.clone(), *port),
            Place::Unix(path) => ConnectionAddr::Unix(path.clone()),
        };
        Client::open(addr.into_connection_info()?.set_redis_settings(self.login.clone()))
    }
}

// === impl Place ===

impl Place {
    /// The host and port that a server tells of another, as in `10.0.0.7:6379` or `::1:6379`. Where it does not know the host,
    /// it is the server's own, `asked`.
    pub(super) fn told(text: &str, asked: &Self) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        Self::told_parts(host, port.parse().ok()?, asked)
    }

    /// The same in parts.
    pub(super) fn told_parts(host: &str, port: u16, asked: &Self) -> Option<Self> {
        match (host, asked) {
            ("?", _) | ("", Self::Unix(_)) => None,
            ("", Self::Tcp(asked, _)) => Some(Self::Tcp(asked.clone(), port)),
            (host, _) => Some(Self::Tcp(host.to_owned(), port)),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host, port) if host.contains(':') => write!(out, "[{host}]:{port}"),
            Self::Tcp(host, port) => write!(out, "{host}:{port}"),
            Self::Unix(path) => write!(out, "{}", path.display()),
        }
    }
}

/// The places of a URL and who we are there.
fn places(url: &str) -> Option<(Vec<Place>, RedisConnectionInfo)> {
    let (scheme, rest) = url.split_once("://")?;
    if scheme.ends_with("unix") {
        return place(url).map(|(place, login)| (vec![place], login));
    }
    let (authority, tail) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    // TLS can't be weakened by a fragment, as it can in the library.
    if tail.contains('#') {
        return None;
    }
    let (user, hosts) = match authority.rsplit_once('@') {
        Some((user, hosts)) => (format!("{user}@"), hosts),
        None => (String::new(), authority),
    };
    let mut login = None;
    let mut places = Vec::new();
    for host in hosts.split(',') {
        let (place, same) = place(&format!("redis://{user}{host}{tail}"))?;
        login.get_or_insert(same);
        places.push(place);
    }
    Some((places, login?))
}

fn place(url: &str) -> Option<(Place, RedisConnectionInfo)> {
    let info = url.into_connection_info().ok()?;
    let place = match info.addr() {
        ConnectionAddr::Tcp(host, port) => Place::Tcp(host.clone(), *port),
        ConnectionAddr::Unix(path) => Place::Unix(path.clone()),
        _ => return None,
    };
    Some((place, info.redis_settings().clone()))
}

#[cfg(test)]
mod tests;
