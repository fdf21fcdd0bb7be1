//! What is said through the host: a reply in the client's own form, fields of a response, words for the access log.

use crate::answer::{Field, Reply};
use crate::config::Config;
use crate::exchange::{Note, Told};
use crate::host::{self, Map};
use crate::pairs;
use std::borrow::Cow;

/// What the client understands.
#[derive(Clone, Copy, Default)]
pub(crate) enum Speech {
    #[default]
    Http,
    Grpc,
    GrpcWeb,
}

/// Leaves for the access log what became of the effective stream.
pub(crate) fn write_note(config: &Config, note: Note) {
    host::set_property("kota.decision", note.decision);
    if let Some(rule) = note.rule.and_then(|rule| config.announcement(rule)) {
        host::set_property("kota.rule", &rule.id);
    }
    if let Some(reason) = note.reason {
        host::set_property("kota.reason", reason.word());
    }
}

/// Answers the effective stream in the form that its client understands.
pub(crate) fn send(reply: &Reply, speech: Speech) {
    let others = reply.headers.iter().filter(|(name, _)| *name != "content-type").cloned();
    let (status, headers, body, grpc_status): (_, Vec<Field>, Cow<'_, [u8]>, _) = match speech {
        Speech::Http => (reply.status, reply.headers.clone(), reply.body.as_bytes().into(), None),
        // Envoy turns this into a trailers-only answer: status 200, grpc-status, and the body as grpc-message.
        Speech::Grpc => (200, others.collect(), reply.detail.as_bytes().into(), Some(reply.grpc_status)),
        Speech::GrpcWeb => {
            let content_type = ("content-type", "application/grpc-web+proto".to_owned());
            (200, others.chain([content_type]).collect(), reply.grpc_web_body().into(), None)
        }
    };
    let headers = pairs::write(headers.iter().map(|(name, value)| (*name, &**value)));
    host::send_reply(status, &body, &headers, grpc_status);
}

/// Adds what Kota says to a response that may already say something: the lists are joined, of the rest the stricter stays.
pub(crate) fn add_fields(told: &Told) {
    for (name, value) in &told.fields {
        host::add_header(Map::Response, name, value);
    }
    if told.legacy.is_empty() {
        return;
    }
    let upstream = host::header(Map::Response, "x-ratelimit-remaining");
    let upstream_left =
        upstream.as_ref().and_then(|left| str::from_utf8(left).ok()?.trim().parse::<u64>().ok());
    match (upstream, upstream_left) {
        (None, _) => {
            told.legacy.iter().for_each(|(name, value)| host::add_header(Map::Response, name, value))
        }
        (Some(_), Some(left)) if left <= told.left => {}
        _ => told.legacy.iter().for_each(|(name, value)| host::replace_header(Map::Response, name, value)),
    }
}
