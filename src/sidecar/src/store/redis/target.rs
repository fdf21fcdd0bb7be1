//! Which Redis: a URL, kept so that its password can't be printed.

use redis::{Client, ConnectionAddr};
use std::fmt;

/// A Redis to connect to.
#[derive(Clone)]
pub struct Target {
    client: Client,
}

// === impl Target ===

impl Target {
    /// Reads a URL: `redis://[user][:password@]host[:port][/db]` or `unix:///path[?db=n&user=…&pass=…]`.
    ///
    /// # Errors
    /// What to write instead; never any part of the URL but its scheme.
    pub fn parse(url: &str) -> Result<Self, String> {
        match url.split_once("://").map(|(scheme, _)| scheme) {
            Some("redis" | "unix" | "redis+unix") => {}
            Some(scheme @ ("rediss" | "redis+cluster" | "valkeys")) => {
                return Err(format!(
                    "{scheme}:// is not in this version; use redis://HOST:PORT or unix:///PATH"
                ));
            }
            _ => return Err("want memory, redis://HOST:PORT or unix:///PATH".to_owned()),
        }
        Client::open(url).map(|client| Self { client }).map_err(|_| {
            "is no Redis URL; want redis://[USER:PASSWORD@]HOST[:PORT][/DB] or unix:///PATH".to_owned()
        })
    }

    /// The client that makes connections to it.
    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Where it is, without who we are there.
    pub(super) fn place(&self) -> &ConnectionAddr {
        self.client.get_connection_info().addr()
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Target({})", self.place())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_and_what_is_no_url_is_refused_without_being_repeated() {
        let target = Target::parse("redis://user:s3cret@redis.example:6380/2").unwrap();
        assert_eq!(format!("{target:?}"), "Target(redis.example:6380)");
        let target = Target::parse("unix:///run/redis.sock?pass=s3cret").unwrap();
        assert_eq!(format!("{target:?}"), "Target(/run/redis.sock)");
        for url in [
            "",
            "memory ",
            "redis:",
            "redis://:s3cret@",
            "http://s3cret",
            "rediss://s3cret",
            "redis+cluster://s3cret",
        ] {
            assert!(!Target::parse(url).unwrap_err().contains("s3cret"), "{url}");
        }
    }
}
