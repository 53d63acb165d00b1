//! A blocking Thrift client.
//!
//! The stock `thrift` crate brings the transports and heads of messages, and walks through every
//! reply, so that a foreign implementation judges what a server sends. The values are those of
//! [`crate::thrift::idl`], read from the bytes that it has passed over: unlike that crate they take
//! row keys that are not well-formed UTF-8.

use crate::base::lock::{Mutex, rank};
use crate::base::tls::Trust;
use crate::thrift::Map;
use crate::thrift::idl::{AuthenticationRequest, LoginArgs};
use crate::thrift::remote::{Answer, Call, CallError, read_exception, read_result};
use rustls::{ClientConnection, StreamOwned};
use std::io::{self, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;
use thrift::protocol::{
    TBinaryInputProtocol, TBinaryOutputProtocol, TInputProtocol, TMessageIdentifier, TMessageType,
    TOutputProtocol, TType,
};
use thrift::transport::{TBufferedWriteTransport, TFramedWriteTransport};
use thrift::{TConfiguration, TransportErrorKind};

/// How long a server may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long it may be silent. No server works longer than its `RpcTimeoutInMillis` for a client.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(2);

/// A connection to a server.
pub struct Client {
    input: Recorder,
    output: Box<dyn Write + Send>,
    request: Vec<u8>,
    last_seqid: i32,
    is_broken: bool,
}

/// Keeps the bytes that pass.
struct Recorder {
    source: Box<dyn Read + Send>,
    bytes: Vec<u8>,
}

impl Read for Recorder {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(buffer)?;
        self.bytes.extend_from_slice(&buffer[..count]);
        Ok(count)
    }
}

/// A stream by TLS, for both directions.
#[derive(Clone)]
struct Encrypted(Arc<Mutex<rank::State, StreamOwned<ClientConnection, TcpStream>>>);

impl Read for Encrypted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.lock().read(buffer)
    }
}

impl Write for Encrypted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.lock().flush()
    }
}

/// The content of frames. That of the stock crate has at most 16 MB.
struct Frames<S> {
    input: BufReader<S>,
    /// Bytes that the frame still has.
    left: u64,
}

impl<S: Read> Read for Frames<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.left == 0 {
            let mut length = [0; 4];
            self.input.read_exact(&mut length)?;
            self.left = u32::from_be_bytes(length).into();
        }
        let count = self.input.by_ref().take(self.left).read(buffer)?;
        self.left -= count as u64;
        Ok(count)
    }
}

impl Client {
    /// Connects to a server, by TLS if there is trust in its certificates.
    pub fn connect(
        (host, port): (&str, u16),
        is_framed: bool,
        trust: Option<&Trust>,
    ) -> io::Result<Self> {
        let stream = open(host, port)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
        let Some(trust) = trust else {
            return Ok(Self::over(stream.try_clone()?, stream, is_framed));
        };
        let session = trust.session(stream.peer_addr()?.ip())?;
        let stream = Encrypted(Arc::new(Mutex::new(StreamOwned::new(session, stream))));
        Ok(Self::over(stream.clone(), stream, is_framed))
    }

    fn over<S: Read + Write + Send + 'static>(input: S, output: S, is_framed: bool) -> Self {
        let (source, output): (Box<dyn Read + Send>, Box<dyn Write + Send>) = if is_framed {
            let output = TFramedWriteTransport::new(output);
            (Box::new(Frames { input: BufReader::new(input), left: 0 }), Box::new(output))
        } else {
            let output = TBufferedWriteTransport::new(output);
            (Box::new(BufReader::new(input)), Box::new(output))
        };
        let input = Recorder { source, bytes: Vec::new() };
        Self { input, output, request: Vec::new(), last_seqid: 0, is_broken: false }
    }

    /// Calls a method. The answer borrows from the reply, which is kept until the next call.
    pub fn call<C: Call>(&mut self, arguments: &C) -> Result<Answer<'_, C>, CallError> {
        match self.exchange(arguments) {
            Ok(TMessageType::Reply) => read_result::<C>(&self.input.bytes),
            Ok(_) => Err(read_exception(&self.input.bytes)?),
            Err(error) => {
                self.is_broken = true;
                Err(CallError::Broken(text_of(error)))
            }
        }
    }

    /// Binds the connection to a user of a keyspace.
    pub fn login(
        &mut self,
        keyspace: &str,
        username: &str,
        password: &str,
    ) -> Result<(), CallError> {
        let credentials = [("username", username), ("password", password)];
        let credentials = credentials.map(|(name, value)| (name.into(), value.into())).into();
        self.call(&LoginArgs {
            keyspace: keyspace.into(),
            auth_request: AuthenticationRequest { credentials: Map(credentials) },
        })
    }

    /// Whether the connection broke: further calls would fail.
    pub fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Sends a call and records the body of its reply.
    fn exchange<C: Call>(&mut self, arguments: &C) -> thrift::Result<TMessageType> {
        self.last_seqid = self.last_seqid.wrapping_add(1);
        self.request.clear();
        let head = TMessageIdentifier::new(C::METHOD, TMessageType::Call, self.last_seqid);
        TBinaryOutputProtocol::new(&mut self.request, true).write_message_begin(&head)?;
        arguments.encode(&mut self.request);
        self.output.write_all(&self.request)?;
        self.output.flush()?;

        // Bytes of another protocol could be read as a name of a gigabyte: names are bounded.
        let head = TBinaryInputProtocol::new(&mut self.input, false).read_message_begin()?;
        self.input.bytes.clear();
        // Rows have no limit that a client could know.
        let config = TConfiguration::no_limits();
        TBinaryInputProtocol::with_config(&mut self.input, false, config).skip(TType::Struct)?;
        if head.sequence_number != self.last_seqid {
            return Err("the reply is to another call".into());
        }
        Ok(head.message_type)
    }
}

fn open(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
            Ok(stream) => return Ok(stream),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

fn text_of(error: thrift::Error) -> String {
    match error {
        thrift::Error::Transport(it) if it.kind == TransportErrorKind::EndOfFile => {
            "the server closed the connection".to_owned()
        }
        thrift::Error::Transport(it) => it.message,
        thrift::Error::Protocol(it) => it.message,
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_have_any_length() {
        let long = vec![7; 17 << 20];
        let length = (long.len() as u32).to_be_bytes();
        let bytes = [&[0; 4][..], &length, &long, &[0, 0, 0, 1, 9]].concat();
        let frames = Frames { input: BufReader::new(&bytes[..]), left: 0 };
        let mut content = Vec::new();
        frames.take(long.len() as u64 + 1).read_to_end(&mut content).unwrap();
        assert!(content == [&long[..], &[9]].concat());
    }
}
