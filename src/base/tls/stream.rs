//! A TCP connection that may be encrypted, with the calls that tokio's has.

use super::{Guard, Mode, Port, Trust};
use crate::base::lock::{Mutex, MutexGuard, rank};
use rustls::{Connection, ServerConnection};
use std::future::poll_fn;
use std::io::{self, Read, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// The first byte of a connection by TLS. No other protocol of this server begins with it: a frame
/// of Thrift that did would be longer than any may be.
const HANDSHAKE: u8 = 0x16;

/// Most bytes of a handshake. Only nodes show certificates to a server.
const MAX_CLIENT_HANDSHAKE: usize = 16 << 10;
const MAX_NODE_HANDSHAKE: usize = 64 << 10;

/// A connection. It is plain text at first.
#[derive(Debug)]
pub struct Stream {
    socket: TcpStream,
    /// There if it is encrypted. The lock is short, and not contended where one task reads and
    /// writes.
    session: Option<Box<Mutex<rank::State, Session>>>,
}

#[derive(Debug)]
struct Session {
    connection: Connection,
    /// Bytes that have come of a handshake, or of a record, that is not whole.
    unfinished: usize,
    max_handshake: usize,
}

impl Stream {
    /// A connection that is plain text so far.
    pub fn new(socket: TcpStream) -> Self {
        Self { socket, session: None }
    }

    /// Decides by its first byte how an accepted connection goes on. False if the guard refuses it.
    /// Pending until the byte is there, but where TLS is off.
    pub fn poll_open(
        &mut self,
        guard: &Guard,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<bool>> {
        let mode = guard.mode();
        if mode == Mode::Off {
            return Poll::Ready(Ok(true));
        }
        let mut first = [0];
        let mut peeked = ReadBuf::new(&mut first);
        ready!(self.socket.poll_peek(context, &mut peeked))?;
        match peeked.filled() {
            [HANDSHAKE] => {}
            // The peer has closed it, as a probe of the port does.
            [] => return Poll::Ready(Ok(true)),
            _ => return Poll::Ready(Ok(mode == Mode::Optional)),
        }
        let Some(config) = guard.tls.accepting(guard.port) else { return Poll::Ready(Ok(false)) };
        let session = ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
        let is_node = guard.port == Port::Storage;
        let max = if is_node { MAX_NODE_HANDSHAKE } else { MAX_CLIENT_HANDSHAKE };
        self.encrypt(session.into(), max);
        Poll::Ready(Ok(true))
    }

    /// The same for one that may wait. A refusal is an error.
    pub async fn open(&mut self, guard: &Guard) -> io::Result<()> {
        match poll_fn(|context| self.poll_open(guard, context)).await {
            Ok(false) => Err(io::Error::new(io::ErrorKind::PermissionDenied, guard.refusal())),
            opened => opened.map(drop),
        }
    }

    /// Makes an encrypted connection of one that was dialled.
    pub async fn dial(socket: TcpStream, trust: &Trust) -> io::Result<Self> {
        let session = trust.session(socket.peer_addr()?.ip())?;
        let mut stream = Self::new(socket);
        stream.encrypt(session.into(), MAX_NODE_HANDSHAKE);
        stream.handshake().await?;
        Ok(stream)
    }

    fn encrypt(&mut self, connection: Connection, max_handshake: usize) {
        let session = Session { connection, unfinished: 0, max_handshake };
        self.session = Some(Box::new(Mutex::new(session)));
    }

    /// Waits for the end of the handshake, if the connection is encrypted.
    pub async fn handshake(&self) -> io::Result<()> {
        poll_fn(|context| self.poll_handshake(context)).await
    }

    /// Whether the rest of something must come before anything of it can be read.
    pub fn is_unfinished(&self) -> bool {
        let session = self.session();
        session.is_some_and(|it| it.connection.is_handshaking() || it.unfinished > 0)
    }

    fn poll_handshake(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(session) = self.session() else { return Poll::Ready(Ok(())) };
        let mut session = session;
        loop {
            let step = match self.send(&mut session) {
                Ok(()) if !session.connection.is_handshaking() => return Poll::Ready(Ok(())),
                Ok(()) => self.receive(&mut session),
                Err(error) => Err(error),
            };
            match step {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                Ok(_) => {}
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                    return Poll::Ready(Err(error));
                }
                Err(_) if session.connection.wants_write() => {
                    ready!(self.socket.poll_write_ready(context))?;
                }
                Err(_) => ready!(self.socket.poll_read_ready(context))?,
            }
        }
    }

    /// The connection below.
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    fn session(&self) -> Option<MutexGuard<'_, Session>> {
        self.session.as_ref().map(|session| session.lock())
    }

    /// Sends what is encrypted already.
    fn send(&self, session: &mut Session) -> io::Result<()> {
        while session.connection.wants_write() {
            session.connection.write_tls(&mut Socket(&self.socket))?;
        }
        Ok(())
    }

    /// Takes what has come, and returns how many bytes that are: 0 at the end.
    fn receive(&self, session: &mut Session) -> io::Result<usize> {
        let was_handshaking = session.connection.is_handshaking();
        let count = session.connection.read_tls(&mut Socket(&self.socket))?;
        let processed = session.connection.process_new_packets();
        // An answer of the protocol, or why it ends.
        match self.send(session) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            _ => {}
        }
        let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        let has_read = processed.map_err(invalid)?.plaintext_bytes_to_read() > 0;
        let is_handshaking = session.connection.is_handshaking();
        let is_whole = has_read || was_handshaking && !is_handshaking;
        session.unfinished = if is_whole { 0 } else { session.unfinished + count };
        if is_handshaking && session.unfinished > session.max_handshake {
            let text = format!("its handshake is longer than {} bytes", session.max_handshake);
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        Ok(count)
    }

    /// Reads what is there. Fails with [`io::ErrorKind::WouldBlock`] if that is nothing.
    pub fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(mut session) = self.session() else { return self.socket.try_read(buffer) };
        loop {
            match session.connection.reader().read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
            self.receive(&mut session)?;
        }
    }

    /// Whether something may be there to read.
    pub fn poll_read_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(mut session) = self.session()
            && let Ok(state) = session.connection.process_new_packets()
            && state.plaintext_bytes_to_read() > 0
        {
            return Poll::Ready(Ok(()));
        }
        self.socket.poll_read_ready(context)
    }

    /// Writes as much as the system takes. An encrypted connection may hold the last of it until
    /// [`Stream::try_flush`]. Fails with [`io::ErrorKind::WouldBlock`] if that is nothing.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        let Some(mut session) = self.session() else { return self.socket.try_write(bytes) };
        self.send(&mut session)?;
        let count = session.connection.writer().write(bytes)?;
        match self.send(&mut session) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(count),
        }
    }

    /// Gives the system what is held. Fails with [`io::ErrorKind::WouldBlock`] if it does not take
    /// all.
    pub fn try_flush(&self) -> io::Result<()> {
        self.session().map_or(Ok(()), |mut session| self.send(&mut session))
    }
}

/// The socket, for the session.
struct Socket<'a>(&'a TcpStream);

impl Read for Socket<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(buffer)
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.session.is_none() {
            return Pin::new(&mut self.socket).poll_read(context, buffer);
        }
        loop {
            match self.try_read(buffer.initialize_unfilled()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.socket.poll_read_ready(context))?;
                }
                read => return Poll::Ready(read.map(|count| buffer.advance(count))),
            }
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.session.is_none() {
            return Pin::new(&mut self.socket).poll_write(context, bytes);
        }
        loop {
            match self.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.socket.poll_write_ready(context))?;
                }
                written => return Poll::Ready(written),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            match self.try_flush() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    ready!(self.socket.poll_write_ready(context))?;
                }
                flushed => return Poll::Ready(flushed),
            }
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(mut session) = self.session() {
            session.connection.send_close_notify();
        }
        ready!(self.as_mut().poll_flush(context))?;
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}
