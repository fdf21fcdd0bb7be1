use super::*;

#[test]
fn urls_are_read_with_all_their_hosts() {
    for (url, shown, shape, secure) in [
        ("redis://user:s3cret@redis.example:6380/2", "redis.example:6380", Shape::One, false),
        ("unix:///run/redis.sock?pass=s3cret", "/run/redis.sock", Shape::One, false),
        ("redis://:s3cret@a,b:7000,[::1]:7001", "a:6379,b:7000,[::1]:7001", Shape::One, false),
        ("rediss://u:s3cret@a:1", "a:1", Shape::One, true),
        ("redis+cluster://u:s,cr%40t@a:1,b:2/0", "a:1,b:2", Shape::Cluster, false),
        ("rediss+cluster://a", "a:6379", Shape::Cluster, true),
    ] {
        let target = Target::parse(url).unwrap();
        assert_eq!(format!("{target:?}"), format!("Target({shown})"));
        assert_eq!((target.shape(), target.is_secure()), (shape, secure), "{url}");
    }
    let target = Target::parse("redis+cluster://u:s,cr%40t@a:1,b:2").unwrap();
    assert_eq!(target.door.login.password(), Some("s,cr@t"));
    assert_eq!(Target::parse("redis://a,b/3").unwrap().door.login.db(), 3);
}

#[test]
fn what_is_no_url_is_refused_without_being_repeated() {
    let many = format!("redis://u:s3cret@{}", vec!["h"; 33].join(","));
    for url in [
        "",
        "memory ",
        "redis:",
        "redis://:s3cret@",
        "redis://:s3cret@a,,b",
        "redis://:s3cret@a,b:99999",
        "http://s3cret",
        "rediss://s3cret@a/#insecure",
        "redis+cluster://u:s3cret@a/1",
        "redis+cluster://u:s3cret@/",
        &many,
    ] {
        let refused = Target::parse(url).unwrap_err();
        assert!(!refused.contains("s3cret"), "{url}: {refused}");
    }
}

#[test]
fn a_place_is_told_by_host_and_port() {
    let asked = Place::Tcp("10.0.0.1".into(), 6379);
    let told = |text| Place::told(text, &asked);
    assert_eq!(told("10.0.0.7:6380"), Some(Place::Tcp("10.0.0.7".into(), 6380)));
    assert_eq!(told("fd00::7:6380"), Some(Place::Tcp("fd00::7".into(), 6380)));
    assert_eq!(told("r7.example:6380"), Some(Place::Tcp("r7.example".into(), 6380)));
    assert_eq!(told(":6380"), Some(Place::Tcp("10.0.0.1".into(), 6380)));
    for text in ["", "10.0.0.7", "10.0.0.7:x", "?:6380"] {
        assert_eq!(told(text), None, "{text}");
    }
}
