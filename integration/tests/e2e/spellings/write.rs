//! Ways to write one path.

/// All spellings of `path` that are tried: each way at each place, and ways upon ways. The plain one is the first; none comes twice.
pub(super) fn spellings(path: &str) -> Vec<String> {
    let mut all = vec![path.to_owned()];
    all.extend(simple(path));
    // Two ways at once. What must come last (a query, the absolute form) is put around all others.
    let once = simple(path);
    for (i, first) in once.iter().enumerate().filter(|(_, first)| !first.contains(['?', '#'])) {
        let twice = simple(first);
        all.push(twice[(i * 7 + 3) % twice.len()].clone());
    }
    for i in (0..all.len()).step_by(9) {
        if !all[i].contains(['?', '#']) {
            all.push(format!("http://kota.test{}?x={i}", all[i]));
        }
    }
    let mut seen = std::collections::HashSet::new();
    all.retain(|spelling| seen.insert(spelling.clone()));
    all
}

/// One way at one place, for every way and place.
fn simple(path: &str) -> Vec<String> {
    let mut all = Vec::new();
    let slashes: Vec<_> = path.match_indices('/').map(|(at, _)| at).collect();
    for &at in &slashes {
        let (before, after) = path.split_at(at);
        for inserted in [
            "/",
            "//",
            "/.",
            "/%2e",
            "/%2E",
            "/x/..",
            "/x/%2e%2E",
            "/x/.%2e",
            "/;",
            "/x/..;",
            "/x//../..",
            "/x/%2e/..",
            "/%2e;a=b",
        ] {
            all.push(format!("{before}{inserted}{after}"));
        }
        // An encoded slash or a backslash in its place is another resource to some, and refused by Envoy.
        for instead in ["%2f", "%2F", "\\", "%5c", "%5C", "%252f", "%c0%af"] {
            all.push(format!("{before}{instead}{}", &after[1..]));
        }
    }
    for ending in [
        "/",
        "//",
        "/.",
        "/./",
        "/x/..",
        "/%2e",
        "/;",
        ";",
        ";jsessionid=1",
        ";a=b/",
        "?",
        "?x=1",
        "?/../y",
        "?a=b#c",
        "#f",
        "%00",
        "%20",
        "%",
        "%zz",
        "/%2e%2e/x",
    ] {
        all.push(format!("{path}{ending}"));
    }
    for start in ["/..", "/../..", "/%2e%2e", "/.", "/;a=b", "/x/../y/.."] {
        all.push(format!("{start}{path}"));
    }
    for (at, letter) in path.char_indices().filter(|(_, letter)| *letter != '/' && *letter != '%') {
        let (before, after) = (&path[..at], &path[at + 1..]);
        all.push(format!("{before}%{:02x}{after}", letter as u32));
        all.push(format!("{before}%{:02X}{after}", letter as u32));
        all.push(format!("{before}{}{after}", letter.to_ascii_uppercase()));
    }
    let encode = |(text, letter): (String, char)| {
        if letter == '/' { text + "/" } else { format!("{text}%{:02X}", letter as u32) }
    };
    all.push(path.chars().fold(String::new(), |text, letter| encode((text, letter))));
    all.push(path.to_ascii_uppercase());
    all.push(path.replace('/', "//"));
    all.push(path.replacen(|letter: char| letter.is_ascii_alphabetic(), "%2561", 1));
    all
}
