//! Values of calls between nodes of this program, and the parts that bodies of 0.6 share with them.
//!
//! ```text
//! numbers        big-endian; a truth value is one byte, a float its bits
//! text           BYTES
//! token          BYTES, as the partitioner has them; the bytes of a key where keys are tokens
//! range          token before it, token that ends it
//! KEY            u16 number of bytes, then the row key
//! column family  UTF keyspace, UTF name
//! list           i32 number of elements, then these
//! option         one byte: 0, or 1 and the value
//! ```

use super::error::{BodyError, EncodeError};
use crate::base::bytes::ByteReader;
use crate::base::java::{JavaReader, JavaWriter, TooLong};
use crate::model::key::RowKey;
use crate::model::mutation::DecodeError;
use crate::model::original_mutation::{OTHER_KEY, check_end, family_named};
use crate::model::schema::{FamilyId, Schema};
use crate::ring::{Partitioner, Token, TokenRange};
use std::net::IpAddr;

/// Schema and partitioner by which column families and tokens are read and written.
#[derive(Debug, Clone, Copy)]
pub struct BodyContext<'a> {
    /// The column families of this node.
    pub schema: &'a Schema,
    /// The partitioner of the cluster.
    pub partitioner: Partitioner,
}

/// A value that calls have in binary form.
pub trait Body {
    /// Appends it.
    fn put(&self, out: &mut Vec<u8>, context: BodyContext<'_>) -> Result<(), EncodeError>;

    /// Reads what [`Body::put`] has appended.
    fn read(reader: &mut ByteReader<'_>, context: BodyContext<'_>) -> Result<Self, BodyError>
    where
        Self: Sized;

    /// A body of this value alone.
    fn encode(&self, context: BodyContext<'_>) -> Result<Vec<u8>, EncodeError> {
        let mut out = Vec::new();
        self.put(&mut out, context)?;
        Ok(out)
    }

    /// Reads a body of one value.
    fn decode(body: &[u8], context: BodyContext<'_>) -> Result<Self, BodyError>
    where
        Self: Sized,
    {
        let mut reader = ByteReader::new(body);
        let value = Self::read(&mut reader, context)?;
        check_end(&reader)?;
        Ok(value)
    }
}

/// Appends values one after the other.
pub fn put_all(
    values: &[&dyn Body],
    out: &mut Vec<u8>,
    context: BodyContext<'_>,
) -> Result<(), EncodeError> {
    values.iter().try_for_each(|value| value.put(out, context))
}

/// Implements [`Body`] for a struct: the values of its fields one after the other.
macro_rules! fields_body {
    ($name:ident { $($field:ident),* }) => {
        impl $crate::net::bodies::Body for $name {
            fn put(
                &self,
                out: &mut Vec<u8>,
                context: $crate::net::bodies::BodyContext<'_>,
            ) -> Result<(), $crate::net::bodies::EncodeError> {
                $crate::net::bodies::put_all(&[$(&self.$field),*], out, context)
            }

            fn read(
                reader: &mut $crate::base::bytes::ByteReader<'_>,
                context: $crate::net::bodies::BodyContext<'_>,
            ) -> Result<Self, $crate::net::bodies::BodyError> {
                Ok(Self { $($field: $crate::net::bodies::Body::read(reader, context)?),* })
            }
        }
    };
}
pub(crate) use fields_body;

impl Body for () {
    fn put(&self, _: &mut Vec<u8>, _: BodyContext<'_>) -> Result<(), EncodeError> {
        Ok(())
    }

    fn read(_: &mut ByteReader<'_>, _: BodyContext<'_>) -> Result<Self, BodyError> {
        Ok(())
    }
}

impl Body for bool {
    fn put(&self, out: &mut Vec<u8>, _: BodyContext<'_>) -> Result<(), EncodeError> {
        out.push((*self).into());
        Ok(())
    }

    fn read(reader: &mut ByteReader<'_>, _: BodyContext<'_>) -> Result<Self, BodyError> {
        Ok(reader.bool()?)
    }
}

/// Implements [`Body`] for numbers.
macro_rules! numbers {
    ($($number:ident)*) => {$(
        impl Body for $number {
            fn put(&self, out: &mut Vec<u8>, _: BodyContext<'_>) -> Result<(), EncodeError> {
                out.extend_from_slice(&self.to_be_bytes());
                Ok(())
            }

            fn read(reader: &mut ByteReader<'_>, _: BodyContext<'_>) -> Result<Self, BodyError> {
                Ok(reader.$number()?)
            }
        }
    )*};
}

numbers!(u8 i32 u64);

impl Body for f64 {
    fn put(&self, out: &mut Vec<u8>, context: BodyContext<'_>) -> Result<(), EncodeError> {
        self.to_bits().put(out, context)
    }

    fn read(reader: &mut ByteReader<'_>, _: BodyContext<'_>) -> Result<Self, BodyError> {
        Ok(Self::from_bits(reader.u64()?))
    }
}

impl Body for String {
    fn put(&self, out: &mut Vec<u8>, _: BodyContext<'_>) -> Result<(), EncodeError> {
        out.put_bytes(self.as_bytes());
        Ok(())
    }

    fn read(reader: &mut ByteReader<'_>, _: BodyContext<'_>) -> Result<Self, BodyError> {
        Ok(Self::from_utf8_lossy(reader.bytes()?).into_owned())
    }
}

impl Body for IpAddr {
    fn put(&self, out: &mut Vec<u8>, _: BodyContext<'_>) -> Result<(), EncodeError> {
        out.put_address(*self);
        Ok(())
    }

    fn read(reader: &mut ByteReader<'_>, _: BodyContext<'_>) -> Result<Self, BodyError> {
        Ok(reader.address()?)
    }
}

impl Body for Token {
    fn put(&self, out: &mut Vec<u8>, context: BodyContext<'_>) -> Result<(), EncodeError> {
        out.put_bytes(&context.partitioner.token_to_bytes(self));
        Ok(())
    }

    fn read(reader: &mut ByteReader<'_>, context: BodyContext<'_>) -> Result<Self, BodyError> {
        let bytes = reader.bytes()?;
        match context.partitioner {
            // Not every key is a text.
            Partitioner::OrderPreserving => Ok(Self::ordered(bytes.into())),
            partitioner => Ok(partitioner.token_from_bytes(bytes)?),
        }
    }
}

fields_body!(TokenRange { start, end });

impl Body for RowKey {
    fn put(&self, out: &mut Vec<u8>, _: BodyContext<'_>) -> Result<(), EncodeError> {
        put_any_key(out, self)
    }

    fn read(reader: &mut ByteReader<'_>, _: BodyContext<'_>) -> Result<Self, BodyError> {
        read_any_key(reader)
    }
}

impl Body for FamilyId {
    fn put(&self, out: &mut Vec<u8>, context: BodyContext<'_>) -> Result<(), EncodeError> {
        put_family_name(out, *self, context.schema)
    }

    fn read(reader: &mut ByteReader<'_>, context: BodyContext<'_>) -> Result<Self, BodyError> {
        read_family_name(reader, context.schema)
    }
}

impl<T: Body> Body for Vec<T> {
    fn put(&self, out: &mut Vec<u8>, context: BodyContext<'_>) -> Result<(), EncodeError> {
        out.extend_from_slice(&(self.len() as u32).to_be_bytes());
        self.iter().try_for_each(|element| element.put(out, context))
    }

    fn read(reader: &mut ByteReader<'_>, context: BodyContext<'_>) -> Result<Self, BodyError> {
        // Each takes a byte at least. Memory is taken as they are read, not as they are announced.
        (0..reader.count(1)?).map(|_| T::read(reader, context)).collect()
    }
}

impl<T: Body> Body for Option<T> {
    fn put(&self, out: &mut Vec<u8>, context: BodyContext<'_>) -> Result<(), EncodeError> {
        self.is_some().put(out, context)?;
        self.iter().try_for_each(|value| value.put(out, context))
    }

    fn read(reader: &mut ByteReader<'_>, context: BodyContext<'_>) -> Result<Self, BodyError> {
        let is_some = reader.bool()?;
        is_some.then(|| T::read(reader, context)).transpose()
    }
}

impl<A: Body, B: Body> Body for (A, B) {
    fn put(&self, out: &mut Vec<u8>, context: BodyContext<'_>) -> Result<(), EncodeError> {
        self.0.put(out, context)?;
        self.1.put(out, context)
    }

    fn read(reader: &mut ByteReader<'_>, context: BodyContext<'_>) -> Result<Self, BodyError> {
        Ok((A::read(reader, context)?, B::read(reader, context)?))
    }
}

/// Appends a row key, as UTF if it is text. Other keys are for nodes that announce
/// [`CELLS`](crate::net::extensions::CELLS).
pub(super) fn put_key(out: &mut Vec<u8>, key: &RowKey) -> Result<(), EncodeError> {
    if key.is_text() {
        return Ok(out.put_utf(key.as_bytes())?);
    }
    let length = key.as_bytes().len() + 1;
    let length = u16::try_from(length).map_err(|_| TooLong(length))?;
    out.extend_from_slice(&length.to_be_bytes());
    out.push(OTHER_KEY);
    out.extend_from_slice(key.as_bytes());
    Ok(())
}

/// Appends a row key of any bytes behind a `u16` length: an import may bring keys that are not
/// text.
pub(super) fn put_any_key(out: &mut Vec<u8>, key: &RowKey) -> Result<(), EncodeError> {
    let key = key.as_bytes();
    let length = u16::try_from(key.len()).map_err(|_| TooLong(key.len()))?;
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(key);
    Ok(())
}

pub(super) fn read_any_key(reader: &mut ByteReader<'_>) -> Result<RowKey, BodyError> {
    match reader.prefixed()? {
        [] => Err(DecodeError::EmptyKey.into()),
        key => Ok(RowKey::new(key)),
    }
}

/// Appends the names of a column family.
pub(super) fn put_family_name(
    out: &mut Vec<u8>,
    family: FamilyId,
    schema: &Schema,
) -> Result<(), EncodeError> {
    let family = schema.family(family);
    out.put_utf(family.keyspace.as_bytes())?;
    Ok(out.put_utf(family.name.as_bytes())?)
}

/// Reads the names of a column family of this node.
pub(super) fn read_family_name(
    reader: &mut ByteReader<'_>,
    schema: &Schema,
) -> Result<FamilyId, BodyError> {
    let (keyspace, name) = (reader.utf()?, reader.utf()?);
    Ok(family_named(schema, &keyspace, &name)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    type All = (Vec<Token>, (Option<RowKey>, (String, (f64, Vec<IpAddr>))));

    #[test]
    fn values_are_read_as_written_and_damage_is_noticed() {
        let schema = Schema::new([]);
        for partitioner in Partitioner::ALL {
            let context = BodyContext { schema: &schema, partitioner };
            let keys = [&b""[..], b"plain", "caf\u{e9}".as_bytes(), b"\xff", b"\xfe\0"];
            let tokens = keys.map(|key| partitioner.token(key)).to_vec();
            let nodes = vec![IpAddr::from([10, 0, 0, 1]), IpAddr::from([7; 16])];
            let all: All = (tokens, (Some(RowKey::new(b"\xff")), ("why".into(), (0.5, nodes))));
            let body = all.encode(context).unwrap();
            assert_eq!(All::decode(&body, context), Ok(all));
            for end in 0..body.len() {
                All::decode(&body[..end], context).unwrap_err();
            }
            All::decode(&[&body[..], b"x"].concat(), context).unwrap_err();
        }
    }

    #[test]
    fn a_number_of_elements_that_is_a_lie_takes_no_memory() {
        let (schema, partitioner) = (Schema::new([]), Partitioner::Random);
        let context = BodyContext { schema: &schema, partitioner };
        Vec::<u64>::decode(&[0x7f, 0xff, 0xff, 0xff, 0], context).unwrap_err();
    }
}
