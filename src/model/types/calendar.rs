//! Dates and times: milliseconds since 1970, days with 1970-01-01 at 2^31, nanoseconds of a day.
//!
//! The calendar is Gregorian for all years. A time without a zone is UTC.

use super::scanner::Scanner;

const MILLIS_PER_DAY: i64 = 86_400_000;
const NANOS_PER_DAY: i64 = 86_400_000_000_000;

/// 100 ns between 1582-10-15, where times of UUIDs begin, and 1970.
const UUID_EPOCH: u64 = 0x01b2_1dd2_1381_4000;

/// Days from 1970-01-01 to a day. The month counts from 1 and may lie beyond its year.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    // A year that begins in March has its leap day at its end.
    let months = year * 12 + month - 3;
    let (year, month) = (months.div_euclid(12), months.rem_euclid(12));
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// Year, month and day that lie so many days after 1970-01-01.
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let leap_days = day_of_era / 1460 - day_of_era / 36_524 + day_of_era / 146_096;
    let year_of_era = (day_of_era - leap_days) / 365;
    let day_of_year = day_of_era - (year_of_era * 365 + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    (era * 400 + year_of_era + month / 10, (month + 2) % 12 + 1, day)
}

/// The day, as a value of `date`, of a time in milliseconds. None beyond the range of `date`.
pub fn days_of_millis(millis: i64) -> Option<u32> {
    u32::try_from(millis.div_euclid(MILLIS_PER_DAY) + (1 << 31)).ok()
}

/// The time in milliseconds at which a day begins, given as a value of `date`.
pub fn millis_of_days(days: u32) -> i64 {
    (i64::from(days) - (1 << 31)) * MILLIS_PER_DAY
}

/// The time of a version 1 UUID in milliseconds.
pub fn millis_of_timeuuid(uuid: &[u8]) -> Option<i64> {
    let number = u128::from_be_bytes(uuid.try_into().ok()?);
    let (low, mid, high) = (number >> 96, (number >> 80) & 0xffff, (number >> 64) & 0x0fff);
    let time = (high << 48 | mid << 32 | low) as i64 - UUID_EPOCH as i64;
    Some(time.div_euclid(10_000))
}

fn read_day(scanner: &mut Scanner<'_>) -> Option<i64> {
    let sign = if scanner.eat('-') { -1 } else { 1 };
    let year = scanner.number(9)? * sign;
    let month = scanner.eat('-').then(|| scanner.number(2))??;
    let day = scanner.eat('-').then(|| scanner.number(2))??;
    let days = days_from_civil(year, month, day);
    (civil_from_days(days) == (year, month, day)).then_some(days)
}

/// Reads a number with at most two digits, below a limit.
fn read_below(scanner: &mut Scanner<'_>, limit: i64) -> Option<i64> {
    scanner.number(2).filter(|number| *number < limit)
}

/// Reads what follows a decimal point, in nanoseconds.
fn read_fraction(scanner: &mut Scanner<'_>) -> Option<i64> {
    let digits = scanner.digits().filter(|digits| digits.len() <= 9)?;
    format!("{digits:0<9}").parse().ok()
}

/// Reads `HH:mm:ss.fffffffff` in nanoseconds. The seconds, if it is allowed, and the fraction may
/// be left out.
fn read_time(scanner: &mut Scanner<'_>, needs_seconds: bool) -> Option<i64> {
    let hour = read_below(scanner, 24)?;
    let minute = scanner.eat(':').then(|| read_below(scanner, 60))??;
    let (mut second, mut nanos) = (0, 0);
    if scanner.eat(':') {
        second = read_below(scanner, 60)?;
        if scanner.eat('.') {
            nanos = read_fraction(scanner)?;
        }
    } else if needs_seconds {
        return None;
    }
    Some(((hour * 60 + minute) * 60 + second) * 1_000_000_000 + nanos)
}

/// Reads `Z`, `UTC`, `GMT`, `+hh`, `+hhmm` or `+hh:mm` in minutes.
fn read_zone(scanner: &mut Scanner<'_>) -> Option<i64> {
    if scanner.eat_ignoring_case("Z") {
        return Some(0);
    }
    let is_named = scanner.eat_ignoring_case("UTC") || scanner.eat_ignoring_case("GMT");
    if is_named && scanner.is_at_end() {
        return Some(0);
    }
    let sign = if scanner.eat('-') {
        -1
    } else if scanner.eat('+') {
        1
    } else {
        return None;
    };
    let digits = scanner.digits()?;
    let (hours, minutes): (i64, i64) = match digits.len() {
        4 => (digits[..2].parse().ok()?, digits[2..].parse().ok()?),
        1 | 2 if scanner.eat(':') => (digits.parse().ok()?, scanner.number(2)?),
        1 | 2 => (digits.parse().ok()?, 0),
        _ => return None,
    };
    (hours < 24 && minutes < 60).then_some(sign * (hours * 60 + minutes))
}

