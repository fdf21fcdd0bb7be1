//! A small HTTP/1.1 client that sends what it is told to, byte for byte: also what no proper client would send.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// A request; nothing in it is checked or assumed to be UTF-8.
#[derive(Debug, Clone, Default)]
pub struct Request {
    method: Vec<u8>,
    path: Vec<u8>,
    headers: Vec<(Vec<u8>, Vec<u8>)>,
    body: Vec<u8>,
}

/// An answer as it came.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// Names (in lower case, as Envoy writes them) and values, in order.
    pub headers: Vec<(String, String)>,
    /// The body, without its transfer coding.
    pub body: Vec<u8>,
}

/// One client, which keeps its connection between requests and opens a new one when it was closed.
#[derive(Debug)]
pub struct Client {
    port: u16,
    connection: Option<BufReader<TcpStream>>,
}

/// No answer may take longer: a hang is an error, not a stuck test.
const TIMEOUT: Duration = Duration::from_secs(45);

// === impl Request ===

impl Request {
    /// A request with any method and path.
    pub fn new(method: impl AsRef<[u8]>, path: impl AsRef<[u8]>) -> Self {
        Self { method: method.as_ref().to_vec(), path: path.as_ref().to_vec(), ..Self::default() }
    }

    /// A GET.
    pub fn get(path: impl AsRef<[u8]>) -> Self {
        Self::new("GET", path)
    }

    /// A POST.
    pub fn post(path: impl AsRef<[u8]>) -> Self {
        Self::new("POST", path)
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Self {
        self.headers.push((name.as_ref().to_vec(), value.as_ref().to_vec()));
        self
    }

    /// Gives it a body, announced by Content-Length.
    #[must_use]
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// As sent.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = [&self.method[..], b" ", &self.path, b" HTTP/1.1\r\n"].concat();
        let has =
            |wanted: &str| self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(wanted.as_bytes()));
        if !has("host") {
            bytes.extend_from_slice(b"host: kota.test\r\n");
        }
        for (name, value) in &self.headers {
            bytes.extend_from_slice(&[name, &b": "[..], value, b"\r\n"].concat());
        }
        if !has("content-length")
            && !has("transfer-encoding")
            && (!self.body.is_empty() || self.method != b"GET")
        {
            bytes.extend_from_slice(format!("content-length: {}\r\n", self.body.len()).as_bytes());
        }
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(&self.body);
        bytes
    }
}

// === impl Answer ===

impl Answer {
    /// The only value of a header; None when it is absent.
    ///
    /// # Panics
    /// When it is there more than once: nothing that Kota writes may be.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut found = self
            .headers
            .iter()
            .filter(|(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str());
        let first = found.next();
        assert!(found.next().is_none(), "header `{name}` is there twice: {:?}", self.headers);
        first
    }

    /// The body as text, with replacement characters where it is none.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    ///
    /// # Panics
    /// When it is none.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|e| panic!("{e} in the body of a {}: {}", self.status, self.text()))
    }
}

// === impl Client ===

impl Client {
    /// A client of a port on loopback.
    #[must_use]
    pub fn new(port: u16) -> Self {
        Self { port, connection: None }
    }

    /// Sends a request and reads its answer. A kept connection that was closed meanwhile is replaced once, before anything was answered.
    ///
    /// # Errors
    /// When the connection fails or ends before the answer does.
    pub fn try_send(&mut self, request: &Request) -> io::Result<Answer> {
        let kept = self.connection.is_some();
        match self.send_raw(&request.bytes()).and_then(|()| self.read_answer()) {
            Err(e) if kept && closed(&e) => self.send_raw(&request.bytes()).and_then(|()| self.read_answer()),
            result => result,
        }
    }

    /// As [`Client::try_send`].
    ///
    /// # Panics
    /// Where that fails.
    pub fn send(&mut self, request: &Request) -> Answer {
        self.try_send(request).unwrap_or_else(|e| panic!("port {}: {e}", self.port))
    }

