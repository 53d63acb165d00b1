//! Short byte strings that are compared and cloned all the time: keys and tokens of rows.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

/// Longest bytes that are kept in place. Most row keys are no longer, and the whole takes three
/// words either way.
const IN_PLACE: usize = 22;

/// Immutable bytes that are cheap to clone. Short ones stand in place, so that a comparison in a
/// map or an index goes nowhere else in memory and a clone is a copy; longer ones are shared.
#[derive(Clone)]
pub struct SharedBytes(Form);

#[derive(Clone)]
enum Form {
    InPlace { length: u8, bytes: [u8; IN_PLACE] },
    Shared(Arc<[u8]>),
}

impl Deref for SharedBytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            // The bound tells the compiler that this cannot panic.
            Form::InPlace { length, bytes } => &bytes[..IN_PLACE.min(*length as usize)],
            Form::Shared(bytes) => bytes,
        }
    }
}

impl From<&[u8]> for SharedBytes {
    #[inline]
    fn from(slice: &[u8]) -> Self {
        if slice.len() > IN_PLACE {
            return Self(Form::Shared(slice.into()));
        }
        Self(Form::InPlace { length: slice.len() as u8, bytes: padded(slice) })
    }
}

/// At most 22 bytes, with zeroes after them. Copied by halves that overlap: a loop over an unknown
/// length costs more than a few moves.
#[inline]
fn padded(slice: &[u8]) -> [u8; IN_PLACE] {
    let mut bytes = [0; IN_PLACE];
    let length = slice.len();
    if let (Some(first), Some(last)) = (slice.first_chunk::<16>(), slice.last_chunk::<8>()) {
        bytes[..16].copy_from_slice(first);
        bytes[length - 8..length].copy_from_slice(last);
    } else if let (Some(first), Some(last)) = (slice.first_chunk::<8>(), slice.last_chunk::<8>()) {
        bytes[..8].copy_from_slice(first);
        bytes[length - 8..length].copy_from_slice(last);
    } else {
        for (to, from) in bytes.iter_mut().zip(slice) {
            *to = *from;
        }
    }
    bytes
}

impl From<Vec<u8>> for SharedBytes {
    fn from(bytes: Vec<u8>) -> Self {
        bytes.as_slice().into()
    }
}

impl FromIterator<u8> for SharedBytes {
    fn from_iter<I: IntoIterator<Item = u8>>(bytes: I) -> Self {
        bytes.into_iter().collect::<Vec<_>>().into()
    }
}

impl PartialEq for SharedBytes {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for SharedBytes {}

impl Ord for SharedBytes {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(&**other)
    }
}

impl PartialOrd for SharedBytes {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Hash for SharedBytes {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl fmt::Debug for SharedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    #[test]
    fn it_takes_three_words() {
        assert_eq!(size_of::<SharedBytes>(), 24);
    }

    proptest! {
        #[test]
        fn it_equals_its_source(
            a in vec(0u8..3, 0..2 * IN_PLACE), b in vec(0u8..3, 0..2 * IN_PLACE),
        ) {
            let (x, y): (SharedBytes, SharedBytes) = (a.as_slice().into(), b.clone().into());
            prop_assert_eq!(&*x, &*a);
            prop_assert_eq!(&*y.clone(), &*b);
            prop_assert_eq!(x.cmp(&y), a.cmp(&b));
            prop_assert_eq!(x == y, a == b);
            prop_assert_eq!(a.into_iter().collect::<SharedBytes>(), x);
        }
    }
}
