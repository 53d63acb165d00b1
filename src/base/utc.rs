//! Times as operators write them: UTC, by the Gregorian calendar, and milliseconds since the Unix
//! epoch.

use std::fmt;

const MILLIS_PER_DAY: u64 = 86_400_000;

/// Days from the first of March of the year 0 to the first of January 1970.
const EPOCH_DAYS: u64 = 719_468;

const DAYS_PER_ERA: u64 = 146_097;

/// A moment, in milliseconds since the Unix epoch. Displayed as `2010-11-20T08:32:43.120Z`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct UtcTime(pub u64);

impl UtcTime {
    /// Reads `2010-11-20T08:32:43.120Z`, where `Z`, the fraction and the seconds may be left out
    /// and a blank may stand for the `T`, a mere date, or a number of milliseconds.
    pub fn parse(text: &str) -> Option<Self> {
        if let Ok(millis) = text.parse() {
            return Some(Self(millis));
        }
        let text = text.strip_suffix('Z').unwrap_or(text);
        let (date, time) = text.split_once(['T', ' ']).unwrap_or((text, "00:00"));
        let [year, month, day] = numbers(date, '-')?[..] else { return None };
        let (time, millis) = match time.split_once('.') {
            Some((time, fraction)) => (time, thousandths(fraction)?),
            None => (time, 0),
        };
        let (hour, minute, second) = match numbers(time, ':')?[..] {
            [hour, minute] => (hour, minute, 0),
            [hour, minute, second] => (hour, minute, second),
            _ => return None,
        };
        let is_time = hour < 24 && minute < 60 && second < 60;
        if !is_time || !(1970..=9999).contains(&year) || !(1..=12).contains(&month) {
            return None;
        }
        let days = days_before(year, month) + day.checked_sub(1)?;
        let in_day = ((hour * 60 + minute) * 60 + second) * 1000 + millis;
        let found = Self(days * MILLIS_PER_DAY + in_day);
        // A day that the month does not have is one of another month.
        (found.date() == (year, month, day)).then_some(found)
    }

    /// So many seconds after the Unix epoch; times before it are taken for it.
    pub fn of_secs(secs: i64) -> Self {
        Self(u64::try_from(secs).unwrap_or(0).saturating_mul(1000))
    }

    /// Year, month and day.
    fn date(self) -> (u64, u64, u64) {
        // Years that begin in March have the odd day at their end.
        let days = self.0 / MILLIS_PER_DAY + EPOCH_DAYS;
        let (era, day) = (days / DAYS_PER_ERA, days % DAYS_PER_ERA);
        let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let month = (5 * day + 2) / 153;
        let day = day - (153 * month + 2) / 5 + 1;
        let month = if month < 10 { month + 3 } else { month - 9 };
        (400 * era + year + u64::from(month <= 2), month, day)
    }
}

impl fmt::Display for UtcTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = self.date();
        let in_day = self.0 % MILLIS_PER_DAY;
        let (seconds, millis) = (in_day / 1000, in_day % 1000);
        let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
    }
}

/// Days from the Unix epoch to the first of the month.
fn days_before(year: u64, month: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month = if month > 2 { month - 3 } else { month + 9 };
    let in_era = year % 400;
    let days = year / 400 * DAYS_PER_ERA + 365 * in_era + in_era / 4 - in_era / 100;
    days + (153 * month + 2) / 5 - EPOCH_DAYS
}

fn numbers(text: &str, separator: char) -> Option<Vec<u64>> {
    text.split(separator).map(number).collect()
}

/// A number of four digits at most.
fn number(text: &str) -> Option<u64> {
    let is_number = (1..=4).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    if is_number { text.parse().ok() } else { None }
}

/// The first three digits of a fraction.
fn thousandths(digits: &str) -> Option<u64> {
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits
        .bytes()
        .chain(*b"00")
        .take(3)
        .try_fold(0, |sum, digit| Some(sum * 10 + u64::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_they_are_shown() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_290_241_963_120, "2010-11-20T08:32:43.120Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(UtcTime(millis).to_string(), text);
            assert_eq!(UtcTime::parse(text), Some(UtcTime(millis)), "{text}");
        }
        for day in 0..80_000 {
            let time = UtcTime(day * MILLIS_PER_DAY + 12_345);
            assert_eq!(UtcTime::parse(&time.to_string()), Some(time));
        }
    }

    #[test]
    fn parts_may_be_left_out_and_nonsense_is_refused() {
        let whole = UtcTime::parse("2010-11-20T08:32:00.000Z");
        for text in ["2010-11-20 08:32", "2010-11-20T08:32:00", "2010-11-20 08:32:00.0Z"] {
            assert_eq!(UtcTime::parse(text), whole, "{text}");
        }
        assert_eq!(UtcTime::parse("2010-11-20"), UtcTime::parse("2010-11-20T00:00Z"));
        assert_eq!(UtcTime::parse("2010-11-20 08:32:00.0459"), whole.map(|t| UtcTime(t.0 + 45)));
        assert_eq!(UtcTime::parse("1290241963120"), Some(UtcTime(1_290_241_963_120)));
        for text in [
            "",
            "yesterday",
            "2010-11",
            "2010-13-01",
            "2010-02-29",
            "2010-11-00",
            "2010-11-31",
            "1969-12-31",
            "2010-11-20 24:00",
            "2010-11-20 08:60",
            "2010-11-20 8",
            "2010-11-20T08:32:43.",
            "2010-11-20T08:32:43.x",
            "-5",
            "2010-11-20T08:32+01:00",
        ] {
            assert_eq!(UtcTime::parse(text), None, "{text}");
        }
    }
}
