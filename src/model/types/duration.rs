//! Durations: months, days and nanoseconds, since months differ in days and days in hours.
//!
//! ```text
//! duration  = vint months, vint days, vint nanoseconds
//! vint      = a zigzag number of 1 to 9 bytes, the first of which begins with as many set bits as
//!             bytes follow it
//! ```

use super::InvalidValue;
use super::scanner::Scanner;
use std::fmt;

const SECOND: i64 = 1_000_000_000;

/// A duration. All its parts have the same sign.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Duration {
    /// Months.
    pub months: i32,
    /// Days.
    pub days: i32,
    /// Nanoseconds.
    pub nanoseconds: i64,
}

/// A unit: its name, its symbol, and how many months, days or nanoseconds it has.
struct Unit(&'static str, &'static str, i64);

/// The units in the order in which they have to be written.
const UNITS: [Unit; 10] = [
    Unit("years", "y", 12),
    Unit("months", "mo", 1),
    Unit("weeks", "w", 7),
    Unit("days", "d", 1),
    Unit("hours", "h", 3600 * SECOND),
    Unit("minutes", "m", 60 * SECOND),
    Unit("seconds", "s", SECOND),
    Unit("milliseconds", "ms", SECOND / 1000),
    Unit("microseconds", "us", 1000),
    Unit("nanoseconds", "ns", 1),
];

/// The first unit of days, and the first of nanoseconds.
const WEEKS: usize = 2;
const HOURS: usize = 4;

/// A duration that is being read: totals of months, days and nanoseconds, and the unit after the
/// last one.
#[derive(Default)]
struct Builder {
    totals: [i64; 3],
    next: usize,
}

impl Builder {
    /// Adds a number of a unit, given by its place in [`UNITS`].
    fn add(&mut self, number: i64, unit: usize) -> Result<(), String> {
        let Unit(name, _, size) = UNITS[unit];
        if let Some(last) = self.next.checked_sub(1).filter(|last| *last >= unit) {
            let problem = match UNITS[last].0 {
                last if last == name => format!("{name} are specified multiple times"),
                last => format!("{last} should be after {name}"),
            };
            return Err(format!("Invalid duration. The {problem}"));
        }
        self.next = unit + 1;
        let (part, name, most) = match unit {
            0..WEEKS => (0, "months", i64::from(i32::MAX)),
            WEEKS..HOURS => (1, "days", i64::from(i32::MAX)),
            _ => (2, "nanoseconds", i64::MAX),
        };
        let total = &mut self.totals[part];
        let sum = number.checked_mul(size).and_then(|added| total.checked_add(added));
        *total = sum.filter(|sum| *sum <= most).ok_or_else(|| {
            let most = i32::MAX;
            format!("Invalid duration. The total number of {name} must be less or equal to {most}")
        })?;
        Ok(())
    }

    fn build(&self, is_negative: bool) -> Duration {
        let [months, days, nanoseconds] =
            self.totals.map(|total| if is_negative { -total } else { total });
        Duration { months: months as i32, days: days as i32, nanoseconds }
    }
}

impl Duration {
    /// Reads `1y2mo3w4d5h6m7s8ms9us10ns`, or one of the forms of ISO 8601, as `P1Y2M3DT4H5M6S`,
    /// `P2W` and `P0001-02-03T04:05:06`. A minus sign may stand before it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let positive = text.strip_prefix('-').unwrap_or(text);
        let mut builder = Builder::default();
        let read = match positive.strip_prefix('P') {
            Some(iso) if iso.contains('-') => read_digital(iso, &mut builder),
            Some(iso) => read_iso(iso, &mut builder),
            None => read_units(positive, &mut builder),
        };
        match read {
            Some(Ok(())) => Ok(builder.build(positive.len() < text.len())),
            Some(Err(error)) => Err(error),
            None => Err(format!("Unable to convert '{positive}' to a duration")),
        }
    }

    /// Reads the bytes of a duration.
    pub fn decode(value: &[u8]) -> Result<Self, InvalidValue> {
        if value.len() < 3 {
            let text = format!("Expected at least 3 bytes for a duration ({})", value.len());
            return Err(InvalidValue::new(text));
        }
        let mut rest = value;
        let short = || InvalidValue::new("Not enough bytes to read a duration");
        let mut next = || read_vint(&mut rest).ok_or_else(short);
        let (months, days, nanoseconds) = (next()?, next()?, next()?);
        let narrow = |number: i64, name: &str| {
            i32::try_from(number).map_err(|_| {
                let text =
                    format!("The duration {name} must be a 32 bits integer but was: {number}");
                InvalidValue::new(text)
            })
        };
        let (months, days) = (narrow(months, "months")?, narrow(days, "days")?);
        if (months < 0 || days < 0 || nanoseconds < 0)
            && (months > 0 || days > 0 || nanoseconds > 0)
        {
            let text = "The duration months, days and nanoseconds must be all of the same sign";
            return Err(InvalidValue::new(format!("{text} ({months}, {days}, {nanoseconds})")));
        }
        Ok(Self { months, days, nanoseconds })
    }

    /// The bytes of the duration.
    pub fn encode(&self) -> Vec<u8> {
        let mut value = Vec::new();
        for number in [i64::from(self.months), i64::from(self.days), self.nanoseconds] {
            write_vint(&mut value, number);
        }
        value
    }

    /// The duration in the other direction. None if it is too long for that.
    pub fn negated(&self) -> Option<Self> {
        Some(Self {
            months: self.months.checked_neg()?,
            days: self.days.checked_neg()?,
            nanoseconds: self.nanoseconds.checked_neg()?,
        })
    }
}

