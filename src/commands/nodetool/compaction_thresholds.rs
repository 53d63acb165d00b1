//! `nodetool getcompactionthreshold` and `setcompactionthreshold`. In 0.6 the thresholds are those
//! of the node; here each column family has its own, and a command without one means all.

use super::client::{Client, query};
use super::{NodetoolError, Output};
use crate::admin::report::Thresholds;
use crate::storage::compaction::{self, ThresholdError};
use serde_json::json;
use std::fmt::Write;

const PATH: &str = "/api/v1/compaction-thresholds";

#[derive(Debug, clap::Args)]
pub(super) struct GetArguments {
    /// All keyspaces without it
    keyspace: Option<String>,

    /// All of the keyspace without it
    column_family: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(super) struct SetArguments {
    /// The least number of SSTables, and the greatest, 0 for no minor compactions; before them a
    /// keyspace and a column family, if not all are meant
    #[arg(value_name = "[KEYSPACE COLUMN_FAMILY] MIN [MAX]")]
    values: Vec<String>,
}

pub(super) fn get(client: &Client, arguments: &GetArguments) -> Result<Output, NodetoolError> {
    let GetArguments { keyspace, column_family } = arguments;
    let parameters =
        [("keyspace", keyspace.as_deref()), ("column_family", column_family.as_deref())];
    let thresholds: Vec<Thresholds> = client.get(&query(PATH, &parameters))?;
    Ok(Output::new(&thresholds, render(&thresholds)))
}

pub(super) fn set(client: &Client, arguments: &SetArguments) -> Result<Output, NodetoolError> {
    let Change { family, min, max } = parse(&arguments.values)?;
    let mut body = json!({ "min": min });
    if let Some(max) = max {
        body["max"] = json!(max);
    }
    if let Some((keyspace, column_family)) = family {
        body["keyspace"] = json!(keyspace);
        body["column_families"] = json!([column_family]);
    }
    let thresholds: Vec<Thresholds> = client.set(PATH, &body)?;
    Ok(Output::new(&thresholds, String::new()))
}

/// What the operator asks for.
#[derive(Debug, PartialEq)]
struct Change<'a> {
    /// Keyspace and name; `None` for all.
    family: Option<(&'a str, &'a str)>,
    min: usize,
    max: Option<usize>,
}

/// Reads the arguments, and refuses what makes no sense in the words of old.
fn parse(values: &[String]) -> Result<Change<'_>, NodetoolError> {
    let (family, numbers) = match values {
        [keyspace, family, numbers @ ..] if keyspace.parse::<usize>().is_err() => {
            (Some((keyspace.as_str(), family.as_str())), numbers)
        }
        numbers => (None, numbers),
    };
    let number = |text: &String| {
        text.parse().map_err(|_| NodetoolError::Usage("Thresholds are whole numbers"))
    };
    let (min, max) = match numbers {
        [] => return Err(NodetoolError::Usage("Missing threshold value(s)")),
        [min] => (number(min)?, None),
        [min, max] => (number(min)?, Some(number(max)?)),
        [_, _, _, ..] => return Err(NodetoolError::Usage("Too many threshold values")),
    };
    // Without a maximum the server adds the present one, and checks again.
    match compaction::Thresholds::new(min, max.unwrap_or(min.max(2))) {
        Ok(_) => Ok(Change { family, min, max }),
        Err(error) => Err(NodetoolError::Usage(in_words_of_old(error))),
    }
}

fn in_words_of_old(error: ThresholdError) -> &'static str {
    match error {
        ThresholdError::TooSmall => "Min threshold must be at least 2",
        ThresholdError::Reversed => "Min threshold can't be greater than Max threshold",
        ThresholdError::TooLarge => "Thresholds are less than 4294967296",
    }
}

/// The line of 0.6 for what most column families have, and one for each that differs.
fn render(thresholds: &[Thresholds]) -> String {
    let usual = thresholds.iter().max_by_key(|one| {
        thresholds.iter().filter(|other| (other.min, other.max) == (one.min, one.max)).count()
    });
    let Some(usual) = usual else { return String::new() };
    let mut text = format!("Current compaction threshold: Min={}, Max={}\n", usual.min, usual.max);
    for Thresholds { keyspace, column_family, min, max } in thresholds {
        if (*min, *max) != (usual.min, usual.max) {
            let _ = writeln!(text, "{keyspace}.{column_family}: Min={min}, Max={max}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(values: &[&str]) -> Result<(Option<String>, usize, Option<usize>), String> {
        let values: Vec<String> = values.iter().map(|&value| value.to_owned()).collect();
        let change = parse(&values).map_err(|error| error.to_string())?;
        let family = change.family.map(|(keyspace, family)| format!("{keyspace}.{family}"));
        Ok((family, change.min, change.max))
    }

    #[test]
    fn what_makes_no_sense_is_refused_in_the_words_of_old() {
        assert_eq!(parsed(&["4"]), Ok((None, 4, None)));
        assert_eq!(parsed(&["0", "0"]), Ok((None, 0, Some(0))));
        assert_eq!(parsed(&["K", "C", "2", "8"]), Ok((Some("K.C".into()), 2, Some(8))));
        let refusals: [(&[&str], &str); 7] = [
            (&[], "Missing threshold value(s)"),
            (&["K", "C"], "Missing threshold value(s)"),
            (&["8", "4"], "Min threshold can't be greater than Max threshold"),
            (&["0", "32"], "Min threshold must be at least 2"),
            (&["1", "4"], "Min threshold must be at least 2"),
            (&["4", "many"], "Thresholds are whole numbers"),
            (&["4", "5", "6"], "Too many threshold values"),
        ];
        for (values, text) in refusals {
            assert_eq!(parsed(values), Err(text.to_owned()), "{values:?}");
        }
    }

    #[test]
    fn the_usual_thresholds_come_first() {
        let of = |name: &str, min, max| Thresholds {
            keyspace: "K".into(),
            column_family: name.into(),
            min,
            max,
        };
        let all = [of("a", 2, 8), of("b", 4, 32), of("c", 4, 32)];
        let expected = "Current compaction threshold: Min=4, Max=32\nK.a: Min=2, Max=8\n";
        assert_eq!(render(&all), expected);
    }
}
