//! How upstreams find the route of the path that reaches them: their own reading of it, which has nothing of Kota's.

/// A router's habits. What it does not do it takes literally, segment by segment; all decode `%6C` once.
pub(super) struct Router {
    pub(super) name: &'static str,
    /// `/V1/Login` is `/v1/login`.
    pub(super) ignores_case: bool,
    /// `/v1/login/` is `/v1/login`.
    ignores_trailing_slash: bool,
    /// `//` is `/`.
    merges_slashes: bool,
    /// `.` and `..` are gone before it looks.
    resolves_dots: bool,
    /// `;a=b` is no part of a segment.
    strips_params: bool,
    /// Decodes all before it splits, so that `%2F` is a slash.
    decodes_first: bool,
}

const LITERAL: Router = Router {
    name: "literal",
    ignores_case: false,
    ignores_trailing_slash: false,
    merges_slashes: false,
    resolves_dots: false,
    strips_params: false,
    decodes_first: false,
};

/// The habits of the common ones, as their documentation has them.
pub(super) const ROUTERS: [Router; 6] = [
    Router { name: "axum, Go's ServeMux", ..LITERAL },
    Router { name: "Express", ignores_case: true, ignores_trailing_slash: true, ..LITERAL },
    Router { name: "Django with APPEND_SLASH", ignores_trailing_slash: true, ..LITERAL },
    Router {
        name: "nginx",
        ignores_trailing_slash: true,
        merges_slashes: true,
        resolves_dots: true,
        decodes_first: true,
        ..LITERAL
    },
    Router {
        name: "Tomcat",
        ignores_trailing_slash: true,
        merges_slashes: true,
        resolves_dots: true,
        strips_params: true,
        ..LITERAL
    },
    Router {
        name: "ASP.NET",
        ignores_case: true,
        ignores_trailing_slash: true,
        resolves_dots: true,
        ..LITERAL
    },
];

impl Router {
    /// Whether it serves this path, as it came, as the route of this template.
    pub(super) fn serves(&self, template: &str, raw: &str) -> bool {
        let segments = self.segments(raw);
        let mut wanted = template.split('/').skip(1);
        let mut found = segments.iter();
        loop {
            match (wanted.next(), found.next()) {
                (Some("**"), _) | (None, None) => return true,
                (Some(parameter), Some(segment)) if parameter.starts_with('{') => {
                    if segment.is_empty() {
                        return false;
                    }
                }
                (Some(literal), Some(segment)) => {
                    let same = if self.ignores_case {
                        segment.eq_ignore_ascii_case(literal.as_bytes())
                    } else {
                        *segment == literal.as_bytes()
                    };
                    if !same {
                        return false;
                    }
                }
                _ => return false,
            }
        }
    }

    fn segments(&self, raw: &str) -> Vec<Vec<u8>> {
        let path = raw.split(['?', '#']).next().unwrap_or_default();
        let path = if self.decodes_first { decode(path.as_bytes()) } else { path.as_bytes().to_vec() };
        let mut segments: Vec<Vec<u8>> = Vec::new();
        for segment in path.split(|byte| *byte == b'/').skip(1) {
            let bare = segment.split(|byte| *byte == b';').next().filter(|_| self.strips_params);
            let segment = bare.unwrap_or(segment);
            let segment = if self.decodes_first { segment.to_vec() } else { decode(segment) };
            match &*segment {
                b"" if self.merges_slashes => {}
                b"." if self.resolves_dots => {}
                b".." if self.resolves_dots => drop(segments.pop()),
                _ => segments.push(segment),
            }
        }
        if self.ignores_trailing_slash && segments.len() > 1 && segments.last().is_some_and(Vec::is_empty) {
            segments.pop();
        }
        segments
    }
}

fn decode(text: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        let digits = tail.get(..2).filter(|_| byte == b'%').and_then(|two| str::from_utf8(two).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(escaped) => {
                decoded.push(escaped);
                rest = &tail[2..];
            }
            None => decoded.push(byte),
        }
    }
    decoded
}
