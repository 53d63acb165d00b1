//! Lists, sets and maps as bytes.
//!
//! ```text
//! collection  = i32 count, element*       a map has two elements for each entry: key, value
//! element     = i32 length, that many bytes; a negative length stands for null
//! ```

use super::InvalidValue;

/// Kind of a collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A list.
    List,
    /// A set.
    Set,
    /// A map.
    Map,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Set => "set",
            Self::Map => "map",
        }
    }

    fn elements_per_entry(self) -> usize {
        if self == Self::Map { 2 } else { 1 }
    }

    fn too_short(self) -> InvalidValue {
        InvalidValue::new(format!("Not enough bytes to read a {}", self.name()))
    }
}

/// Packs the elements of a list, or those of a set in their order.
pub fn pack<T: AsRef<[u8]>>(elements: &[T]) -> Vec<u8> {
    pack_all(elements.len(), elements.iter().map(AsRef::as_ref))
}

/// Packs the entries of a map in the order of their keys.
pub fn pack_map<K: AsRef<[u8]>, V: AsRef<[u8]>>(entries: &[(K, V)]) -> Vec<u8> {
    pack_all(entries.len(), entries.iter().flat_map(|(key, value)| [key.as_ref(), value.as_ref()]))
}

fn pack_all<'a>(count: usize, elements: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut value = (count as i32).to_be_bytes().to_vec();
    for element in elements {
        value.extend_from_slice(&(element.len() as i32).to_be_bytes());
        value.extend_from_slice(element);
    }
    value
}

/// The elements of a collection; of a map keys and values in turn.
pub fn elements(kind: Kind, value: &[u8]) -> Elements<'_> {
    let elements = |(count, rest): (&[u8; 4], _)| {
        let count = usize::try_from(i32::from_be_bytes(*count)).ok()?;
        let left = count.checked_mul(kind.elements_per_entry())?;
        let fits = left.checked_mul(4).is_some_and(|least| least <= <[u8]>::len(rest));
        fits.then_some(Elements { kind, rest, left, is_broken: false })
    };
    let broken = Elements { kind, rest: &[], left: 0, is_broken: true };
    value.split_first_chunk().and_then(elements).unwrap_or(broken)
}

/// The entries of a map. Nulls are refused.
pub fn entries(value: &[u8]) -> impl Iterator<Item = Result<(&[u8], &[u8]), InvalidValue>> {
    let mut elements = elements(Kind::Map, value);
    std::iter::from_fn(move || {
        let key = elements.next_present()?;
        let value = elements.next_present().unwrap_or_else(|| Err(Kind::Map.too_short()));
        Some(key.and_then(|key| Ok((key, value?))))
    })
}

/// A checked iterator over elements. Ends after the first error. The lower bound of
/// [`Iterator::size_hint`] is safe to allocate for: the value has at least as many bytes.
#[derive(Debug, Clone)]
pub struct Elements<'a> {
    kind: Kind,
    rest: &'a [u8],
    left: usize,
    is_broken: bool,
}

impl<'a> Elements<'a> {
    /// The next element, which must not be null.
    pub fn next_present(&mut self) -> Option<Result<&'a [u8], InvalidValue>> {
        let null = || InvalidValue::new("null is not supported inside collections");
        self.next().map(|element| element.and_then(|element| element.ok_or_else(null)))
    }

    fn end_with(&mut self, error: InvalidValue) -> InvalidValue {
        (self.rest, self.left, self.is_broken) = (&[], 0, false);
        error
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Result<Option<&'a [u8]>, InvalidValue>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_broken {
            return Some(Err(self.end_with(self.kind.too_short())));
        }
        if self.left == 0 && !self.rest.is_empty() {
            let name = self.kind.name();
            let text = format!("Unexpected extraneous bytes after {name} value");
            return Some(Err(self.end_with(InvalidValue::new(text))));
        }
        self.left = self.left.checked_sub(1)?;
        let Some((length, rest)) = self.rest.split_first_chunk() else {
            return Some(Err(self.end_with(self.kind.too_short())));
        };
        self.rest = rest;
        let Ok(length) = usize::try_from(i32::from_be_bytes(*length)) else {
            return Some(Ok(None));
        };
        let Some((element, rest)) = rest.split_at_checked(length) else {
            return Some(Err(self.end_with(self.kind.too_short())));
        };
        self.rest = rest;
        Some(Ok(Some(element)))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(kind: Kind, value: &[u8]) -> Vec<String> {
        elements(kind, value)
            .map(|element| match element {
                Ok(Some(bytes)) => String::from_utf8(bytes.to_vec()).unwrap(),
                Ok(None) => "null".to_owned(),
                Err(error) => error.to_string(),
            })
            .collect()
    }

    #[test]
    fn elements_come_out_as_they_went_in() {
        assert_eq!(texts(Kind::List, &pack(&["a", "", "bc"])), ["a", "", "bc"]);
        assert_eq!(texts(Kind::Set, &pack::<&str>(&[])), [""; 0]);
        let map = pack_map(&[("k", "v"), ("l", "w")]);
        assert_eq!(texts(Kind::Map, &map), ["k", "v", "l", "w"]);
        let entries: Vec<_> = entries(&map).map(Result::unwrap).collect();
        assert_eq!(entries, [(&b"k"[..], &b"v"[..]), (b"l", b"w")]);
        assert_eq!(pack(&["a"]), [0, 0, 0, 1, 0, 0, 0, 1, b'a']);
    }

    #[test]
    fn what_is_cut_off_or_has_a_tail_is_refused() {
        let short = "Not enough bytes to read a list";
        let whole = pack(&["a", "b"]);
        for end in 0..whole.len() {
            let found = texts(Kind::List, &whole[..end]);
            assert_eq!(found.last().unwrap(), short, "{end}");
        }
        let tail = [&whole[..], b"x"].concat();
        let text = "Unexpected extraneous bytes after set value";
        assert_eq!(texts(Kind::Set, &tail), ["a", "b", text]);
        assert_eq!(texts(Kind::List, &[0xff; 12]), [short]);
    }

    #[test]
    fn a_count_that_cannot_be_true_fails_at_once() {
        let huge = [&i32::MAX.to_be_bytes()[..], &pack(&["a", "b"])].concat();
        for kind in [Kind::List, Kind::Map] {
            let mut elements = elements(kind, &huge);
            assert_eq!(elements.size_hint().0, 0);
            assert!(elements.next().unwrap().is_err());
            assert!(elements.next().is_none());
        }
    }

    #[test]
    fn nulls_are_seen_but_never_in_maps() {
        let value = [0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff];
        assert_eq!(texts(Kind::List, &value), ["null"]);
        let map = [&[0, 0, 0, 1, 0, 0, 0, 0][..], &[0xff; 4]].concat();
        let error = entries(&map).next().unwrap().unwrap_err();
        assert_eq!(error.to_string(), "null is not supported inside collections");
    }
}
