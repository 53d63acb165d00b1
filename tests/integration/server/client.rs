//! A Thrift client: values of any type, which the stock library writes and reads.

use std::fmt;
use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use thrift::protocol::{
    TBinaryInputProtocol, TBinaryOutputProtocol, TFieldIdentifier, TInputProtocol, TListIdentifier,
    TMapIdentifier, TMessageIdentifier, TMessageType, TOutputProtocol, TStructIdentifier, TType,
};
use thrift::transport::{
    TBufferedReadTransport, TBufferedWriteTransport, TFramedReadTransport, TFramedWriteTransport,
    TReadTransport, TWriteTransport,
};

/// A call that takes so long has failed.
const PATIENCE: Duration = Duration::from_mins(1);

/// Whether messages stand back to back, or each behind its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    Unframed,
    Framed,
}

/// Why a call brought no result.
#[derive(Debug)]
pub(crate) enum CallError {
    /// The connection broke, or what came over it is no reply. Whether the call was executed is
    /// not known.
    Broken(thrift::Error),
    /// An exception that the method declares: its field in the result, and its text if it has one.
    Declared { field: i16, why: String },
    /// An error of the protocol: its type and text.
    Application { kind: i32, why: String },
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broken(error) => write!(f, "the connection broke: {error}"),
            Self::Declared { field, why } => write!(f, "exception {field}: {why}"),
            Self::Application { kind, why } => write!(f, "protocol error {kind}: {why}"),
        }
    }
}

impl From<thrift::Error> for CallError {
    fn from(error: thrift::Error) -> Self {
        Self::Broken(error)
    }
}

/// Whose answers a data call waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    One = 1,
    Quorum = 2,
    All = 5,
    Any = 6,
}

/// A connection to a server.
pub(crate) struct Client {
    input: Box<dyn TInputProtocol + Send>,
    output: Box<dyn TOutputProtocol + Send>,
    last_seqid: i32,
    /// The consistency level of its data calls.
    pub(crate) level: Level,
}

impl Client {
    /// An unframed connection. Panics if there is no server.
    pub(crate) fn connect(server: SocketAddr) -> Self {
        Self::connect_as(server, Transport::Unframed)
    }

    /// Panics if there is no server.
    pub(crate) fn connect_as(server: SocketAddr, transport: Transport) -> Self {
        let stream = connect(server);
        let copy = stream.try_clone().unwrap();
        let (input, output): (Box<dyn TReadTransport + Send>, Box<dyn TWriteTransport + Send>);
        match transport {
            Transport::Unframed => {
                input = Box::new(TBufferedReadTransport::new(stream));
                output = Box::new(TBufferedWriteTransport::new(copy));
            }
            Transport::Framed => {
                input = Box::new(TFramedReadTransport::new(stream));
                output = Box::new(TFramedWriteTransport::new(copy));
            }
        }
        Self {
            input: Box::new(TBinaryInputProtocol::new(input, true)),
            output: Box::new(TBinaryOutputProtocol::new(output, true)),
            last_seqid: 0,
            level: Level::One,
        }
    }

    /// The same connection, whose calls are made at another level from now on.
    #[must_use]
    pub(crate) fn at(mut self, level: Level) -> Self {
        self.level = level;
        self
    }

    /// Calls a method with the fields of its arguments. `None` is the result of a void method.
    pub(crate) fn call(
        &mut self,
        method: &str,
        arguments: Vec<(i16, Value)>,
    ) -> Result<Option<Value>, CallError> {
        self.last_seqid += 1;
        let request = TMessageIdentifier::new(method, TMessageType::Call, self.last_seqid);
        self.output.write_message_begin(&request)?;
        Value::Struct(arguments).write(&mut *self.output)?;
        self.output.write_message_end()?;
        self.output.flush()?;

        let head = self.input.read_message_begin()?;
        let mut fields = Value::read_fields(&mut *self.input)?;
        self.input.read_message_end()?;
        assert_eq!((head.name.as_str(), head.sequence_number), (method, self.last_seqid));
        if head.message_type == TMessageType::Exception {
            let (why, kind) = (text_field(&fields, 1), fields.iter().find(|(id, _)| *id == 2));
            let Some((_, Value::I32(kind))) = kind else { panic!("{method}: {fields:?}") };
            return Err(CallError::Application { kind: *kind, why });
        }
        assert_eq!(head.message_type, TMessageType::Reply);
        match fields.pop() {
            None => Ok(None),
            Some((0, value)) => Ok(Some(value)),
            Some((field, Value::Struct(exception))) => {
                Err(CallError::Declared { field, why: text_field(&exception, 1) })
            }
            Some(other) => panic!("{method} ended with {other:?}"),
        }
    }
}

/// A bare connection, for what no client should send.
pub(crate) fn connect(server: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(server).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Waits until the server closes the connection, and tells how many bytes it sent before.
pub(crate) fn wait_for_end(stream: &mut TcpStream) -> usize {
    let mut buffer = vec![0; 1 << 16];
    let mut count = 0;
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return count,
            Ok(more) => count += more,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return count,
            Err(error) => panic!("the server did not close: {error}"),
        }
    }
}

