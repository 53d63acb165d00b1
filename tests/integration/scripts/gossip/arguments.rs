//! Arguments of the commands of gossip scripts.

use super::world::ip;
use alexandra::gossip::Digest;
use std::str::FromStr;
use std::time::Duration;

/// Nodes: `2`, `1..5` or `"1,4..6"`.
#[derive(Debug, Default)]
pub(in crate::scripts) struct Nodes(pub(in crate::scripts) Vec<u8>);

/// A time: `700ms`, `60s`, `5m`, `2h`, `1d` or `3y`.
#[derive(Debug, Clone, Copy)]
pub(in crate::scripts) struct Span(pub(in crate::scripts) Duration);

/// A number of seconds before or after a correct clock: `-1h`, `3y`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shift(pub(super) i64);

/// A generation: a number, `max`, or relative to the time as in `now`, `now-1h`, `"now+3y"`.
#[derive(Debug, Clone, Copy)]
pub(super) enum Generation {
    Number(i32),
    Now(i64),
}

/// A digest, as `node@generation/version`.
#[derive(Debug, Clone, Copy)]
pub(super) struct DigestOf(pub(super) Digest);

impl FromStr for Nodes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.parse::<u8>().map_err(|_| format!("`{text}` is no node"));
        let mut nodes = Vec::new();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once("..").unwrap_or((part, part));
            nodes.extend(number(first)?..=number(last)?);
        }
        Ok(Self(nodes))
    }
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (number, unit) = text.split_at(text.find(char::is_alphabetic).unwrap_or(text.len()));
        let count: u64 = number.parse().map_err(|_| format!("`{text}` is no time"))?;
        let millis = match unit {
            "ms" => 1,
            "s" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            "y" => 365 * 86_400_000,
            _ => return Err(format!("`{text}` is no time")),
        };
        Ok(Self(Duration::from_millis(count * millis)))
    }
}

impl FromStr for Shift {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (sign, text) = text.strip_prefix('-').map_or((1, text), |rest| (-1, rest));
        Ok(Self(sign * text.parse::<Span>()?.0.as_secs() as i64))
    }
}

impl FromStr for Generation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("now") {
            Some("") => Ok(Self::Now(0)),
            Some(shift) => Ok(Self::Now(shift.trim_start_matches('+').parse::<Shift>()?.0)),
            None if text == "max" => Ok(Self::Number(i32::MAX)),
            None => {
                text.parse().map(Self::Number).map_err(|_| format!("`{text}` is no generation"))
            }
        }
    }
}

impl FromStr for DigestOf {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('@').and_then(|(node, rest)| {
            let (generation, version) = rest.split_once('/')?;
            let endpoint = ip(node.parse().ok()?);
            let generation = match generation.parse().ok()? {
                Generation::Number(number) => number,
                Generation::Now(_) => return None,
            };
            Some(Digest { endpoint, generation, max_version: version.parse().ok()? })
        });
        parts.map(Self).ok_or_else(|| format!("`{text}` is no digest"))
    }
}
