//! The calls as a client makes them: the arguments of a method, and how its answer is read.

use super::codec::{Decode, DecodeError, Lent, Reader, Text, WireType, decode_lossy};
use super::idl::Exception;
use super::schema::{Throws, wire_type};

/// The arguments of a method.
pub trait Call {
    /// Its name on the wire.
    const METHOD: &'static str;
    /// The exceptions that it declares.
    const THROWS: &'static [Throws];
    /// Its result.
    type Result: Lent;

    /// Appends the arguments.
    fn encode(&self, out: &mut Vec<u8>);
}

/// The answer to a call, borrowed from the bytes of a reply.
pub type Answer<'m, C> = <<C as Call>::Result as Lent>::In<'m>;

/// Why a call brought no result.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// An exception that the method declares, and its text if it has one.
    #[error("{0:?}: {1}")]
    Declared(Exception, String),
    /// An error of the protocol, such as an unknown method or an internal error.
    #[error("{0}")]
    Application(String),
    /// The bytes are no answer of this method.
    #[error("the reply makes no sense: {0}")]
    Senseless(#[from] DecodeError),
    /// The connection broke. Whether the call was executed is not known.
    #[error("{0}")]
    Broken(String),
}

/// Reads the result struct of a method.
pub fn read_result<C: Call>(bytes: &[u8]) -> Result<Answer<'_, C>, CallError> {
    let mut reader = Reader::new(bytes);
    while let Some((field_type, id)) = reader.field()? {
        if id == 0 && field_type == <C::Result as WireType>::TYPE {
            return Ok(Answer::<C>::decode(&mut reader)?);
        }
        match C::THROWS.iter().find(|throws| throws.id == id) {
            Some(throws) if field_type == wire_type::STRUCT => {
                return Err(CallError::Declared(throws.exception, read_text(&mut reader)?));
            }
            _ => reader.skip(field_type)?,
        }
    }
    if <C::Result as WireType>::TYPE == wire_type::STOP {
        return Ok(Answer::<C>::decode(&mut reader)?);
    }
    let text = format!("{} failed: unknown result", C::METHOD);
    Err(CallError::Application(text))
}

/// Reads the exception that answers a call instead of a result struct.
pub fn read_exception(bytes: &[u8]) -> Result<CallError, DecodeError> {
    read_text(&mut Reader::new(bytes)).map(CallError::Application)
}

/// Reads a struct of which only the text in field 1 matters.
fn read_text(reader: &mut Reader<'_>) -> Result<String, DecodeError> {
    let mut text = String::new();
    while let Some((field_type, id)) = reader.field()? {
        if id == 1 && field_type == Text::TYPE {
            text = decode_lossy(reader.binary()?).into_owned();
        } else {
            reader.skip(field_type)?;
        }
    }
    Ok(text)
}
