//! Finds the end of a value whose bytes arrive bit by bit.
//!
//! An unframed message ends where its outermost struct ends. The scanner remembers how far it got,
//! so each byte is looked at once however the bytes arrive.

use super::codec::Malformed;
use super::schema::wire_type;

/// Deepest nesting of structs, lists, sets and maps. The IDL needs eight.
pub(super) const MAX_DEPTH: usize = 64;

/// Progress of a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// The value ends after this many bytes, counted from its start.
    Done(usize),
    /// All bytes at hand belong to the value, and more must follow.
    More,
}

/// A value that is being passed over. Needs [`MAX_DEPTH`] small entries at most.
#[derive(Debug)]
pub(super) struct Scanner {
    /// Open values, outermost first.
    open: Vec<Open>,
    /// Bytes from the start of the value up to the next unread item. May lie beyond the bytes at
    /// hand, in the middle of a long string.
    position: u64,
}

/// Something that has begun and not ended.
#[derive(Debug, Clone, Copy)]
enum Open {
    /// One value of this type.
    Value(u8),
    /// A struct: fields until a stop byte.
    Struct,
    /// Elements still to come, of this type.
    Elements { element: u8, left: u64 },
    /// Entries still to come.
    Entries { key: u8, value: u8, left: u64 },
}

impl Scanner {
    /// A scanner at the start of a struct.
    pub(super) fn of_struct() -> Self {
        Self { open: vec![Open::Value(wire_type::STRUCT)], position: 0 }
    }

    /// A scanner at the start of a value of this type.
    pub(super) fn value(value_type: u8) -> Result<Self, Malformed> {
        if !is_known(value_type) {
            return Err(Malformed::WireType(value_type));
        }
        Ok(Self { open: vec![Open::Value(value_type)], position: 0 })
    }

    /// The end of the value lies at least this many bytes after its start.
    pub(super) fn least_length(&self) -> u64 {
        self.position
    }

    /// Advances over a value that is not needed. Returns the number of bytes that belong to it, and
    /// whether it ends with them. The next call gets the bytes after these.
    pub(super) fn pass_over(&mut self, bytes: &[u8]) -> Result<(usize, bool), Malformed> {
        let step = self.advance(bytes)?;
        let passed = usize::try_from(self.position).unwrap_or(usize::MAX).min(bytes.len());
        self.position -= passed as u64;
        Ok((passed, matches!(step, Step::Done(_))))
    }

    /// Advances to the end of the bytes or of the value. `bytes` always begins at the start of the
    /// value.
    pub(super) fn advance(&mut self, bytes: &[u8]) -> Result<Step, Malformed> {
        loop {
            let Some(top) = self.open.last_mut() else {
                let end = usize::try_from(self.position).unwrap_or(usize::MAX);
                return Ok(if end <= bytes.len() { Step::Done(end) } else { Step::More });
            };
            let rest = usize::try_from(self.position)
                .ok()
                .and_then(|position| bytes.get(position..))
                .unwrap_or_default();
            match top {
                Open::Value(value_type) => {
                    let value_type = *value_type;
                    if !self.begin(value_type, rest)? {
                        return Ok(Step::More);
                    }
                }
                Open::Struct => match rest {
                    [wire_type::STOP, ..] => {
                        self.position += 1;
                        self.open.pop();
                    }
                    [field_type, _, _, ..] => {
                        self.position += 3;
                        self.push(*field_type)?;
                    }
                    _ => return Ok(Step::More),
                },
                Open::Elements { left: 0, .. } | Open::Entries { left: 0, .. } => {
                    self.open.pop();
                }
                Open::Elements { element, left } => {
                    *left -= 1;
                    let element = *element;
                    self.push(element)?;
                }
                Open::Entries { key, value, left } => {
                    *left -= 1;
                    let (key, value) = (*key, *value);
                    self.push(value)?;
                    self.push(key)?;
                }
            }
        }
    }

    fn push(&mut self, value_type: u8) -> Result<(), Malformed> {
        if !is_known(value_type) {
            return Err(Malformed::WireType(value_type));
        }
        // An entry of a map holds two places for a moment.
        if self.open.len() > MAX_DEPTH {
            return Err(Malformed::TooDeep);
        }
        self.open.push(Open::Value(value_type));
        Ok(())
    }

    /// Replaces the value on top by its parts. False if its first bytes are not there yet.
    fn begin(&mut self, value_type: u8, rest: &[u8]) -> Result<bool, Malformed> {
        let next = match value_type {
            wire_type::STRING => {
                let Some((length, _)) = rest.split_first_chunk() else { return Ok(false) };
                self.position += 4 + length_of(*length)?;
                None
            }
            wire_type::STRUCT => Some(Open::Struct),
            wire_type::LIST | wire_type::SET => {
                let Some(([element, count @ ..], _)) = rest.split_first_chunk::<5>() else {
                    return Ok(false);
                };
                let left = length_of(*count)?;
                self.position += 5;
                self.elements(*element, left)?
            }
            wire_type::MAP => {
                let Some(([key, value, count @ ..], _)) = rest.split_first_chunk::<6>() else {
                    return Ok(false);
                };
                let left = length_of(*count)?;
                self.position += 6;
                self.entries(*key, *value, left)?
            }
            scalar => {
                self.position += fixed_size(scalar).ok_or(Malformed::WireType(scalar))?;
                None
            }
        };
        self.open.pop();
        self.open.extend(next);
        Ok(true)
    }

    fn elements(&mut self, element: u8, left: u64) -> Result<Option<Open>, Malformed> {
        if left == 0 {
            return Ok(None);
        }
        if let Some(size) = fixed_size(element) {
            self.position += size * left;
            return Ok(None);
        }
        if !is_known(element) {
            return Err(Malformed::WireType(element));
        }
        Ok(Some(Open::Elements { element, left }))
    }

    fn entries(&mut self, key: u8, value: u8, left: u64) -> Result<Option<Open>, Malformed> {
        if left == 0 {
            return Ok(None);
        }
        if let (Some(key), Some(value)) = (fixed_size(key), fixed_size(value)) {
            self.position += (key + value) * left;
            return Ok(None);
        }
        if let Some(unknown) = [key, value].into_iter().find(|known| !is_known(*known)) {
            return Err(Malformed::WireType(unknown));
        }
        Ok(Some(Open::Entries { key, value, left }))
    }
}

fn length_of(bytes: [u8; 4]) -> Result<u64, Malformed> {
    let length = i32::from_be_bytes(bytes);
    u64::try_from(length).map_err(|_| Malformed::NegativeLength(length))
}

/// Size of the types that always have the same one; none is zero.
fn fixed_size(value_type: u8) -> Option<u64> {
    match value_type {
        wire_type::BOOL | wire_type::BYTE => Some(1),
        wire_type::I16 => Some(2),
        wire_type::I32 => Some(4),
        wire_type::I64 | wire_type::DOUBLE => Some(8),
        _ => None,
    }
}

fn is_known(value_type: u8) -> bool {
    fixed_size(value_type).is_some()
        || matches!(
            value_type,
            wire_type::STRING
                | wire_type::STRUCT
                | wire_type::MAP
                | wire_type::SET
                | wire_type::LIST
        )
}
