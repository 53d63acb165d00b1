//! Misspelt names.

/// The most bytes of a name that is compared with others.
const LONGEST_NAME: usize = 64;

/// The candidate that is most like a written name, if any is like it.
pub(super) fn nearest<'c>(
    written: &str,
    candidates: impl IntoIterator<Item = &'c str>,
) -> Option<&'c str> {
    if written.len() > LONGEST_NAME {
        return None;
    }
    let measured = candidates.into_iter().map(|name| (edit_distance(written, name), name));
    let (distance, candidate) = measured.min_by_key(|(distance, _)| *distance)?;
    let letters = candidate.trim_start_matches('@').len();
    (distance <= (letters / 4).max(2)).then_some(candidate)
}

/// The value that is most like a written one. Packages of classes and what stands in parentheses
/// do not count. Values of less than four letters are all alike, and one with a blank is a
/// description of several.
pub(super) fn nearest_value<'c>(
    written: &str,
    candidates: impl IntoIterator<Item = &'c str>,
) -> Option<&'c str> {
    const LEAST_LETTERS: usize = 4;
    let candidates: Vec<&str> =
        candidates.into_iter().filter(|value| !value.contains(' ')).collect();
    let cores = candidates.iter().map(|value| core(value));
    let found = nearest(core(written), cores.filter(|core| core.len() >= LEAST_LETTERS))?;
    candidates.into_iter().find(|value| core(value) == found)
}

/// The name of a class without its package and its parameters.
fn core(value: &str) -> &str {
    let class = value.split('(').next().unwrap_or(value).trim_end();
    class.rsplit('.').next().unwrap_or(class)
}

/// Number of letters to insert, remove or replace; their case does not count.
fn edit_distance(a: &str, b: &str) -> usize {
    strsim::levenshtein(&a.to_ascii_lowercase(), &b.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_value_gets_the_nearest() {
        let classes = ["org.x.RackAwareStrategy", "org.x.RackUnawareStrategy", "ReversedType(T)"];
        for (written, meant) in [
            ("RackAwareStrategy", Some(classes[0])),
            ("org.y.RackUnawareStrateg", Some(classes[1])),
            ("RevesedType(LongType)", Some(classes[2])),
            ("SimpleStrategy", None),
            ("", None),
        ] {
            assert_eq!(nearest_value(written, classes), meant, "{written}");
        }
        assert_eq!(nearest_value("0.7", ["0.4", "0.5", "0.6"]), None);
        assert_eq!(nearest_value("10.1.0.0/33", ["an address such as 10.1.0.0/16"]), None);
        assert_eq!(nearest_value("preiodic", ["periodic", "batch"]), Some("periodic"));
        assert_eq!(edit_distance("kitten", "sitting"), 3);
        assert_eq!(edit_distance("", "abc"), 3);
    }
}
