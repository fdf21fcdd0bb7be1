use super::*;

fn found<'a>(routes: &'a Routes, method: &str, raw: &str) -> Option<&'a str> {
    let path = path::normalise(raw.as_bytes());
    routes.find(method.as_bytes(), &path).and_then(|index| routes.text(index))
}

fn routes(texts: &[&str]) -> Routes {
    Routes::new(texts.iter().map(|text| Route::parse(text).unwrap()).collect())
}

#[test]
fn the_most_specific_route_is_taken() {
    let routes = routes(&[
        "* /**",
        "* /public/**",
        "GET /orders/{id}",
        "POST /orders",
        "POST /orders/new",
        "* /orders/{id}/items/{item}",
        "GET /orders/{id}/items/first",
        "GET /a/**",
        "GET /a/b/**",
        "GET /{x}/b",
        "GET /only/get",
        "* /both",
        "PUT /both",
        "GET /",
    ]);
    for (method, path, wanted) in [
        ("POST", "/orders", "POST /orders"),
        ("GET", "/orders/17", "GET /orders/{id}"),
        ("GET", "/orders/new", "GET /orders/{id}"),
        ("POST", "/orders/new", "POST /orders/new"),
        ("DELETE", "/orders/new", "* /**"),
        ("GET", "/orders/17/items/first", "GET /orders/{id}/items/first"),
        ("PUT", "/orders/17/items/first", "* /orders/{id}/items/{item}"),
        ("GET", "/orders/17/items/2", "* /orders/{id}/items/{item}"),
        ("GET", "/orders/17/items/2/3", "* /**"),
        ("GET", "/public", "* /public/**"),
        ("GET", "/public/", "* /public/**"),
        ("GET", "/public/a/b", "* /public/**"),
        ("GET", "/publicity", "* /**"),
        ("GET", "/a/b", "GET /a/b/**"),
        ("GET", "/a/b/c", "GET /a/b/**"),
        ("GET", "/a/c", "GET /a/**"),
        ("GET", "/z/b", "GET /{x}/b"),
        ("PUT", "/both", "PUT /both"),
        ("GET", "/both", "* /both"),
        ("HEAD", "/both", "* /both"),
        ("HEAD", "/only/get", "GET /only/get"),
        ("get", "/only/get", "* /**"),
        ("GET", "/", "GET /"),
        ("GET", "", "GET /"),
        ("POST", "/", "* /**"),
    ] {
        assert_eq!(found(&routes, method, path), Some(wanted), "{method} {path}");
    }
    assert_eq!(found(&routes, "OPTIONS", "*"), None);
}

#[test]
fn no_route_is_none() {
    let routes = routes(&["GET /orders/{id}"]);
    for (method, path) in [("POST", "/orders/1"), ("GET", "/orders"), ("GET", "/orders/1/2"), ("GET", "/")] {
        assert_eq!(found(&routes, method, path), None, "{method} {path}");
    }
    assert_eq!(Routes::new(Vec::new()).find(b"GET", b"/"), None);
}

#[test]
fn mk_01_no_spelling_of_a_url_takes_another_route() {
    let routes = routes(&["POST /v1/login", "* /{a}/{b}", "* /**"]);
    for spelling in [
        "/v1/login",
        "//v1/login",
        "/v1//login",
        "/v1/login/",
        "/v1/./login",
        "/v1/x/../login",
        "/v1/%6Cogin",
        "/V1/LOGIN",
        "/v1/%4Cogin",
        "/v1/login?q",
        "/v1/login#f",
        "/v1/login;a=b",
        "http://example.com/v1/login",
    ] {
        assert_eq!(found(&routes, "POST", spelling), Some("POST /v1/login"), "{spelling}");
    }
    for other in ["/v1/login%2F", "/v1/%256Cogin", "/v1/login%00", "/v1/log%3Bin"] {
        assert_eq!(found(&routes, "POST", other), Some("* /{a}/{b}"), "{other}");
    }
    assert_eq!(routes.find(b"POST", b"/v1/login\xff"), Some(1));
}

#[test]
fn spellings_of_a_route_are_one_route() {
    let routes = routes(&["GET /Orders/{id}/", "GET //orders/{number}", "GET /x%20y"]);
    assert_eq!(routes.len(), 2);
    assert_eq!(found(&routes, "GET", "/orders/1"), Some("GET /Orders/{id}/"));
    assert_eq!(found(&routes, "GET", "/x y"), Some("GET /x%20y"));
    for (text, wanted) in [("GET /orders/{x}", Some(0)), ("POST /orders/{x}", None), ("GET /orders/**", None)]
    {
        assert_eq!(routes.index_of(&Route::parse(text).unwrap()), wanted, "{text}");
    }
}

#[test]
fn ca_05_what_is_no_route_is_refused_with_the_reason() {
    let long = format!("GET {}", "/x".repeat(SEGMENTS_MAX + 1));
    for (text, wanted) in [
        ("", RouteError::Form),
        ("/orders", RouteError::Form),
        ("GET orders", RouteError::Form),
        ("GET  /orders", RouteError::Form),
        ("GET /a b", RouteError::Form),
        ("get /orders", RouteError::Method),
        ("FOO /orders", RouteError::Method),
        ("GET /orders?x=1", RouteError::Query),
        ("GET /orders#x", RouteError::Query),
        ("GET /orders/{}", RouteError::Parameter),
        ("GET /orders/{id}.json", RouteError::Parameter),
        ("GET /orders/{i d}", RouteError::Form),
        ("GET /orders/{", RouteError::Parameter),
        ("GET /orders/*", RouteError::Asterisk),
        ("GET /**/orders", RouteError::Asterisk),
        ("GET /orders**", RouteError::Asterisk),
        (long.as_str(), RouteError::Long),
    ] {
        assert_eq!(Route::parse(text), Err(wanted), "{text}");
    }
    assert_eq!(Route::parse(" GET /orders ").unwrap().text(), "GET /orders");
}
