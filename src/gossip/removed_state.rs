//! The application state `X-ALEXANDRA-REMOVED`: which nodes the sender remembers as removed, so
//! that one of them that was only cut off hears of it. `MOVE`, whose format is that of 0.6, names
//! the token of a removed node only, and no start of it. Originals store it and pass it on, and do
//! not act on it.
//!
//! ```text
//! <address>,<generation> <address>,<generation> …    the last start of each that has no place
//! (empty)                                            none
//! ```

use std::net::IpAddr;

/// How many removals a node tells of, those of the latest starts. The others are of nodes that have
/// long been told, or are gone for good.
const MOST_TOLD: usize = 64;

/// The value for these endpoints and their generations.
pub(super) fn format(mut removed: Vec<(IpAddr, i32)>) -> String {
    removed.sort_unstable_by_key(|(endpoint, generation)| (-i64::from(*generation), *endpoint));
    removed.truncate(MOST_TOLD);
    let shown = removed.iter().map(|(endpoint, generation)| format!("{endpoint},{generation}"));
    shown.collect::<Vec<_>>().join(" ")
}

/// Whether a value names this start of an endpoint, or a later one. What does not parse names none.
pub fn names(value: &str, endpoint: IpAddr, generation: i32) -> bool {
    value.split(' ').filter_map(|entry| entry.split_once(',')).any(|(address, removed)| {
        address.parse() == Ok(endpoint) && removed.parse().is_ok_and(|it: i32| it >= generation)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removal_is_of_one_start_and_those_before_it() {
        let [first, second] = [IpAddr::from([10, 0, 0, 1]), "::1".parse().unwrap()];
        let value = format(vec![(first, 7), (second, 9)]);
        assert_eq!(value, "::1,9 10.0.0.1,7");
        for (endpoint, generation, is_named) in
            [(first, 6, true), (first, 7, true), (first, 8, false), (second, 9, true)]
        {
            assert_eq!(names(&value, endpoint, generation), is_named, "{endpoint} {generation}");
        }
        for value in ["", " ", "10.0.0.1", "10.0.0.1,", "10.0.0.1,x", ",7", "10.0.0.2,9"] {
            assert!(!names(value, first, 1), "{value}");
        }
    }

    #[test]
    fn the_latest_removals_are_told() {
        let node = |it| (IpAddr::from([10, 0, 0, it]), i32::from(it));
        let value = format((1..=70).map(node).collect());
        assert_eq!(value.split(' ').count(), MOST_TOLD);
        let is_told = |it| names(&value, node(it).0, node(it).1);
        assert!(is_told(70) && is_told(7) && !is_told(6), "{value}");
    }
}