/// Outcome of reading a text: none if it has another form.
type Read = Option<Result<(), String>>;

/// Reads numbers with units.
fn read_units(text: &str, builder: &mut Builder) -> Read {
    let mut scanner = Scanner::new(text);
    while builder.next == 0 || !scanner.is_at_end() {
        let number = scanner.number(usize::MAX)?;
        let symbol = scanner.take_while(char::is_alphabetic).to_lowercase();
        // A micro sign, and a Greek letter that looks like it.
        let symbol = symbol.replace(['\u{b5}', '\u{3bc}'], "u");
        let unit = UNITS.iter().position(|unit| unit.1 == symbol)?;
        if let Err(error) = builder.add(number, unit) {
            return Some(Err(error));
        }
    }
    Some(Ok(()))
}

/// Reads `1Y2M3DT4H5M6S` or `2W`.
fn read_iso(text: &str, builder: &mut Builder) -> Read {
    let mut scanner = Scanner::new(text);
    let (mut letters, mut first) = ("YMWD", 0);
    while !scanner.is_at_end() {
        if first == 0 && scanner.eat('T') {
            (letters, first) = ("HMS", HOURS);
            continue;
        }
        let number = scanner.number(usize::MAX)?;
        let letter = letters.char_indices().find(|(_, letter)| scanner.eat(*letter));
        let unit = letter.map(|(at, _)| first + at).filter(|unit| *unit >= builder.next)?;
        if unit == WEEKS && (builder.next > 0 || !scanner.is_at_end()) {
            return None;
        }
        if let Err(error) = builder.add(number, unit) {
            return Some(Err(error));
        }
    }
    Some(Ok(()))
}

/// Reads `0001-02-03T04:05:06`.
fn read_digital(text: &str, builder: &mut Builder) -> Read {
    let mut scanner = Scanner::new(text);
    let parts = [(4, "-", 0), (2, "-", 1), (2, "T", 3), (2, ":", 4), (2, ":", 5), (2, "", 6)];
    for (length, end, unit) in parts {
        let digits = scanner.digits().filter(|digits| digits.len() == length)?;
        if !end.chars().all(|end| scanner.eat(end)) {
            return None;
        }
        if let Err(error) = builder.add(digits.parse().ok()?, unit) {
            return Some(Err(error));
        }
    }
    scanner.is_at_end().then_some(Ok(()))
}

fn write_vint(value: &mut Vec<u8>, number: i64) {
    let zigzag = ((number << 1) ^ (number >> 63)) as u64;
    let bits = 64 - (zigzag | 1).leading_zeros() as usize;
    let more = (bits - 1) / 7;
    if more >= 8 {
        value.push(0xff);
        value.extend_from_slice(&zigzag.to_be_bytes());
        return;
    }
    let marked = zigzag | !(u64::MAX >> more) >> (56 - 8 * more);
    value.extend_from_slice(&marked.to_be_bytes()[7 - more..]);
}

fn read_vint(rest: &mut &[u8]) -> Option<i64> {
    let (first, after) = rest.split_first()?;
    let more = first.leading_ones() as usize;
    let (bytes, after) = after.split_at_checked(more)?;
    let high = u64::from(u16::from(*first) & (0xff >> more));
    let zigzag = bytes.iter().fold(high, |number, byte| number << 8 | u64::from(*byte));
    *rest = after;
    Some((zigzag >> 1) as i64 ^ -((zigzag & 1) as i64))
}

