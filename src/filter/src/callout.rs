//! What came back from a callout: a genuine answer, or the reason why there is none.

use crate::reason::Reason;
use protocol::batch::{Answer, Answers, BYTES_MAX, Unknown, WireError, decode_answers};

/// What the host tells of a finished callout.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// Headers of the answer; 0 when the call failed after it had begun.
    pub headers: usize,
    /// Whether the sidecar's marker header is there. Envoy answers in the sidecar's place when it can't reach it, and a wrong
    /// cluster leads to somebody else's server: neither has it.
    pub genuine: bool,
    /// `:status`, where it was read.
    pub status: Option<&'a [u8]>,
    /// The body.
    pub body: &'a [u8],
}

/// Why Envoy did not take a callout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Envoy knows no such cluster.
    NoCluster,
    /// The cluster has no host, or is over its thresholds: Envoy does not say which.
    NotSent,
}

// === impl Arrival ===

impl Arrival<'_> {
    /// The answers to `checks` checks. `in_time` if the call's time can't have been over.
    ///
    /// # Errors
    /// The reason why there are none.
    pub fn read(&self, checks: usize, in_time: bool) -> Result<Vec<Answer>, Reason> {
        if self.headers == 0 {
            // An answer that had begun: the host ended it because its time was over, or the sidecar broke it off.
            return Err(if in_time { Reason::Refused } else { Reason::Deadline });
        }
        if !self.genuine {
            return Err(match self.status {
                Some(b"503") => Reason::Refused,
                Some(b"504") => Reason::Deadline,
                _ => Reason::Garbage,
            });
        }
        if self.body.len() > BYTES_MAX {
            return Err(Reason::Garbage);
        }
        match decode_answers(self.body) {
            // A sidecar that can't read a batch does not know how many checks are in it, and answers in a version of its own.
            Ok(Answers { answers, .. }) if of_another_version(&answers) => Err(Reason::Version),
            Ok(Answers { answers, .. }) if answers.len() == checks => Ok(answers),
            // What the sidecar answers to a body that it can't read is a problem in JSON, not another version.
            Err(WireError::Version(version)) if version != 0 && version != b'{' => Err(Reason::Version),
            _ => Err(Reason::Garbage),
        }
    }
}

fn of_another_version(answers: &[Answer]) -> bool {
    !answers.is_empty() && answers.iter().all(|answer| *answer == Answer::Unknown(Unknown::Version))
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::batch::{VERSION, encode_answers};

    fn arrival(genuine: bool, status: &[u8], body: &[u8]) -> Result<Vec<Answer>, Reason> {
        Arrival { headers: 3, genuine, status: Some(status), body }.read(1, true)
    }

    #[test]
    fn only_a_genuine_answer_of_the_right_length_counts() {
        let answers = Answers { answers: vec![Answer::Unknown(Unknown::Shed)], unavailable_for_ms: 0 };
        let body = encode_answers(&answers, VERSION).unwrap();
        assert_eq!(arrival(true, b"200", &body), Ok(answers.answers.clone()));
        assert_eq!(arrival(false, b"200", &body), Err(Reason::Garbage));
        assert_eq!(arrival(false, b"503", b"no healthy upstream"), Err(Reason::Refused));
        assert_eq!(arrival(false, b"504", b"upstream request timeout"), Err(Reason::Deadline));
        assert_eq!(arrival(true, b"200", &body[..body.len() - 1]), Err(Reason::Garbage));
        assert_eq!(arrival(true, b"200", b""), Err(Reason::Garbage));
        assert_eq!(arrival(true, b"200", &[9, 0, 0]), Err(Reason::Version));
        assert_eq!(arrival(true, b"400", br#"{"detail":"not a batch"}"#), Err(Reason::Garbage));
        let two = Arrival { headers: 3, genuine: true, status: None, body: &body };
        assert_eq!(two.read(2, true), Err(Reason::Garbage));
        assert_eq!(Arrival { headers: 0, ..two }.read(1, false), Err(Reason::Deadline));
        assert_eq!(Arrival { headers: 0, ..two }.read(1, true), Err(Reason::Refused), "broken off");
    }

    /// What a sidecar that knows version 1 alone answers to whatever it can't read: in its own version, as many answers as a batch
    /// can ask for, each `Unknown::Version`, and no pause.
    #[test]
    fn an_older_sidecar_says_version_however_many_were_asked() {
        let mut body = vec![1, 64];
        body.extend([2, 0].repeat(64));
        body.push(0);
        for checks in [0, 1, 63, 64] {
            let older = Arrival { headers: 3, genuine: true, status: Some(b"200"), body: &body };
            assert_eq!(older.read(checks, true), Err(Reason::Version), "{checks} checks");
        }
    }
}