    /// Writes bytes to the connection; several requests in one write are pipelined.
    ///
    /// # Errors
    /// When connecting or writing fails.
    pub fn send_raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.connection.is_none() {
            let stream = TcpStream::connect(("127.0.0.1", self.port))?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(TIMEOUT))?;
            stream.set_write_timeout(Some(TIMEOUT))?;
            self.connection = Some(BufReader::new(stream));
        }
        let connection = self.connection.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        let written = connection.get_mut().write_all(bytes);
        if written.is_err() {
            self.connection = None;
        }
        written
    }

    /// Reads the next answer, past any 1xx.
    ///
    /// # Errors
    /// When the connection ends or its bytes are no answer.
    pub fn read_answer(&mut self) -> io::Result<Answer> {
        let connection = self.connection.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        let answer = read_answer(connection);
        let closes = |answer: &Answer| {
            answer.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"))
        };
        if answer.as_ref().map_or(true, closes) {
            self.connection = None;
        }
        answer
    }

    /// Reads no more than the head of the next answer, 1xx or not: its status.
    ///
    /// # Errors
    /// When the connection ends or its bytes are no answer.
    pub fn read_answer_head(&mut self) -> io::Result<u16> {
        let connection = self.connection.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        read_head(connection).map(|(status, _)| status)
    }

    /// Reads so many bytes of what follows a head.
    ///
    /// # Errors
    /// When the connection ends before.
    pub fn read_bytes(&mut self, count: usize) -> io::Result<Vec<u8>> {
        let connection = self.connection.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        let mut bytes = vec![0; count];
        connection.read_exact(&mut bytes).map(|()| bytes)
    }

    /// Drops the connection, with whatever is under way on it.
    pub fn disconnect(&mut self) {
        self.connection = None;
    }
}

fn closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
}

fn read_answer(from: &mut impl BufRead) -> io::Result<Answer> {
    loop {
        let (status, headers) = read_head(from)?;
        if (100..200).contains(&status) {
            continue;
        }
        let value =
            |wanted: &str| headers.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str());
        let mut body = Vec::new();
        if value("transfer-encoding").is_some_and(|coding| coding.contains("chunked")) {
            read_chunks(from, &mut body)?;
        } else if let Some(length) = value("content-length") {
            let length = length.parse::<u64>().map_err(|_| invalid("content-length is no number"))?;
            from.take(length).read_to_end(&mut body)?;
            if body.len() as u64 != length {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        } else if !matches!(status, 204 | 304) {
            from.read_to_end(&mut body)?;
        }
        return Ok(Answer { status, headers, body });
    }
}

fn read_head(from: &mut impl BufRead) -> io::Result<(u16, Vec<(String, String)>)> {
    let first = read_line(from)?;
    let status = first.split(' ').nth(1).and_then(|code| code.parse().ok());
    let status = status.ok_or_else(|| invalid(&format!("not a status line: {first:?}")))?;
    let mut headers = Vec::new();
    loop {
        let line = read_line(from)?;
        if line.is_empty() {
            return Ok((status, headers));
        }
        let (name, value) =
            line.split_once(':').ok_or_else(|| invalid(&format!("not a header: {line:?}")))?;
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
}

fn read_chunks(from: &mut impl BufRead, body: &mut Vec<u8>) -> io::Result<()> {
    loop {
        let size = read_line(from)?;
        let size = u64::from_str_radix(&size, 16).map_err(|_| invalid("chunk size is no number"))?;
        if size == 0 {
            while !read_line(from)?.is_empty() {} // trailers
            return Ok(());
        }
        if from.take(size).read_to_end(body)? as u64 != size {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        read_line(from)?;
    }
}

fn read_line(from: &mut impl BufRead) -> io::Result<String> {
    let mut line = Vec::new();
    from.read_until(b'\n', &mut line)?;
    if line.pop() != Some(b'\n') {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    Ok(String::from_utf8_lossy(&line).into_owned())
}

fn invalid(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text.to_owned())
}
