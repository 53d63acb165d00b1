//! The other side: requests as bytes, replies as the stock Thrift library reads them.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::kit::clock::ManualClock;
use alexandra::config::settings::Release;
use alexandra::server::{Server, ServerOptions, listen};
use alexandra::thrift::{Clients, Thrift};
use thrift::protocol::{TBinaryInputProtocol, TInputProtocol, TMessageType, TType};
use thrift::transport::TFramedReadTransport;
use tokio_util::sync::CancellationToken;

use super::service::Scripted;

/// A test that hangs for so long has failed.
const PATIENCE: Duration = Duration::from_mins(1);

/// A server on a port of its own. Stops when dropped.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) service: Arc<Scripted>,
    pub(crate) stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

/// Properties of a server.
pub(crate) struct Setup {
    pub(crate) clients: Clients,
    options: ServerOptions,
}

impl Deref for Setup {
    type Target = ServerOptions;

    fn deref(&self) -> &ServerOptions {
        &self.options
    }
}

impl DerefMut for Setup {
    fn deref_mut(&mut self) -> &mut ServerOptions {
        &mut self.options
    }
}

impl Running {
    pub(crate) fn start(change: impl FnOnce(&mut Setup)) -> Self {
        // Time stands still, so that each server logs a reason once.
        let mut options = ServerOptions::new(Arc::new(ManualClock::default()));
        options.workers = 2;
        options.limits.settings = "Thrift";
        let clients = Clients { version: Release::V06, prefer_framed: false };
        let mut setup = Setup { clients, options };
        change(&mut setup);
        let service = Arc::new(Scripted::default());
        let stop = CancellationToken::new();
        let (bound, address) = std::sync::mpsc::channel();
        let thread = std::thread::spawn({
            let (service, stop) = (service.clone(), stop.clone());
            move || {
                let runtime =
                    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    let Setup { clients, options } = setup;
                    let listener = listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
                    bound.send(listener.local_addr().unwrap()).unwrap();
                    let thrift = Thrift::new(service, clients, options.clock.clone());
                    let mut server = Server::new(options);
                    server.add(listener.into(), Arc::new(thrift));
                    server.run(stop).await.unwrap();
                });
            }
        });
        Self { address: address.recv().unwrap(), service, stop, thread: Some(thread) }
    }

    pub(crate) fn connect(&self) -> Client {
        Client::new(self.address)
    }

    /// Waits until one more call has come to the gate.
    pub(crate) fn wait_for_call(&self) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(self.service.waiting.acquire()).unwrap().forget();
    }

    /// Waits until the server has ended.
    pub(crate) fn join(&mut self) {
        self.thread.take().unwrap().join().unwrap();
    }

    /// The server still answers.
    pub(crate) fn assert_alive(&self) {
        let mut client = self.connect();
        client.send(&call("describe_version", 1, &[0]));
        assert_eq!(client.reply().result(), Some(&Value::bytes("2.2.0")));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// A connection.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    pub(crate) framed: bool,
    /// Lines of the log before it: one with the same port may have been here before.
    pub(super) earlier_lines: usize,
}

impl Client {
    fn new(address: SocketAddr) -> Self {
        let earlier_lines = super::LOG.0.lock().unwrap().len();
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Self { stream, framed: false, earlier_lines }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Whether a reply has begun to arrive.
    pub(crate) fn has_reply(&self) -> bool {
        self.stream.set_nonblocking(true).unwrap();
        let is_there = self.stream.peek(&mut [0]).is_ok();
        self.stream.set_nonblocking(false).unwrap();
        is_there
    }

    /// The next reply, as the stock library reads it.
    pub(crate) fn reply(&mut self) -> Answer {
        if self.framed {
            let mut frame = TFramedReadTransport::new(&self.stream);
            Answer::read(&mut TBinaryInputProtocol::new(&mut frame, true))
        } else {
            Answer::read(&mut TBinaryInputProtocol::new(&self.stream, true))
        }
    }

    pub(crate) fn call(&mut self, method: &str, args: &[u8]) -> Answer {
        self.send(&call(method, 5, args));
        let answer = self.reply();
        assert_eq!((answer.name.as_str(), answer.seqid), (method, 5));
        answer
    }

    /// Waits until the server has closed the connection, and tells how much it sent before.
    pub(crate) fn wait_for_end(&mut self) -> usize {
        let mut buffer = vec![0; 1 << 16];
        let mut count = 0;
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return count,
                Ok(more) => count += more,
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return count,
                Err(error) => panic!("the server did not close: {error}"),
            }
        }
    }

    pub(crate) fn end_sending(&self) {
        // The server may have closed already.
        let _ = self.stream.shutdown(Shutdown::Write);
    }
}

/// Any value of the protocol.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Bool(bool),
    I32(i32),
    I64(i64),
    Bytes(Vec<u8>),
    Struct(Vec<(i16, Value)>),
    /// A list or a set.
    List(Vec<Value>),
    Map(Vec<(Value, Value)>),
}

