//! Paths as an adversary writes them.

use limits::path::normalise;
use limits::route::{Route, Routes};
use proptest::prelude::*;

/// What paths are made of, and bytes that are not.
fn raw_path() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        8 => prop::sample::select(vec![
            &b"/"[..], b"//", b".", b"..", b"%2e", b"%2E%2e", b"%2f", b"%5c", b"%25", b"%", b"%%", b"%4", b"%zz", b"%00", b"%c0%af",
            b";", b";a=b", b"%3b", b"?", b"%3F", b"#", b"%23", b"*", b"http://", b"://", b"v1", b"login", b"%6c", b"\xff", b"\0",
        ]).prop_map(<[u8]>::to_vec),
        1 => prop::collection::vec(any::<u8>(), 0..4),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

/// One way of writing the same path differently.
fn respell(path: &str, how: u8, at: usize) -> String {
    let slashes: Vec<_> = path.match_indices('/').map(|(index, _)| index).collect();
    let slash = slashes[at % slashes.len()];
    let with = |text: &str| format!("{}{text}{}", &path[..slash], &path[slash..]);
    let letter = 1 + at % (path.len() - 1);
    match how {
        0 => with("/"),
        1 => with("/."),
        2 => with("/%2e"),
        3 => with("/x/.."),
        4 => with("/x%2Fy/%2e%2E"),
        5 => format!("{path}/"),
        6 => format!("{path};v=1"),
        7 => format!("http://example.com{path}"),
        // Not a letter of an escape: escaping that would be another resource.
        8 if path.as_bytes()[letter].is_ascii_alphabetic()
            && !path[..letter].ends_with(['%', '2', '6', '7']) =>
        {
            format!("{}%{:02x}{}", &path[..letter], path.as_bytes()[letter], &path[letter + 1..])
        }
        _ => format!("/..{path}"),
    }
}

proptest! {
    #[test]
    fn a_normal_form_is_a_fixed_point(raw in raw_path()) {
        let normal = normalise(&raw).into_owned();
        prop_assert_eq!(normalise(&normal).into_owned(), normal.clone());
        if normal != b"*" {
            prop_assert!(normal.starts_with(b"/"));
            prop_assert!(normal == b"/" || !normal.ends_with(b"/"));
            prop_assert!(!normal.contains(&b'?') && !normal.contains(&b'#') && !normal.contains(&b';'));
            for segment in normal[1..].split(|byte| *byte == b'/').filter(|_| normal.len() > 1) {
                prop_assert!(!matches!(segment, b"" | b"." | b".."), "{:?}", normal.escape_ascii());
            }
        }
    }

    #[test]
    fn mk_01_no_chain_of_respellings_leaves_the_route(
        changes in prop::collection::vec((0..10_u8, any::<usize>()), 0..8),
        query in prop_oneof![Just(""), Just("?x=1"), Just("#f"), Just("?/../x")],
    ) {
        let routes = Routes::new(["* /**", "* /{a}/{b}", "GET /v1/login"].map(|text| Route::parse(text).unwrap()).to_vec());
        // The absolute form is the outermost spelling, so it comes last, as the query does.
        let (absolute, inner): (Vec<_>, Vec<_>) = changes.into_iter().partition(|change| change.0 == 7);
        let mut path = "/v1/login".to_owned();
        for (how, at) in inner.into_iter().chain(absolute.into_iter().take(1)) {
            path = respell(&path, how, at);
        }
        path.push_str(query);
        let found = routes.find(b"GET", &normalise(path.as_bytes()));
        prop_assert_eq!(found.and_then(|index| routes.text(index)), Some("GET /v1/login"), "{}", path);
    }

    #[test]
    fn a_route_is_found_or_not_for_any_bytes(raw in raw_path(), method in prop::collection::vec(any::<u8>(), 0..8)) {
        let routes = Routes::new(["* /v1/**", "GET /{a}/{b}/login"].map(|text| Route::parse(text).unwrap()).to_vec());
        let by_form = routes.find(&method, &normalise(&raw));
        prop_assert!(by_form.is_none_or(|index| index < routes.len()));
        prop_assert!(routes.find(&method, &raw).is_none_or(|index| index < routes.len()));
    }
}

#[test]
fn a_path_of_any_length_is_one_walk() {
    let routes = Routes::new(vec![Route::parse("* /a/**").unwrap()]);
    for unit in ["/a", "//", "/..", "/%2e", "/a;", "%", "/%61"] {
        let raw = format!("/a{}", unit.repeat(50_000));
        assert!(normalise(raw.as_bytes()).len() <= 3 * raw.len());
        assert!(routes.find(b"GET", raw.as_bytes()).is_none_or(|index| index == 0));
    }
}
