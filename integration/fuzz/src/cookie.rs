//! Cookies: a value in every spelling is that value, and a name that comes twice, on whatever lines, is absent.

use crate::encoded;
use limits::cookie::value;

/// Any bytes as lines of a `cookie` header.
pub fn holds(data: &[u8]) {
    let lines: Vec<_> = data.split(|byte| *byte == b'\n').collect();
    let joined = lines.join(&b';');
    for name in [&b"sid"[..], b"a"] {
        let found = value(lines.iter().copied(), name).map(|found| found.into_owned());
        assert_eq!(value([&*joined].into_iter(), name).as_deref(), found.as_deref(), "lines are one list");
        let again = [name, b"=x"].concat();
        if found.is_some() {
            let twice = lines.iter().copied().chain([&*again]);
            assert_eq!(value(twice, name), None, "twice is none");
        }
        let wanted = found.as_deref().unwrap_or(data);
        let text = encoded(wanted);
        for spelling in [
            [name, b"=", &text].concat(),
            [b"x=1; ", name, b" = \"", &text.to_ascii_uppercase(), b"\" ;y"].concat(),
        ] {
            assert_eq!(
                value([&*spelling].into_iter(), name).as_deref(),
                Some(wanted),
                "{}",
                spelling.escape_ascii()
            );
        }
    }
}
