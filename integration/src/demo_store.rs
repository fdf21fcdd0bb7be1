//! The demo's STORE: refused before anything starts if no sidecar would take it, and shown without its password.

const ACCEPTED: &str = "want memory, redis://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]…][/DB], redis+cluster://…, rediss://…, rediss+cluster://… or unix:///PATH of a Redis";

/// Checks what a sidecar would take as its store.
///
/// # Errors
/// What to write instead.
pub fn check(store: &str) -> Result<(), String> {
    let good = match store.split_once("://") {
        None => store == "memory",
        Some(("redis" | "rediss", rest)) => is_redis(rest, true),
        Some(("redis+cluster" | "rediss+cluster", rest)) => is_redis(rest, false),
        Some(("unix" | "redis+unix", path)) => path.starts_with('/'),
        Some(_) => false,
    };
    if good { Ok(()) } else { Err(ACCEPTED.to_owned()) }
}

/// The store without who we are there: user, password and parameters are left out.
#[must_use]
pub fn shown(store: &str) -> String {
    let (scheme, rest) = store.split_once("://").unwrap_or(("", store));
    // A Unix socket's password is a parameter; elsewhere one may hold any character, but stands before the last @.
    let rest = match scheme {
        "unix" | "redis+unix" => rest,
        _ => rest.rsplit_once('@').map_or(rest, |(_, place)| place),
    };
    let place = rest.split(['?', '#']).next().unwrap_or_default();
    if scheme.is_empty() { place.to_owned() } else { format!("{scheme}://{place}") }
}

/// Whether it is `[user:password@]host[:port][,host[:port]…][/db]`; a cluster has no `db`.
fn is_redis(rest: &str, with_db: bool) -> bool {
    let rest = rest.split('?').next().unwrap_or_default();
    let (authority, db) = rest.split_once('/').unwrap_or((rest, ""));
    let places = authority.rsplit_once('@').map_or(authority, |(_, places)| places);
    places.split(',').all(is_place) && (db.is_empty() || with_db && db.parse::<u32>().is_ok())
}

fn is_place(place: &str) -> bool {
    let (host, port) = match place.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port),
        _ => (place, "6379"),
    };
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._[]:".contains(&byte);
    !host.is_empty() && host.bytes().all(fits) && port.parse::<u16>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_sidecar_takes_is_refused() {
        for store in [
            "memory",
            "redis://h",
            "redis://u:p@h:1/2",
            "redis://[::1]:6379",
            "redis://[::1]",
            "unix:///s",
            "redis://u:p,q@a,b:7000/1",
            "rediss://h",
            "redis+cluster://a:1,b:2",
            "rediss+cluster://u:p@a",
        ] {
            assert_eq!(check(store), Ok(()), "{store}");
        }
        for store in [
            "",
            "memroy",
            "redis://a,,b",
            "redis+cluster://h/1",
            "redis://",
            "redis://u:p@",
            "redis://h:x",
            "redis://h/x",
            "http://h",
            "unix://s",
        ] {
            assert!(check(store).is_err_and(|remedy| remedy.contains("want memory, redis://")), "{store}");
        }
    }

    #[test]
    fn no_password_is_shown() {
        for (store, seen) in [
            ("redis://u:p@ss@h:1/2", "redis://h:1/2"),
            ("redis://:pa/ss@h", "redis://h"),
            ("rediss+cluster://u:p@a,b", "rediss+cluster://a,b"),
            ("redis://u:p?a#s@h", "redis://h"),
            ("redis://h?pass=p", "redis://h"),
            ("unix:///s?pass=p@x", "unix:///s"),
            ("u:p@h", "h"),
            ("memroy", "memroy"),
        ] {
            assert_eq!(shown(store), seen);
        }
    }
}
