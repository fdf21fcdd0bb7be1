//! HTTP/1.1 byte for byte: written in pieces, pipelined, broken off.

use std::io;

use kota_integration::Answer;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    unread: Vec<u8>,
}

// === impl Connection ===

impl Connection {
    pub(crate) async fn open(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).await.expect("Envoy listens");
        let _ = stream.set_nodelay(true);
        Self { stream, unread: Vec::new() }
    }

    /// Writes all of it.
    pub(crate) async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await
    }

    /// Reads one head, of an interim answer too, and leaves what follows it unread.
    pub(crate) async fn status(&mut self) -> io::Result<u16> {
        Ok(head(&mut self.stream, &mut self.unread).await?.0)
    }

    /// Writes and reads at the same time: an answer may come before all is written, and then the rest need not be. `bodiless`: it
    /// answers a HEAD.
    pub(crate) async fn converse(&mut self, pieces: &[&[u8]], bodiless: bool) -> io::Result<Answer> {
        let mut answer = None;
        let end = self.pipeline(pieces, &[bodiless], |got| answer = Some(got)).await;
        answer.ok_or_else(|| end.err().unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into()))
    }

    /// Writes all pieces while it reads an answer for each of `bodiless`, until one says that the connection ends.
    pub(crate) async fn pipeline(
        &mut self,
        pieces: &[&[u8]],
        bodiless: &[bool],
        mut take: impl FnMut(Answer),
    ) -> io::Result<()> {
        let (mut from, mut to) = self.stream.split();
        let write = async {
            for piece in pieces {
                if to.write_all(piece).await.is_err() {
                    break; // what the peer said before it closed is still to be read
                }
            }
            std::future::pending::<()>().await;
        };
        let unread = &mut self.unread;
        let read = async {
            for &bodiless in bodiless {
                let answer = read_answer(&mut from, unread, bodiless).await?;
                let ends = Self::ends_with(&answer);
                take(answer);
                if ends {
                    break;
                }
            }
            Ok(())
        };
        tokio::select! {
            end = read => end,
            () = write => unreachable!("it never ends"),
        }
    }

    /// Closes with a reset in place of a goodbye.
    pub(crate) fn reset(self) {
        let _ = self.stream.set_zero_linger();
    }

    /// Whether the peer closes after this answer.
    pub(crate) fn ends_with(answer: &Answer) -> bool {
        answer.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }
}

async fn read_answer(
    from: &mut (impl AsyncRead + Unpin),
    unread: &mut Vec<u8>,
    bodiless: bool,
) -> io::Result<Answer> {
    loop {
        let (status, headers) = head(from, unread).await?;
        if (100..200).contains(&status) {
            continue;
        }
        let value =
            |wanted: &str| headers.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str());
        let body = if bodiless || matches!(status, 204 | 304) {
            Vec::new()
        } else if value("transfer-encoding").is_some() {
            chunks(from, unread).await?
        } else if let Some(length) = value("content-length") {
            take(from, unread, length.parse().map_err(|_| io::ErrorKind::InvalidData)?).await?
        } else {
            from.read_to_end(unread).await?;
            std::mem::take(unread)
        };
        return Ok(Answer { status, headers, body });
    }
}

type Head = (u16, Vec<(String, String)>);

async fn head(from: &mut (impl AsyncRead + Unpin), unread: &mut Vec<u8>) -> io::Result<Head> {
    let first = line(from, unread).await?;
    let status = first.split(' ').nth(1).and_then(|code| code.parse().ok());
    let status = status.ok_or_else(|| io::Error::other(format!("not a status line: {first:?}")))?;
    let mut headers = Vec::new();
    loop {
        let line = line(from, unread).await?;
        match line.split_once(':') {
            _ if line.is_empty() => return Ok((status, headers)),
            Some((name, value)) => headers.push((name.to_ascii_lowercase(), value.trim().to_owned())),
            None => return Err(io::Error::other(format!("not a header: {line:?}"))),
        }
    }
}

async fn chunks(from: &mut (impl AsyncRead + Unpin), unread: &mut Vec<u8>) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let size = line(from, unread).await?;
        let size = usize::from_str_radix(&size, 16).map_err(|_| io::ErrorKind::InvalidData)?;
        if size == 0 {
            while !line(from, unread).await?.is_empty() {} // trailers
            return Ok(body);
        }
        body.extend(take(from, unread, size).await?);
        line(from, unread).await?;
    }
}

async fn line(from: &mut (impl AsyncRead + Unpin), unread: &mut Vec<u8>) -> io::Result<String> {
    let mut seen = 0;
    loop {
        if let Some(end) = unread[seen..].windows(2).position(|pair| pair == b"\r\n") {
            let line = String::from_utf8_lossy(&unread[..seen + end]).into_owned();
            unread.drain(..seen + end + 2);
            return Ok(line);
        }
        seen = unread.len().saturating_sub(1);
        more(from, unread).await?;
    }
}

async fn take(from: &mut (impl AsyncRead + Unpin), unread: &mut Vec<u8>, size: usize) -> io::Result<Vec<u8>> {
    while unread.len() < size {
        more(from, unread).await?;
    }
    let rest = unread.split_off(size);
    Ok(std::mem::replace(unread, rest))
}

async fn more(from: &mut (impl AsyncRead + Unpin), unread: &mut Vec<u8>) -> io::Result<()> {
    unread.reserve(16 * 1024);
    match from.read_buf(unread).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}
