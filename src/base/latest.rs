//! A value that is replaced now and then, and read without a lock.

use std::fmt;
use std::ops::Deref;

/// The latest of some values. Those that were replaced are kept until the end, since readers may
/// hold them: it is for values that change seldom.
pub struct Latest<T>(boxcar::Vec<T>);

impl<T> Latest<T> {
    /// A first value.
    pub fn new(value: T) -> Self {
        Self(boxcar::Vec::from_iter([value]))
    }

    /// Replaces the value. Callers that may do so at the same time hold a lock of theirs.
    pub fn set(&self, value: T) {
        self.0.push(value);
    }
}

impl<T> Deref for Latest<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // The last one may be on its way.
        let mut places = (0..self.0.count()).rev();
        places.find_map(|at| self.0.get(at)).expect("there is a first value")
    }
}

impl<T: fmt::Debug> fmt::Debug for Latest<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_keeps_the_value_that_it_has_read() {
        let text = Latest::new("one".to_owned());
        let earlier = &*text;
        text.set("two".to_owned());
        assert_eq!((earlier.as_str(), text.as_str()), ("one", "two"));
    }
}
