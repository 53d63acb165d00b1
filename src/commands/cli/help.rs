//! The text of `help`: lines of the original first, then those that came later.

use super::mistake::Mistake;
use super::parser::VERBS;
use super::statement::Name;

/// Width of the original's lines.
const WIDTH: usize = 80;

/// Statements of the original and what they do, in its words.
const ORIGINAL: [(&str, &str); 21] = [
    ("?", "Same as help."),
    ("help", "Display this help."),
    ("connect <hostname>/<port>", "Connect to thrift service."),
    ("describe keyspace <keyspacename>", "Describe keyspace."),
    ("exit", "Exit CLI."),
    ("quit", "Exit CLI."),
    ("show config file", "Display contents of config file."),
    ("show cluster name", "Display cluster name."),
    ("show keyspaces", "Show list of keyspaces."),
    ("show api version", "Show server API version."),
    ("get <ksp>.<cf>['<key>']", "Get a slice of columns."),
    ("get <ksp>.<cf>['<key>']['<super>']", "Get a slice of sub columns."),
    ("get <ksp>.<cf>['<key>']['<col>']", "Get a column value."),
    ("get <ksp>.<cf>['<key>']['<super>']['<col>']", "Get a sub column value."),
    ("set <ksp>.<cf>['<key>']['<col>'] = '<value>'", "Set a column."),
    ("set <ksp>.<cf>['<key>']['<super>']['<col>'] = '<value>'", "Set a sub column."),
    ("del <ksp>.<cf>['<key>']", "Delete record."),
    ("del <ksp>.<cf>['<key>']['<col>']", "Delete column."),
    ("del <ksp>.<cf>['<key>']['<super>']['<col>']", "Delete sub column."),
    ("count <ksp>.<cf>['<key>']", "Count columns in record."),
    ("count <ksp>.<cf>['<key>']['<super>']", "Count columns in a super column."),
];

/// Statements that the original did not have.
const LATER: [(&str, &str); 11] = [
    ("help <statement>", "Help on a statement, or on: types."),
    ("describe <ksp>.<cf>", "Show types of keys, names and values."),
    ("use <ksp>", "Leave out <ksp>. from now on."),
    ("get <ksp>.<cf>['<key>'] from <name> to <name>", "Slice between two names."),
    ("get <ksp>.<cf>['<key>'] limit <n>", "Slice of the last columns."),
    ("get <ksp>.<cf>['<key>'] forward", "First column first."),
    ("list <ksp>.<cf> from <key> to <key>", "Rows between two keys."),
    ("list <ksp>.<cf> limit <n> columns <n>", "As many rows and columns of each."),
    ("consistencylevel as <level>", "ONE, QUORUM, ALL and others."),
    ("assume <ksp>.<cf> <part> as <type>", "Give keys, names or values a type."),
    ("assume <ksp>.<cf> column <name> as <type>", "Give values of a column a type."),
];

const SLICES: &str = "\
Clauses stand in any order. Both ends belong to the slice, and 'from' is the lesser one, also
where the last column comes first, which is so unless 'forward' is given.
";

const LISTS: &str = "\
Rows come in the order of the partitioner: that of their keys only where it preserves order.
Without clauses: 100 rows, 100 columns of each. 'columns 0' shows keys alone.
";

const PARTS: &str = "\
Parts: comparator, sub_comparator (in super columns), validator (values), keys.
Servers of this program tell their types; see 'describe <ksp>.<cf>'.
";

const TYPES: &str = "\
Names, keys and values are text in quotes or bare numbers, and mean what their place has as type:
  get Blog.Posts['eric'][42]                      with LongType: the number
  set Blog.Posts['eric']['2f1a…-…'] = 'x'         with TimeUUIDType: the UUID
  get Blog.Posts['eric'] from '2009-10-11 12:00'  with TimeUUIDType: from that time on
A value without a type is text. '' in quotes is one quote; \\n, \\t and \\\\ are as in SQL.

type(…) has a type of its own, whatever the place:
  long(5)  int(5)  uuid(…)  bytes(0a0b)  utf8('…')  timestamp(2009-10-11)  and all types of CQL
  timeuuid(now)  timeuuid(2009-10-11 12:00)       a new one; the first of that time
  composite('a', 5)                               names of several parts; in slices the first
                                                  parts will do
";

/// The text for a statement, or for all.
pub(super) fn text(about: Option<&Name>) -> Result<String, Mistake> {
    let Some(about) = about else {
        let lines = ORIGINAL.iter().chain(&LATER).map(line);
        return Ok(format!("List of all CLI commands:\n{}", lines.collect::<String>()));
    };
    let word = about.text.to_ascii_lowercase();
    let all = ORIGINAL.iter().chain(&LATER);
    let lines: String =
        all.filter(|(usage, _)| usage.split(' ').next() == Some(&word)).map(line).collect();
    let more = match word.as_str() {
        "get" => SLICES,
        "list" => LISTS,
        "assume" => PARTS,
        "types" => TYPES,
        _ if lines.is_empty() => {
            let text = format!("there is no statement '{}'", about.text);
            let known = VERBS.into_iter().chain(["types"]);
            return Err(Mistake::at(about.span.clone(), text).or_meant(&word, known));
        }
        _ => "",
    };
    Ok(lines + more)
}

fn line((usage, about): &(&str, &str)) -> String {
    let room = WIDTH.saturating_sub(usage.len()).max(about.len() + 1);
    format!("{usage}{about:>room$}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::manual::check_part;

    #[test]
    fn the_manual_has_the_statements() {
        let row = |(usage, about): &(&str, &str)| format!("| `{usage}` | {about} |\n");
        let rows: String = ORIGINAL.iter().map(row).chain(LATER.iter().map(row)).collect();
        let text = format!("| statement | |\n|---|---|\n{rows}");
        check_part("docs/cli.md", "statements", &text);
    }

    #[test]
    fn every_statement_has_a_line() {
        for verb in VERBS {
            let name = Name { text: verb.to_uppercase(), span: 0..0 };
            assert!(text(Some(&name)).unwrap().starts_with(verb), "{verb}");
        }
        assert!(text(None).unwrap().lines().all(|line| line.len() <= WIDTH));
    }
}
