//! `CAST(… AS …)`.

use super::calendar::{days_of_millis, millis_of_days, millis_of_timeuuid};
use super::render::native_text;
use super::{ArithmeticError, Native, Number};

/// Whether values of a type can be cast to another.
pub fn can_cast(from: Native, to: Native) -> bool {
    use Native::{Ascii, Boolean, Date, Empty, Inet, Text, Time, Timestamp, Timeuuid, Uuid};
    match (from, to) {
        (Empty, _) | (_, Native::Counter | Native::OldTimestamp) => from == to,
        _ if from == to || from.is_number() && to.is_number() => true,
        (Native::OldTimestamp, _) => to == Timestamp || can_cast(Timestamp, to),
        (Ascii, Text) | (Timeuuid | Timestamp, Date) | (Timeuuid | Date, Timestamp) => true,
        (Inet | Boolean | Timeuuid | Timestamp | Date | Time | Uuid, Ascii | Text) => true,
        _ => from.is_number() && matches!(to, Ascii | Text),
    }
}

impl Native {
    /// The value as one of another type, for types that [`can_cast`]. None for the empty value,
    /// unless it is a text.
    pub fn cast(self, to: Self, value: &[u8]) -> Result<Option<Vec<u8>>, ArithmeticError> {
        if self == to {
            return Ok(Some(value.to_vec()));
        }
        if let Some(number) = Number::decode(self, value).filter(|_| to.is_number()) {
            return number.cast(to).map(|number| Some(number.encode()));
        }
        Ok(match to {
            Self::Ascii | Self::Text => native_text(self, value).map(String::into_bytes),
            Self::Timestamp => self.millis(value).map(|millis| millis.to_be_bytes().into()),
            Self::Date => {
                self.millis(value).and_then(days_of_millis).map(|days| days.to_be_bytes().into())
            }
            _ => None,
        })
    }

    /// The time of a value in milliseconds.
    fn millis(self, value: &[u8]) -> Option<i64> {
        match self {
            Self::Timeuuid => millis_of_timeuuid(value),
            Self::Timestamp | Self::OldTimestamp => value.try_into().ok().map(i64::from_be_bytes),
            Self::Date => Some(millis_of_days(u32::from_be_bytes(value.try_into().ok()?))),
            _ => None,
        }
    }
}
