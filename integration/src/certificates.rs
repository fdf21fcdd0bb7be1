//! Certificates for tests, made when they run: a CA, and what it signs.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::tools;

/// A CA of its own, with its files in one directory.
#[derive(Debug)]
pub struct Authority {
    dir: PathBuf,
}

/// A certificate and its private key.
#[derive(Debug)]
pub struct Identity {
    /// The certificate's file.
    pub cert: PathBuf,
    /// The key's file.
    pub key: PathBuf,
}

// === impl Authority ===

impl Authority {
    /// A new one; `dir` is made if it is not there.
    ///
    /// # Panics
    /// When openssl fails.
    #[must_use]
    pub fn new(dir: &Path) -> Self {
        std::fs::create_dir_all(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
        let own = Self { dir: dir.to_path_buf() };
        own.openssl(&format!(
            "req -x509 {NEW_KEY} -keyout ca.key -out ca.pem -days 2 -subj /CN=kota-test-ca"
        ));
        own
    }

    /// Its own certificate: what those trust who trust it.
    #[must_use]
    pub fn cert(&self) -> PathBuf {
        self.dir.join("ca.pem")
    }

    /// Signs a certificate for these names, such as `IP:127.0.0.1` or `DNS:localhost`.
    ///
    /// # Panics
    /// When openssl fails.
    #[must_use]
    pub fn sign(&self, name: &str, alternatives: &str) -> Identity {
        let extensions = format!("subjectAltName={alternatives}\nbasicConstraints=critical,CA:FALSE\n");
        let path = self.dir.join(format!("{name}.ext"));
        std::fs::write(&path, extensions).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        self.openssl(&format!("req {NEW_KEY} -keyout {name}.key -out {name}.csr -subj /CN={name}"));
        self.openssl(&format!(
            "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile {name}.ext -out {name}.pem"
        ));
        Identity { cert: self.dir.join(format!("{name}.pem")), key: self.dir.join(format!("{name}.key")) }
    }

    /// The options of a Redis that speaks TLS on `port` with this certificate; `clients`: whether it asks for theirs, `yes`, `no` or
    /// `optional`.
    #[must_use]
    pub fn server_options(&self, port: u16, own: &Identity, clients: &str) -> Vec<String> {
        let path = |path: &Path| path.display().to_string();
        let options = [
            ("--tls-port", port.to_string()),
            ("--tls-cert-file", path(&own.cert)),
            ("--tls-key-file", path(&own.key)),
            ("--tls-ca-cert-file", path(&self.cert())),
            ("--tls-auth-clients", clients.to_owned()),
        ];
        options.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect()
    }

    fn openssl(&self, arguments: &str) {
        let run = Command::new(tools::openssl()).args(arguments.split(' ')).current_dir(&self.dir).output();
        let output = run.unwrap_or_else(|e| panic!("openssl: {e}"));
        assert!(output.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// An elliptic key, which is made in no time.
const NEW_KEY: &str = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
