//! `kota sidecar`: its flags.

use clap::Args;
use std::process::ExitCode;

/// Answer the filter's checks, one sidecar per pod.
// Every value is checked, and a bad one named, by the sidecar itself: hence all of them are text here.
#[derive(Debug, Args)]
pub(crate) struct Flags {
    /// Where the filter comes in: unix:PATH, or tcp:ADDRESS:PORT of loopback with --insecure-loopback.
    #[arg(long, env = "KOTA_LISTEN", default_value = "unix:/run/kota/decide.sock", value_name = "ADDRESS")]
    listen: String,
    /// Where everybody else does: /v1/check, /metrics, /healthz, /readyz. Whoever reaches it can use up any limit.
    #[arg(long, env = "KOTA_API", default_value = "127.0.0.1:9180", value_name = "ADDRESS:PORT")]
    api: String,
    /// Where the counters are: memory, or redis://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]...][/DB] (several hosts: a primary and
    /// its replicas), or redis+cluster://... (some nodes of a cluster), or unix:///PATH of a Redis. With TLS: rediss://,
    /// rediss+cluster://. A URL with a password belongs in the environment, where other users can't read it.
    #[arg(long, env = "KOTA_STORE", default_value = "memory", hide_env_values = true)]
    store: String,
    /// Who signs the certificates of a Redis behind TLS, in PEM form. Default: whom the system trusts.
    #[arg(long, env = "KOTA_REDIS_CA", value_name = "FILE")]
    redis_ca: Option<String>,
    /// Our certificate, in PEM form, for a Redis that asks who we are; with --redis-key-file.
    #[arg(long, env = "KOTA_REDIS_CERT", value_name = "FILE")]
    redis_cert: Option<String>,
    /// The private key of --redis-cert, in PEM form.
    #[arg(long, env = "KOTA_REDIS_KEY_FILE", value_name = "FILE")]
    redis_key_file: Option<String>,
    /// The configuration whose rules /v1/check applies.
    #[arg(long, env = "KOTA_RULES", value_name = "FILE")]
    rules: Option<String>,
    /// Hexadecimal keys, one a line, the same in all pods: the first hides values in the names of counters. A Redis needs it.
    #[arg(long, env = "KOTA_KEY_FILE", value_name = "FILE")]
    key_file: Option<String>,
    /// A user that may connect to the Unix socket, by number; may be repeated. Default: the sidecar's own.
    #[arg(long, env = "KOTA_ALLOW_UID", value_name = "UID", value_delimiter = ',')]
    allow_uid: Vec<String>,
    /// Lets the filter come in by TCP on loopback, where every user of the machine can use up any limit.
    #[arg(long, env = "KOTA_INSECURE_LOOPBACK")]
    insecure_loopback: bool,
    /// Milliseconds to go on serving after a signal to end, while others learn that this pod is going.
    #[arg(long, env = "KOTA_DRAIN_WAIT_MS", default_value = "2000", value_name = "N")]
    drain_wait_ms: String,
    /// Threads that serve. One decides most per core; more are for pods that need more than a core.
    #[arg(long, env = "KOTA_THREADS", default_value = "1", value_name = "N")]
    threads: String,
    /// The least important lines to log: off, error, warn, info, debug or trace.
    #[arg(long, env = "KOTA_LOG", default_value = "info", value_name = "LEVEL")]
    log: String,
}

/// Runs the sidecar until a signal ends it.
pub(crate) fn run(flags: Flags) -> ExitCode {
    sidecar::run(&sidecar::settings::Flags {
        listen: flags.listen,
        api: flags.api,
        store: flags.store,
        tls: sidecar::store::redis::TlsFiles {
            ca: flags.redis_ca,
            cert: flags.redis_cert,
            key: flags.redis_key_file,
        },
        rules: flags.rules,
        key_file: flags.key_file,
        allow_uid: flags.allow_uid,
        insecure_loopback: flags.insecure_loopback,
        drain_wait_ms: flags.drain_wait_ms,
        threads: flags.threads,
        log: flags.log,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory, Parser};

    #[derive(Parser)]
    struct Alone {
        #[command(flatten)]
        _flags: Flags,
    }

    #[test]
    fn every_flag_can_be_set_by_the_environment_under_its_own_name() {
        for flag in Alone::command().get_arguments().filter(|flag| flag.get_id() != "help") {
            let long = flag.get_long().unwrap();
            let wanted = format!("KOTA_{}", long.replace('-', "_").to_uppercase());
            assert_eq!(flag.get_env().unwrap().to_str(), Some(&*wanted));
        }
    }
}
