use super::*;

fn flags() -> Flags {
    Flags {
        listen: "unix:/run/kota/decide.sock".into(),
        api: "127.0.0.1:9180".into(),
        store: "memory".into(),
        drain_wait_ms: "2000".into(),
        threads: "1".into(),
        log: "info".into(),
        ..Flags::default()
    }
}

fn refusal(change: impl FnOnce(&mut Flags)) -> String {
    let mut flags = flags();
    change(&mut flags);
    Settings::from_flags(&flags, 1_000).unwrap_err().to_string()
}

#[test]
fn the_defaults_stand() {
    let settings = Settings::from_flags(&flags(), 1_000).unwrap();
    assert_eq!(settings.allowed, [1_000]);
    assert_eq!(settings.drain_wait, Duration::from_secs(2));
}

#[test]
fn tcp_is_for_loopback_and_only_if_one_asks_for_it() {
    let refused = refusal(|flags| flags.listen = "tcp:127.0.0.1:9181".into());
    assert!(refused.starts_with("--listen tcp:127.0.0.1:9181: ") && refused.contains("--insecure-loopback"));
    let refused = refusal(|flags| {
        flags.listen = "tcp:10.0.0.1:9181".into();
        flags.insecure_loopback = true;
    });
    assert!(refused.contains("not in this version"), "{refused}");
    let mut loopback = flags();
    loopback.listen = "tcp:[::1]:0".into();
    loopback.insecure_loopback = true;
    assert!(Settings::from_flags(&loopback, 0).is_ok());
}

#[test]
fn a_bad_flag_is_named_with_its_value_and_the_remedy() {
    for (change, wanted) in [
        (
            Box::new(|f: &mut Flags| f.listen = "/run/x".into()) as Box<dyn FnOnce(&mut Flags)>,
            "--listen /run/x: want",
        ),
        (Box::new(|f: &mut Flags| f.listen = "unix:".into()), "--listen unix:: want"),
        (Box::new(|f: &mut Flags| f.api = "9180".into()), "--api 9180: want"),
        (Box::new(|f: &mut Flags| f.allow_uid = vec!["envoy".into()]), "--allow-uid envoy: want"),
        (Box::new(|f: &mut Flags| f.drain_wait_ms = "-1".into()), "--drain-wait-ms -1: want"),
        (Box::new(|f: &mut Flags| f.threads = "0".into()), "--threads 0: want"),
        (Box::new(|f: &mut Flags| f.log = "loud".into()), "--log loud: want"),
        (
            Box::new(|f: &mut Flags| f.key_file = Some("/nowhere/keys".into())),
            "--key-file /nowhere/keys: cannot be read",
        ),
    ] {
        let refused = refusal(change);
        assert!(refused.starts_with(wanted), "{refused}");
    }
}

#[test]
fn rules_with_faults_are_refused_with_all_of_them() {
    let path = std::env::temp_dir().join(format!("kota-settings-{}.json", std::process::id()));
    fs::write(&path, r#"{"domain": "a:b", "rules": [{"id": "r"}]}"#).unwrap();
    let refused = refusal(|flags| flags.rules = Some(path.display().to_string()));
    assert!(refused.starts_with("--rules ") && refused.contains("\n  $.domain: "), "{refused}");
    assert!(refused.contains("\n  $.rules[0]"), "{refused}");
    fs::remove_file(&path).unwrap();
    let refused = refusal(|flags| flags.rules = Some("/nowhere/rules.json".into()));
    assert!(refused.starts_with("--rules /nowhere/rules.json: cannot be read"), "{refused}");
}

#[test]
fn a_redis_needs_a_key_file_and_its_url_is_never_repeated() {
    let refused = refusal(|flags| flags.store = "redis://127.0.0.1/".into());
    assert!(refused.starts_with("--key-file: a Redis store needs one"), "{refused}");
    for url in [
        "redis://:s3cret@",
        "postgres://u:s3cret@host/",
        "redis://u:s3cret@host:99999/",
        "redis+sentinel://:s3cret@host/",
        "redis+cluster://:s3cret@host/1",
    ] {
        let refused = refusal(|flags| flags.store = url.into());
        assert!(refused.starts_with("--store (a URL): ") && !refused.contains("s3cret"), "{refused}");
    }
}

#[test]
fn the_files_of_tls_are_read_at_once_and_only_where_there_is_tls() {
    let refused = refusal(|flags| {
        flags.store = "redis://127.0.0.1".into();
        flags.tls.ca = Some("/ca.pem".into());
    });
    assert!(refused.starts_with("--redis-ca /ca.pem: the store is not behind TLS"), "{refused}");
    let with = |change: fn(&mut TlsFiles)| {
        refusal(|flags| {
            flags.store = "rediss+cluster://:s3cret@127.0.0.1".into();
            change(&mut flags.tls);
        })
    };
    let refused = with(|tls| tls.ca = Some("/nowhere/ca.pem".into()));
    assert!(refused.starts_with("--redis-ca /nowhere/ca.pem: cannot be read"), "{refused}");
    let refused = with(|tls| tls.cert = Some("/c.pem".into()));
    assert!(refused.starts_with("--redis-cert /c.pem: name its private key"), "{refused}");
    let refused = with(|tls| tls.key = Some("/k.pem".into()));
    assert!(refused.starts_with("--redis-key-file /k.pem: name its certificate"), "{refused}");
    let path = std::env::temp_dir().join(format!("kota-no-pem-{}", std::process::id()));
    fs::write(&path, "s3cret").unwrap();
    let refused = refusal(|flags| {
        flags.store = "rediss://127.0.0.1".into();
        flags.tls.ca = Some(path.display().to_string());
    });
    assert!(refused.contains("holds no certificate") && !refused.contains("s3cret"), "{refused}");
    fs::remove_file(&path).unwrap();
}
