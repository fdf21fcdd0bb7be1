//! Query parameters: a value in every spelling is that value, and a name that comes twice is absent.

use crate::encoded;
use limits::query::parameter;

/// Any bytes as a raw `:path`, of which the bytes before the first line feed are the parameter's name.
pub fn holds(data: &[u8]) {
    let split = data.iter().position(|byte| *byte == b'\n');
    let (name, path) = split.map_or((&b"a"[..], data), |at| (&data[..at], &data[at + 1..]));
    if name.is_empty() {
        return; // No configuration has such a name, and every `&&` has such a parameter.
    }
    let found = parameter(path, name).map(|value| value.into_owned());
    let until_fragment = path.split(|byte| *byte == b'#').next().unwrap_or_default();
    assert_eq!(parameter(until_fragment, name).as_deref(), found.as_deref(), "a fragment is no part of it");
    let (name_text, value_text) = (encoded(name), encoded(found.as_deref().unwrap_or(path)));
    if let Some(value) = &found {
        assert!(value.len() <= path.len(), "a value does not grow");
        let more = [until_fragment, b"&", &name_text, b"=x"].concat();
        assert_eq!(parameter(&more, name), None, "twice is none: {}", more.escape_ascii());
        if !name.iter().any(|byte| b"&=#+%?".contains(byte)) {
            let plain = [b"/?", name, b"=", &value_text].concat();
            assert_eq!(parameter(&plain, name).as_deref(), Some(&**value));
        }
    }
    let value = found.as_deref().unwrap_or(path);
    for spelling in [
        [&b"/?"[..], &name_text, b"=", &value_text].concat(),
        [&b"/x?&&"[..], &name_text.to_ascii_uppercase(), b"=", &value_text.to_ascii_uppercase(), b"&#y"]
            .concat(),
    ] {
        assert_eq!(parameter(&spelling, name).as_deref(), Some(value), "{}", spelling.escape_ascii());
    }
}
