use super::*;

fn directory(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("kota-listen-{}-{name}", std::process::id()));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir(&path).unwrap();
    path
}

async fn bind(path: &Path) -> Result<Listener, String> {
    Listener::bind(&Address::Unix(path.into()), &[0]).await
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn the_socket_and_its_new_directory_are_closed_to_others() {
    let directory = directory("modes");
    let path = directory.join("kota").join("decide.sock");
    let listener = bind(&path).await.unwrap();
    assert_eq!(listener.address(), format!("unix:{}", path.display()));
    assert_eq!(mode(&path), 0o660);
    assert_eq!(mode(path.parent().unwrap()), 0o750);
    fs::remove_dir_all(directory).unwrap();
}

#[tokio::test]
async fn a_stale_socket_is_removed_and_a_live_one_is_not() {
    let directory = directory("stale");
    let path = directory.join("decide.sock");
    let listener = bind(&path).await.unwrap();
    let refused = bind(&path).await.unwrap_err();
    assert!(refused.contains("another process listens there"), "{refused}");
    drop(listener);
    assert!(path.exists());
    bind(&path).await.unwrap();
    fs::remove_dir_all(directory).unwrap();
}

#[tokio::test]
async fn a_file_that_is_no_socket_stays() {
    let directory = directory("file");
    let path = directory.join("decide.sock");
    fs::write(&path, "precious").unwrap();
    let refused = bind(&path).await.unwrap_err();
    assert!(refused.contains("no socket"), "{refused}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    fs::remove_dir_all(directory).unwrap();
}