fn read_timestamp(text: &str) -> Option<i64> {
    let mut scanner = Scanner::new(text);
    let (days, mut nanos, mut zone) = (read_day(&mut scanner)?, 0, 0);
    let has_t = scanner.eat('T');
    let has_blank = !has_t && scanner.eat(' ');
    if has_t || has_blank && scanner.next_is_digit() {
        nanos = read_time(&mut scanner, false)?;
        scanner.eat(' ');
    }
    if !scanner.is_at_end() {
        zone = read_zone(&mut scanner)?;
    }
    let millis = days.checked_mul(MILLIS_PER_DAY)?.checked_add(nanos / 1_000_000 - zone * 60_000);
    millis.filter(|_| scanner.is_at_end() && !text.ends_with(' '))
}

/// Whether a text is a number of days, milliseconds or nanoseconds.
fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Reads a `timestamp`: a number of milliseconds, or a date, with a time and a zone if need be.
pub(super) fn parse_timestamp(text: &str) -> Result<i64, String> {
    if is_number(text) {
        return text.parse().map_err(|_| format!("Unable to make long (for date) from: '{text}'"));
    }
    read_timestamp(text)
        .ok_or_else(|| format!("Unable to coerce '{text}' to a formatted date (long)"))
}

/// Reads a `date`: a number, or `yyyy-mm-dd`.
pub(super) fn parse_date(text: &str) -> Result<u32, String> {
    if is_number(text) {
        let wrong = |_| format!("Unable to make unsigned int (for date) from: '{text}'");
        return text.parse().map_err(wrong);
    }
    let mut scanner = Scanner::new(text);
    let days = read_day(&mut scanner).filter(|_| scanner.is_at_end());
    let days = days.and_then(|days| u32::try_from(days + (1 << 31)).ok());
    days.ok_or_else(|| format!("Unable to coerce '{text}' to a formatted date (long)"))
}

/// Reads a `time`: a number of nanoseconds, or `HH:mm:ss` with a fraction if need be.
pub(super) fn parse_time(text: &str) -> Result<i64, String> {
    if is_number(text) {
        let nanos = text.parse().ok().filter(|nanos| (0..NANOS_PER_DAY).contains(nanos));
        return nanos.ok_or_else(|| format!("Unable to make long (for time) from: '{text}'"));
    }
    let mut scanner = Scanner::new(text.trim());
    let nanos = read_time(&mut scanner, true).filter(|_| scanner.is_at_end());
    nanos.ok_or_else(|| format!("(TimeType) Unable to coerce '{text}' to a formatted time (long)"))
}

/// Shows a day given in days since 1970.
fn show_day(days: i64) -> String {
    let (year, month, day) = civil_from_days(days);
    let sign = if year < 0 { "-" } else { "" };
    format!("{sign}{:04}-{month:02}-{day:02}", year.abs())
}

/// Shows a `date`.
pub(super) fn show_date(days: u32) -> String {
    show_day(i64::from(days) - (1 << 31))
}

/// Shows a `time`. Those beyond a day, which are never valid, show hours beyond 23.
pub(super) fn show_time(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let (seconds, nanos) =
        (nanos.unsigned_abs() / 1_000_000_000, nanos.unsigned_abs() % 1_000_000_000);
    let (minutes, second) = (seconds / 60, seconds % 60);
    format!("{sign}{:02}:{:02}:{second:02}.{nanos:09}", minutes / 60, minutes % 60)
}