impl Value {
    pub(crate) fn bytes(text: impl AsRef<[u8]>) -> Self {
        Self::Bytes(text.as_ref().to_vec())
    }

    fn read(input: &mut dyn TInputProtocol, value_type: TType) -> Self {
        match value_type {
            TType::Bool => Self::Bool(input.read_bool().unwrap()),
            TType::I32 => Self::I32(input.read_i32().unwrap()),
            TType::I64 => Self::I64(input.read_i64().unwrap()),
            TType::String => Self::Bytes(input.read_bytes().unwrap()),
            TType::Struct => Self::Struct(Self::fields(input)),
            TType::List => {
                let list = input.read_list_begin().unwrap();
                let element = |_| Self::read(input, list.element_type);
                let elements = (0..list.size).map(element).collect();
                input.read_list_end().unwrap();
                Self::List(elements)
            }
            TType::Set => {
                let set = input.read_set_begin().unwrap();
                let elements = (0..set.size).map(|_| Self::read(input, set.element_type)).collect();
                input.read_set_end().unwrap();
                Self::List(elements)
            }
            TType::Map => {
                let map = input.read_map_begin().unwrap();
                let types = map.key_type.zip(map.value_type);
                let entry = |_| {
                    let (key, value) = types.unwrap();
                    (Self::read(input, key), Self::read(input, value))
                };
                let entries = (0..map.size).map(entry).collect();
                input.read_map_end().unwrap();
                Self::Map(entries)
            }
            other => panic!("no reply has a {other}"),
        }
    }

    fn fields(input: &mut dyn TInputProtocol) -> Vec<(i16, Self)> {
        let mut fields = vec![];
        input.read_struct_begin().unwrap();
        loop {
            let field = input.read_field_begin().unwrap();
            if field.field_type == TType::Stop {
                input.read_struct_end().unwrap();
                return fields;
            }
            fields.push((field.id.unwrap(), Self::read(input, field.field_type)));
            input.read_field_end().unwrap();
        }
    }
}

/// A reply.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Answer {
    pub(crate) kind: TMessageType,
    pub(crate) name: String,
    pub(crate) seqid: i32,
    pub(crate) fields: Vec<(i16, Value)>,
}

impl Answer {
    fn read(input: &mut dyn TInputProtocol) -> Self {
        let head = input.read_message_begin().unwrap();
        let fields = Value::fields(input);
        Self { kind: head.message_type, name: head.name, seqid: head.sequence_number, fields }
    }

    /// The result of a call that succeeded.
    pub(crate) fn result(&self) -> Option<&Value> {
        match (self.kind, self.fields.as_slice()) {
            (TMessageType::Reply, [(0, value)]) => Some(value),
            _ => None,
        }
    }

    pub(crate) fn is_void(&self) -> bool {
        self.kind == TMessageType::Reply && self.fields.is_empty()
    }

    /// Field number and text of a declared exception.
    pub(crate) fn exception(&self) -> Option<(i16, Option<String>)> {
        match (self.kind, self.fields.as_slice()) {
            (TMessageType::Reply, [(id, Value::Struct(fields))]) if *id > 0 => {
                let why = match fields.as_slice() {
                    [(1, Value::Bytes(why))] => Some(String::from_utf8(why.clone()).unwrap()),
                    _ => None,
                };
                Some((*id, why))
            }
            _ => None,
        }
    }

    /// Type and text of an error of the protocol.
    pub(crate) fn error(&self) -> Option<(i32, String)> {
        match (self.kind, self.fields.as_slice()) {
            (TMessageType::Exception, [(1, Value::Bytes(text)), (2, Value::I32(number))]) => {
                Some((*number, String::from_utf8(text.clone()).unwrap()))
            }
            _ => None,
        }
    }
}

/// A request with a version in its header.
pub(crate) fn call(method: &str, seqid: i32, args: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x80, 1, 0, 1];
    bytes.extend_from_slice(&(method.len() as i32).to_be_bytes());
    bytes.extend_from_slice(method.as_bytes());
    bytes.extend_from_slice(&seqid.to_be_bytes());
    bytes.extend_from_slice(args);
    bytes
}

/// A request with the header of old.
pub(crate) fn old_call(method: &str, seqid: i32, args: &[u8]) -> Vec<u8> {
    let mut bytes = (method.len() as i32).to_be_bytes().to_vec();
    bytes.extend_from_slice(method.as_bytes());
    bytes.push(1);
    bytes.extend_from_slice(&seqid.to_be_bytes());
    bytes.extend_from_slice(args);
    bytes
}

pub(crate) fn frame(message: &[u8]) -> Vec<u8> {
    [(message.len() as i32).to_be_bytes().as_slice(), message].concat()
}
