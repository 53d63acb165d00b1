//! Golden scripts in tests/scripts/nodetool: requests of command lines, and texts of answers.

use super::{Command, Printed, progress};
use crate::admin::report::OperationState;
use clap::{FromArgMatches, Subcommand};
use serde_json::Value;
use std::error::Error;

#[test]
fn scripts_of_nodetool() {
    let scripts = std::fs::read_dir("tests/scripts/nodetool").unwrap();
    for script in scripts.map(|script| script.unwrap().path()) {
        goldenscript::run(&mut Answer::default(), script).unwrap();
    }
}

/// The latest answer of a server.
#[derive(Default)]
struct Answer(Value);

fn parse(line: &str) -> Result<Command, clap::Error> {
    let nodetool = Command::augment_subcommands(clap::Command::new("nodetool"));
    let all = ["nodetool"].into_iter().chain(line.split_whitespace());
    Command::from_arg_matches(&nodetool.try_get_matches_from(all)?)
}

/// Replaces members of objects, also of inner ones.
fn merge(into: &mut Value, change: Value) {
    match (into, change) {
        (Value::Object(into), Value::Object(change)) => {
            for (name, value) in change {
                merge(into.entry(name).or_insert(Value::Null), value);
            }
        }
        (into, change) => *into = change,
    }
}

impl goldenscript::Runner for Answer {
    type Command = goldenscript::Command;

    fn run(
        &mut self,
        command: &goldenscript::Command,
        _: &goldenscript::Context,
    ) -> Result<String, Box<dyn Error>> {
        let mut arguments = command.consume_args();
        let argument = arguments.next_pos().unwrap_or_default();
        match command.name.as_str() {
            "answer" => self.0 = serde_json::from_str(argument)?,
            "merge" => merge(&mut self.0, serde_json::from_str(argument)?),
            "call" => {
                return Ok(match parse(argument)?.call() {
                    Ok(call) => {
                        let parameters = Value::Object(call.parameters);
                        format!("{} {} {parameters}\n", call.method, call.path)
                    }
                    Err(failure) => format!("{}\n", failure.text),
                });
            }
            "print" => {
                let call = parse(argument)?.call().map_err(|failure| failure.text)?;
                let Printed { text, json, is_well } = (call.print)(&self.0)?;
                let json = json.map_or_else(String::new, |json| format!("JSON: {json}\n"));
                let failed = if is_well { "" } else { "(exit code 1)\n" };
                return Ok(format!("{text}{json}{failed}"));
            }
            "progress" => {
                let state: OperationState = serde_json::from_value(self.0.clone())?;
                return Ok(format!("{}\n", progress::brief(&state)));
            }
            _ => return Err("there is no such command".into()),
        }
        Ok(String::new())
    }
}
