//! Tuples and values of user types as bytes.
//!
//! ```text
//! tuple  = field*           fields may be missing from the end
//! field  = i32 length, that many bytes; a negative length stands for null
//! ```

/// Packs fields.
pub fn pack<T: AsRef<[u8]>>(fields: &[Option<T>]) -> Vec<u8> {
    let mut value = Vec::new();
    for field in fields {
        match field.as_ref().map(AsRef::as_ref) {
            Some(field) => {
                value.extend_from_slice(&(field.len() as i32).to_be_bytes());
                value.extend_from_slice(field);
            }
            None => value.extend_from_slice(&(-1i32).to_be_bytes()),
        }
    }
    value
}

/// The fields of a tuple that are there.
pub fn fields(value: &[u8]) -> Fields<'_> {
    Fields { rest: value }
}

/// Place where a tuple is cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// Within the length of a field.
    Length,
    /// Within a field.
    Field,
}

/// A checked iterator over fields. Ends after the first error.
#[derive(Debug, Clone)]
pub struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    fn take(&mut self) -> Result<Option<&'a [u8]>, Cut> {
        let (length, rest) =
            std::mem::take(&mut self.rest).split_first_chunk().ok_or(Cut::Length)?;
        let Ok(length) = usize::try_from(i32::from_be_bytes(*length)) else {
            self.rest = rest;
            return Ok(None);
        };
        let (field, rest) = rest.split_at_checked(length).ok_or(Cut::Field)?;
        self.rest = rest;
        Ok(Some(field))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Option<&'a [u8]>, Cut>;

    fn next(&mut self) -> Option<Self::Item> {
        (!self.rest.is_empty()).then(|| self.take())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_out_as_they_went_in() {
        let given = [Some(&b"a"[..]), None, Some(b"")];
        let value = pack(&given);
        assert_eq!(fields(&value).map(Result::unwrap).collect::<Vec<_>>(), given);
        assert_eq!(fields(b"").count(), 0);
    }

    #[test]
    fn a_tuple_that_is_cut_off_says_where() {
        let value = pack(&[Some("abc")]);
        let first = |end: usize| fields(&value[..end]).next();
        assert_eq!(first(3), Some(Err(Cut::Length)));
        assert_eq!(first(6), Some(Err(Cut::Field)));
        assert_eq!(fields(&value[..6]).count(), 1);
    }
}