/// Shows the duration as numbers with units.
impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::default() {
            return f.write_str("0s");
        }
        if self.months < 0 || self.days < 0 || self.nanoseconds < 0 {
            f.write_str("-")?;
        }
        let mut show = |mut rest: u64, units: &[Unit]| {
            for Unit(_, symbol, size) in units {
                let size = *size as u64;
                if rest >= size {
                    write!(f, "{}{symbol}", rest / size)?;
                    rest %= size;
                }
            }
            Ok(())
        };
        show(self.months.unsigned_abs().into(), &UNITS[..WEEKS])?;
        show(self.days.unsigned_abs().into(), &UNITS[HOURS - 1..HOURS])?;
        show(self.nanoseconds.unsigned_abs(), &UNITS[HOURS..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn duration(months: i32, days: i32, nanoseconds: i64) -> Duration {
        Duration { months, days, nanoseconds }
    }

    #[test]
    fn durations_have_four_forms() {
        let (hour, minute) = (3600 * SECOND, 60 * SECOND);
        for (text, expected) in [
            ("1y2mo3w4d", duration(14, 25, 0)),
            ("5h6m7s8ms9us10ns", duration(0, 0, 5 * hour + 6 * minute + 7_008_009_010)),
            ("12\u{b5}s", duration(0, 0, 12_000)),
            ("1Y2mO", duration(14, 0, 0)),
            ("-1y2h", duration(-12, 0, -2 * hour)),
            ("40d", duration(0, 40, 0)),
            ("P1Y2M3DT4H5M6S", duration(14, 3, 4 * hour + 5 * minute + 6 * SECOND)),
            ("P2W", duration(0, 14, 0)),
            ("PT30H", duration(0, 0, 30 * hour)),
            ("-P1YT2H", duration(-12, 0, -2 * hour)),
            ("P0001-02-03T04:05:06", duration(14, 3, 4 * hour + 5 * minute + 6 * SECOND)),
            ("-P0001-02-00T00:00:00", duration(-14, 0, 0)),
        ] {
            assert_eq!(Duration::parse(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in [
            "",
            "xyz",
            "y",
            "1",
            "1y-2mo",
            "0.5y",
            "2m12.5s",
            "1y2",
            "1d 2h",
            "P2Y3W",
            "P1y2D",
            "p1Y2D",
            "P0002-00-20",
            "P0001-03-00t02:10:00",
            "P1M1Y",
            "P1H",
            "PT1Y",
            "PT1HT1M",
            "P1W2D",
            "99999999999999999999s",
        ] {
            let known = format!("Unable to convert '{text}' to a duration");
            assert_eq!(Duration::parse(text), Err(known));
        }
        for (text, known) in [
            ("2m3m", "The minutes are specified multiple times"),
            ("12s3m", "The seconds should be after minutes"),
            ("1y3m4d", "The minutes should be after days"),
            (
                "9223372036854775807d",
                "The total number of days must be less or equal to 2147483647",
            ),
            ("300000000y", "The total number of months must be less or equal to 2147483647"),
        ] {
            assert_eq!(Duration::parse(text), Err(format!("Invalid duration. {known}")));
        }
    }

    #[test]
    fn durations_are_three_short_numbers() {
        for (duration, bytes) in [
            (duration(0, 0, 0), &[0, 0, 0][..]),
            (duration(1, 2, 3), &[2, 4, 6]),
            (duration(-1, -2, -3), &[1, 3, 5]),
            (duration(64, 0, 0), &[0x80, 0x80, 0, 0]),
            (duration(0, 0, SECOND), &[0, 0, 0xf0, 0x77, 0x35, 0x94, 0]),
            (
                duration(0, 0, i64::MIN),
                &[0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
            ),
        ] {
            assert_eq!(duration.encode(), bytes, "{duration:?}");
            assert_eq!(Duration::decode(bytes), Ok(duration));
        }
        let refusal = |bytes: &[u8]| Duration::decode(bytes).unwrap_err().to_string();
        assert_eq!(refusal(&[1]), "Expected at least 3 bytes for a duration (1)");
        assert_eq!(refusal(&[0xff; 3]), "Not enough bytes to read a duration");
        assert_eq!(
            refusal(&[4, 3, 0]),
            "The duration months, days and nanoseconds must be all of the same sign (2, -2, 0)"
        );
        let long = [&[0xff][..], &(u64::MAX - 1).to_be_bytes(), &[0, 0]].concat();
        assert_eq!(
            refusal(&long),
            "The duration months must be a 32 bits integer but was: 9223372036854775807"
        );
    }

    proptest! {
        #[test]
        fn durations_are_read_as_they_are_shown_and_stored(
            months in 0..i32::MAX,
            days in 0..i32::MAX,
            nanoseconds in 0..i64::MAX,
            is_negative in any::<bool>(),
        ) {
            let positive = duration(months, days, nanoseconds);
            let it = if is_negative { positive.negated().unwrap() } else { positive };
            prop_assert_eq!(Duration::decode(&it.encode()), Ok(it));
            prop_assert_eq!(Duration::parse(&it.to_string()), Ok(it));
        }
    }
}