/// Shows a `timestamp`, with this between its date and its time.
pub(super) fn show_timestamp(millis: i64, between: char) -> String {
    let day = show_day(millis.div_euclid(MILLIS_PER_DAY));
    let of_day = millis.rem_euclid(MILLIS_PER_DAY);
    let (seconds, millis) = (of_day / 1000, of_day % 1000);
    let (minutes, second) = (seconds / 60, seconds % 60);
    format!("{day}{between}{:02}:{:02}:{second:02}.{millis:03}Z", minutes / 60, minutes % 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn timestamps_have_many_forms() {
        let time = 1_296_705_900_000;
        for (text, millis) in [
            ("1296705900000", time),
            ("-1", -1),
            ("2011-02-03 04:05+0000", time),
            ("2011-02-03 04:05:00", time),
            ("2011-02-03 04:05:00.000+0000", time),
            ("2011-02-03T04:05+0000", time),
            ("2011-02-03T04:05:00.12Z", time + 120),
            ("2011-02-03T04:05:00.123456z", time + 123),
            ("2011-02-03T05:35+01:30", time),
            ("2011-02-03 03:05-01", time),
            ("2011-02-03 04:05 UTC", time),
            ("2011-02-03 05:05 GMT+01:00", time),
            ("2011-2-3 4:5", time),
            ("2011-02-03", 1_296_691_200_000),
            ("2011-02-03 GMT", 1_296_691_200_000),
            ("2011-02-03+0100", 1_296_687_600_000),
            ("1969-12-31T23:59:59.999Z", -1),
            ("12000-01-01", 316_516_204_800_000),
        ] {
            assert_eq!(parse_timestamp(text), Ok(millis), "{text}");
        }
    }

    #[test]
    fn what_is_no_timestamp_is_refused() {
        for text in [
            "",
            "2011-02",
            "2011-02-30",
            "2011-42-42",
            "2011-00-01",
            "2011-02-03T",
            "2011-02-03 ",
            "2011-02-03 04",
            "2011-02-03 24:00",
            "2011-02-03 04:60",
            "2011-02-03 04:05:00.",
            "2011-02-03 04:05 CEST",
            "2011-02-03T 04:05",
            "2011-02-03 04:05+",
            "2011-02-03 04:05+00000",
            "2011-02-03 04:05+2500",
            "999999999-01-01",
            "now",
            "ä011-02-03",
        ] {
            let known = format!("Unable to coerce '{text}' to a formatted date (long)");
            assert_eq!(parse_timestamp(text), Err(known));
        }
        let text = "99999999999999999999";
        let known = format!("Unable to make long (for date) from: '{text}'");
        assert_eq!(parse_timestamp(text), Err(known));
    }

    #[test]
    fn dates_count_from_the_middle() {
        let epoch = 1u32 << 31;
        for (text, days) in [
            ("1970-01-01", epoch),
            ("1969-12-31", epoch - 1),
            ("2000-02-29", epoch + 11_016),
            ("0000-03-01", epoch - 719_468),
            ("-5877641-06-23", 0),
            ("5881580-07-11", u32::MAX),
        ] {
            assert_eq!(parse_date(text), Ok(days), "{text}");
            assert_eq!(show_date(days), text);
        }
        assert_eq!(parse_date("123"), Ok(123));
        assert_eq!(parse_date("4294967295"), Ok(u32::MAX));
        for text in ["-1", "4294967296", "50000000000000000000"] {
            let known = format!("Unable to make unsigned int (for date) from: '{text}'");
            assert_eq!(parse_date(text), Err(known));
        }
        for text in ["xyz", "", "2011-02-29", "5881580-07-12", "-5877641-06-22", "2011-01-01 "] {
            let known = format!("Unable to coerce '{text}' to a formatted date (long)");
            assert_eq!(parse_date(text), Err(known));
        }
    }

    #[test]
    fn times_are_nanoseconds_of_a_day() {
        for (text, nanos, shown) in [
            ("08:12:54", 29_574_000_000_000, "08:12:54.000000000"),
            ("8:12:54.123", 29_574_123_000_000, "08:12:54.123000000"),
            ("23:59:59.999999999", NANOS_PER_DAY - 1, "23:59:59.999999999"),
            ("123", 123, "00:00:00.000000123"),
        ] {
            assert_eq!(parse_time(text), Ok(nanos), "{text}");
            assert_eq!(show_time(nanos), shown);
        }
        for text in ["", "xyz", "08:12", "24:00:00", "08:60:00", "08:12:54.", "08:12:54.0000000001"]
        {
            let known = format!("(TimeType) Unable to coerce '{text}' to a formatted time (long)");
            assert_eq!(parse_time(text), Err(known));
        }
        for text in ["-1", "86400000000000", "99999999999999999999"] {
            let known = format!("Unable to make long (for time) from: '{text}'");
            assert_eq!(parse_time(text), Err(known));
        }
    }

    #[test]
    fn a_timeuuid_has_a_time() {
        let uuid = uuid::Uuid::parse_str("d2177dd0-eaa2-11de-a572-001b779c76e3").unwrap();
        assert_eq!(millis_of_timeuuid(uuid.as_bytes()), Some(1_261_009_589_805));
        assert_eq!(millis_of_timeuuid(b"abc"), None);
    }

    proptest! {
        #[test]
        fn timestamps_are_read_as_they_are_shown(millis in any::<i64>()) {
            let shown = show_timestamp(millis, 'T');
            prop_assert_eq!(parse_timestamp(&shown), Ok(millis), "{}", shown);
        }

        #[test]
        fn dates_are_read_as_they_are_shown(days in any::<u32>()) {
            prop_assert_eq!(parse_date(&show_date(days)), Ok(days));
        }

        #[test]
        fn days_follow_each_other(days in -2_000_000i64..2_000_000) {
            let (year, month, day) = civil_from_days(days);
            prop_assert_eq!(days_from_civil(year, month, day), days);
            let next = civil_from_days(days + 1);
            let follows = next == (year, month, day + 1) && day < 31
                || next == (year, month + 1, 1) && day >= 28
                || next == (year + 1, 1, 1) && (month, day) == (12, 31);
            prop_assert!(follows, "{:?}", next);
        }
    }
}
