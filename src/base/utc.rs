//! Times as operators write them: UTC, and milliseconds since the Unix epoch.

use jiff::Timestamp;
use std::fmt;

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
        let time = if text.contains(['T', ' ']) { "" } else { "T00:00" };
        let time: Timestamp = format!("{text}{time}Z").parse().ok()?;
        Some(Self(u64::try_from(time.as_millisecond()).ok()?))
    }

    /// The moment this many seconds after the Unix epoch; the epoch for earlier times.
    pub fn of_secs(secs: i64) -> Self {
        Self(u64::try_from(secs).unwrap_or(0).saturating_mul(1000))
    }
}

impl fmt::Display for UtcTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = i64::try_from(self.0).unwrap_or(i64::MAX);
        let time = Timestamp::from_millisecond(millis).unwrap_or(Timestamp::MAX);
        write!(f, "{time:.3}")
    }
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
        ] {
            assert_eq!(UtcTime(millis).to_string(), text);
            assert_eq!(UtcTime::parse(text), Some(UtcTime(millis)), "{text}");
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
