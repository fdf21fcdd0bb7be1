//! TLS to Redis: whom to trust, and what to show if we are asked who we are.

use crate::store::Status;
use std::fs;
use std::io;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio::time::{Duration, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{CertificateError, ClientConfig, Error, RootCertStore};

/// How long a handshake may take: less than connecting as a whole, so that it is known what took long.
const HANDSHAKE_TIME: Duration = Duration::from_millis(1_500);
const NO_TLS: &str = "; if the server has no TLS there, say redis://";
/// What to do where a server refuses us: with TLS 1.3 it does so only after the handshake.
pub(super) const WANTS_OURS: &str = "; if the server wants a certificate of ours, name it by --redis-cert";

/// Files in PEM form, by the flags that name them.
#[derive(Clone, Debug, Default)]
pub struct TlsFiles {
    /// `--redis-ca`: who signs the servers' certificates. Without it: whom the system trusts.
    pub ca: Option<String>,
    /// `--redis-cert`: our own certificate, with what leads to its CA.
    pub cert: Option<String>,
    /// `--redis-key-file`: its private key.
    pub key: Option<String>,
}

/// A file that can't be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadFile {
    /// The flag that names it.
    pub flag: &'static str,
    /// Its path.
    pub path: String,
    /// What is wrong and what to do. Never any of its text.
    pub remedy: String,
}

/// How connections are secured.
#[derive(Clone)]
pub(super) struct Tls {
    connector: TlsConnector,
}

// === impl TlsFiles ===

impl TlsFiles {
    /// The first flag that is given.
    #[must_use]
    pub fn first(&self) -> Option<(&'static str, &str)> {
        let flags = [("--redis-ca", &self.ca), ("--redis-cert", &self.cert), ("--redis-key-file", &self.key)];
        flags.into_iter().find_map(|(flag, path)| Some((flag, path.as_deref()?)))
    }
}

// === impl Tls ===

impl Tls {
    /// Trusts nobody.
    pub(super) fn nobody() -> Result<Self, BadFile> {
        Self::with(RootCertStore::empty(), &TlsFiles::default())
    }

    /// By these files.
    pub(super) fn load(files: &TlsFiles) -> Result<Self, BadFile> {
        let roots = match &files.ca {
            Some(path) => ca(path)?,
            None => system(),
        };
        if roots.is_empty() {
            return Err(bad(
                "--redis-ca",
                "",
                "the system trusts nobody (no CA certificates are installed); name a file with the CA's",
            ));
        }
        Self::with(roots, files)
    }

    fn with(roots: RootCertStore, files: &TlsFiles) -> Result<Self, BadFile> {
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| bad("--redis-ca", "", &error.to_string()))?
            .with_root_certificates(roots);
        let config = match (&files.cert, &files.key) {
            (None, None) => builder.with_no_client_auth(),
            (Some(cert), Some(key)) => builder
                .with_client_auth_cert(certificates("--redis-cert", cert)?, private_key(key)?)
                .map_err(|error| bad("--redis-cert", cert, &error.to_string()))?,
            (Some(cert), None) => {
                return Err(bad("--redis-cert", cert, "name its private key by --redis-key-file"));
            }
            (None, Some(key)) => {
                return Err(bad("--redis-key-file", key, "name its certificate by --redis-cert"));
            }
        };
        Ok(Self { connector: TlsConnector::from(Arc::new(config)) })
    }

    /// Makes an open stream to `host` a secure one.
    pub(super) async fn secure(&self, host: &str, stream: TcpStream) -> Result<TlsStream<TcpStream>, Status> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| Status::Unfit(format!("TLS: {host} is no name that a certificate can bear")))?;
        let shaken = timeout(HANDSHAKE_TIME, self.connector.connect(name, stream)).await;
        // A Redis without TLS waits for the end of what it takes for a line.
        let silent = |_| Status::Away(format!("TLS: no answer{NO_TLS}"));
        shaken.map_err(silent)?.map_err(|error| status(&error))
    }
}

/// Whom the system trusts. What of that can't be read is left out: then nobody is trusted by it.
fn system() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

fn ca(path: &str) -> Result<RootCertStore, BadFile> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates("--redis-ca", path)? {
        roots.add(certificate).map_err(|error| bad("--redis-ca", path, &error.to_string()))?;
    }
    Ok(roots)
}

fn certificates(flag: &'static str, path: &str) -> Result<Vec<CertificateDer<'static>>, BadFile> {
    let text = read(flag, path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(bad(flag, path, "holds no certificate; want PEM (-----BEGIN CERTIFICATE-----)")),
    }
}

fn private_key(path: &str) -> Result<PrivateKeyDer<'static>, BadFile> {
    let text = read("--redis-key-file", path)?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|_| {
        bad("--redis-key-file", path, "holds no private key; want PEM (-----BEGIN PRIVATE KEY-----)")
    })
}

fn read(flag: &'static str, path: &str) -> Result<Vec<u8>, BadFile> {
    fs::read(path).map_err(|error| bad(flag, path, &format!("cannot be read: {error}")))
}

fn bad(flag: &'static str, path: &str, remedy: &str) -> BadFile {
    BadFile { flag, path: path.to_owned(), remedy: remedy.to_owned() }
}

/// What a failed handshake says about the server: the network passes by itself, a certificate does not.
fn status(error: &io::Error) -> Status {
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    let Some(tls) = tls else { return Status::Away(format!("TLS: {error}")) };
    let remedy = match tls {
        Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            "; name its CA by --redis-ca"
        }
        Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => "; connect by a name that its certificate bears",
        Error::InvalidMessage(_) => NO_TLS,
        Error::AlertReceived(_) => WANTS_OURS,
        _ => "",
    };
    Status::Unfit(format!("TLS: {tls}{remedy}"))
}