/// A request as bytes, with a version in its header and without a frame.
pub(crate) fn request(method: &str, arguments: Vec<(i16, Value)>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut output = TBinaryOutputProtocol::new(&mut bytes, true);
    let head = TMessageIdentifier::new(method, TMessageType::Call, 1);
    output.write_message_begin(&head).unwrap();
    Value::Struct(arguments).write(&mut output).unwrap();
    bytes
}

/// Any value of the protocol.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Bool(bool),
    I32(i32),
    I64(i64),
    Bytes(Vec<u8>),
    Struct(Vec<(i16, Value)>),
    /// A list, or a set that was read.
    List(Vec<Value>),
    Map(Vec<(Value, Value)>),
}

impl Value {
    pub(crate) fn bytes(bytes: impl AsRef<[u8]>) -> Self {
        Self::Bytes(bytes.as_ref().to_vec())
    }

    pub(crate) fn list(elements: impl IntoIterator<Item = Self>) -> Self {
        Self::List(elements.into_iter().collect())
    }

    fn kind(&self) -> TType {
        match self {
            Self::Bool(_) => TType::Bool,
            Self::I32(_) => TType::I32,
            Self::I64(_) => TType::I64,
            Self::Bytes(_) => TType::String,
            Self::Struct(_) => TType::Struct,
            Self::List(_) => TType::List,
            Self::Map(_) => TType::Map,
        }
    }

    fn write(&self, output: &mut dyn TOutputProtocol) -> thrift::Result<()> {
        // The type of what is not there: no server looks at it.
        let kind = |value: Option<&Self>| value.map_or(TType::Struct, Self::kind);
        match self {
            Self::Bool(value) => output.write_bool(*value),
            Self::I32(value) => output.write_i32(*value),
            Self::I64(value) => output.write_i64(*value),
            Self::Bytes(value) => output.write_bytes(value),
            Self::Struct(fields) => {
                output.write_struct_begin(&TStructIdentifier::new(""))?;
                for (id, value) in fields {
                    output.write_field_begin(&TFieldIdentifier::new("", value.kind(), *id))?;
                    value.write(output)?;
                    output.write_field_end()?;
                }
                output.write_field_stop()?;
                output.write_struct_end()
            }
            Self::List(elements) => {
                let head = TListIdentifier::new(kind(elements.first()), elements.len() as i32);
                output.write_list_begin(&head)?;
                elements.iter().try_for_each(|element| element.write(output))?;
                output.write_list_end()
            }
            Self::Map(entries) => {
                let first = entries.first();
                let (key, value) = (kind(first.map(|e| &e.0)), kind(first.map(|e| &e.1)));
                output.write_map_begin(&TMapIdentifier::new(key, value, entries.len() as i32))?;
                for (key, value) in entries {
                    key.write(output)?;
                    value.write(output)?;
                }
                output.write_map_end()
            }
        }
    }

    fn read(input: &mut dyn TInputProtocol, kind: TType) -> thrift::Result<Self> {
        Ok(match kind {
            TType::Bool => Self::Bool(input.read_bool()?),
            TType::I32 => Self::I32(input.read_i32()?),
            TType::I64 => Self::I64(input.read_i64()?),
            TType::String => Self::Bytes(input.read_bytes()?),
            TType::Struct => Self::Struct(Self::read_fields(input)?),
            TType::List => {
                let head = input.read_list_begin()?;
                let elements = (0..head.size).map(|_| Self::read(input, head.element_type));
                let list = Self::List(elements.collect::<Result<_, _>>()?);
                input.read_list_end()?;
                list
            }
            TType::Set => {
                let head = input.read_set_begin()?;
                let elements = (0..head.size).map(|_| Self::read(input, head.element_type));
                let set = Self::List(elements.collect::<Result<_, _>>()?);
                input.read_set_end()?;
                set
            }
            TType::Map => {
                let head = input.read_map_begin()?;
                let (key, value) =
                    head.key_type.zip(head.value_type).unwrap_or((TType::Stop, TType::Stop));
                let entries = (0..head.size)
                    .map(|_| Ok((Self::read(input, key)?, Self::read(input, value)?)));
                let map = Self::Map(entries.collect::<Result<_, thrift::Error>>()?);
                input.read_map_end()?;
                map
            }
            other => panic!("no reply has a {other}"),
        })
    }

    fn read_fields(input: &mut dyn TInputProtocol) -> thrift::Result<Vec<(i16, Self)>> {
        let mut fields = Vec::new();
        input.read_struct_begin()?;
        loop {
            let field = input.read_field_begin()?;
            if field.field_type == TType::Stop {
                input.read_struct_end()?;
                return Ok(fields);
            }
            fields.push((field.id.unwrap(), Self::read(input, field.field_type)?));
            input.read_field_end()?;
        }
    }
}

fn text_field(fields: &[(i16, Value)], id: i16) -> String {
    match fields.iter().find(|(field, _)| *field == id) {
        Some((_, Value::Bytes(text))) => String::from_utf8(text.clone()).unwrap(),
        _ => String::new(),
    }
}
