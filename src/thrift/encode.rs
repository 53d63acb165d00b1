//! Encoding of the binary protocol straight into the output buffer.

use std::borrow::Cow;

use super::codec::{Map, Set, WireType};

/// A value that can be written where the IDL has a `T`.
///
/// Many Rust types can stand for one type of the IDL: a list may be a slice, a `Vec` or
/// [`Each`] item of an iterator, so that an answer is written from where its data lie.
pub trait Encode<T: WireType> {
    /// Appends the bytes of the value.
    fn encode(self, out: &mut Vec<u8>);
}

/// Writes the items of an iterator as a list, a set or (pairs) a map.
#[derive(Debug, Clone)]
pub struct Each<I>(pub I);

/// Writes type and number of a field.
pub fn put_head(field_type: u8, id: i16, out: &mut Vec<u8>) {
    let [high, low] = id.to_be_bytes();
    out.extend_from_slice(&[field_type, high, low]);
}

/// Writes type and number of a field, and its value.
pub fn encode_field<T: WireType>(id: i16, value: impl Encode<T>, out: &mut Vec<u8>) {
    put_head(T::TYPE, id, out);
    value.encode(out);
}

impl Encode<()> for () {
    fn encode(self, _out: &mut Vec<u8>) {}
}

macro_rules! encode_number {
    ($type:ty, |$value:ident| $bytes:expr) => {
        impl Encode<$type> for $type {
            fn encode(self, out: &mut Vec<u8>) {
                let $value = self;
                out.extend_from_slice(&$bytes);
            }
        }

        impl Encode<$type> for &$type {
            fn encode(self, out: &mut Vec<u8>) {
                Encode::<$type>::encode(*self, out);
            }
        }
    };
}

encode_number!(bool, |value| [u8::from(value)]);
encode_number!(i32, |value| value.to_be_bytes());
encode_number!(i64, |value| value.to_be_bytes());

/// Writes a length. A larger value than it can say would need a reply of 2 GB, which is refused as
/// a whole when it is finished.
fn encode_length(length: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(&i32::try_from(length).unwrap_or(i32::MAX).to_be_bytes());
}

fn encode_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    encode_length(bytes.len(), out);
    out.extend_from_slice(bytes);
}

macro_rules! encode_bytes_as {
    ($($target:ty: $($source:ty),+;)*) => { $($(
        impl<'t> Encode<$target> for $source {
            fn encode(self, out: &mut Vec<u8>) {
                encode_bytes(self.as_ref(), out);
            }
        }
    )+)* };
}

encode_bytes_as! {
    &'t [u8]: &[u8], &&[u8], &Vec<u8>, Vec<u8>;
    Cow<'t, str>: &str, &&str, &String, String;
}

impl Encode<Cow<'_, str>> for &Cow<'_, str> {
    fn encode(self, out: &mut Vec<u8>) {
        encode_bytes(self.as_bytes(), out);
    }
}

/// Writes text that is UTF-8 bytes already, such as a row key.
impl Encode<Cow<'_, str>> for &[u8] {
    fn encode(self, out: &mut Vec<u8>) {
        encode_bytes(self, out);
    }
}

/// Writes the types of the elements, leaves room for the count, and puts it in afterwards.
pub(super) fn encode_counted<I: IntoIterator>(
    types: &[u8],
    items: I,
    out: &mut Vec<u8>,
    mut encode: impl FnMut(I::Item, &mut Vec<u8>),
) {
    out.extend_from_slice(types);
    let at = out.len();
    encode_length(0, out);
    let mut count = 0;
    for item in items {
        encode(item, out);
        count += 1_usize;
    }
    let count = i32::try_from(count).unwrap_or(i32::MAX);
    if let Some(room) = out.get_mut(at..at + 4) {
        room.copy_from_slice(&count.to_be_bytes());
    }
}

impl<T: WireType, I> Encode<Vec<T>> for Each<I>
where
    I: IntoIterator<Item: Encode<T>>,
{
    fn encode(self, out: &mut Vec<u8>) {
        encode_counted(&[T::TYPE], self.0, out, Encode::<T>::encode);
    }
}

impl<T: WireType, I> Encode<Set<T>> for Each<I>
where
    I: IntoIterator<Item: Encode<T>>,
{
    fn encode(self, out: &mut Vec<u8>) {
        encode_counted(&[T::TYPE], self.0, out, Encode::<T>::encode);
    }
}

impl<K: WireType, V: WireType, I, A, B> Encode<Map<K, V>> for Each<I>
where
    I: IntoIterator<Item = (A, B)>,
    A: Encode<K>,
    B: Encode<V>,
{
    fn encode(self, out: &mut Vec<u8>) {
        encode_counted(&[K::TYPE, V::TYPE], self.0, out, |(key, value), out| {
            key.encode(out);
            value.encode(out);
        });
    }
}

impl<'x, T: WireType, X> Encode<Box<T>> for &'x Box<X>
where
    &'x X: Encode<T>,
{
    fn encode(self, out: &mut Vec<u8>) {
        (&**self).encode(out);
    }
}

impl<'x, T: WireType, X> Encode<Vec<T>> for &'x [X]
where
    &'x X: Encode<T>,
{
    fn encode(self, out: &mut Vec<u8>) {
        Encode::<Vec<T>>::encode(Each(self), out);
    }
}

impl<'x, T: WireType, X> Encode<Vec<T>> for &'x Vec<X>
where
    &'x X: Encode<T>,
{
    fn encode(self, out: &mut Vec<u8>) {
        Encode::<Vec<T>>::encode(Each(self), out);
    }
}

impl<'x, K: WireType, V: WireType, A, B> Encode<Map<K, V>> for &'x Map<A, B>
where
    &'x A: Encode<K>,
    &'x B: Encode<V>,
{
    fn encode(self, out: &mut Vec<u8>) {
        Encode::<Map<K, V>>::encode(Each(self.iter().map(|(key, value)| (key, value))), out);
    }
}
