//! How `nodetool` is called, and what it says when there is no answer.

use super::{Node, assert_refused, texts};
use crate::server::calls::plain_families;
use crate::server::program;
use std::os::unix::fs::symlink;
use std::process::Command;

#[test]
fn a_server_that_does_not_answer_is_not_waited_for_for_ever() {
    let node = Node::start(&plain_families());
    node.server.pause();
    for command in [&["info"][..], &["setcompactionthreshold", "4"]] {
        let output = node.nodetool(&[&["--timeout", "1"], command].concat());
        assert_refused(&output, 3, "has not answered within 1 seconds");
    }
    node.server.resume();
    assert!(node.told(&["--timeout", "60", "info"]).contains("Uptime"));
}

#[test]
fn usage_names_the_program_and_the_command_once() {
    let directory = tempfile::tempdir().unwrap();
    let nodetool = directory.path().join("nodetool");
    symlink(program(), &nodetool).unwrap();
    let output = Command::new(nodetool).arg("ringing").output().unwrap();
    assert_refused(&output, 1, "Usage: alexandra nodetool");
}

#[test]
fn nodetool_answers_to_its_old_names_and_options() {
    let node = Node::start(&plain_families());
    let port = node.admin().port().to_string();
    for (name, arguments) in [
        ("nodetool", vec!["-h", "localhost", "-p", &port, "info"]),
        ("nodetool", vec!["--host", "127.0.0.1", "--port", &port, "cfstats"]),
        ("nodeprobe", vec!["-host", "localhost", "-port", &port, "info"]),
        ("nodetool", vec!["info", "-p", &port]),
    ] {
        let script = node.directory.path().join(name);
        let _ = symlink(program(), &script);
        let output = Command::new(&script).args(&arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", texts(&output).1);
    }
    for arguments in [&["fly"][..], &[]] {
        let output = node.nodetool(arguments);
        assert_refused(&output, 1, "Usage");
    }
}
