//! Clients as they were written in 2010, on the Thrift libraries of Python and Ruby, against the
//! built server. What they need on the machine is installed by `tests/setup.sh`.

#![allow(clippy::unwrap_used, reason = "a failure here is a failure of the test")]

mod server;

use server::{Options, Server};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Command, Output};

/// After this many seconds a client hangs. It gives up a single call much sooner.
const CLIENT_LIMIT_S: &str = "240";

/// One of the languages that have a blog and a check below `clients/`.
#[derive(Debug, Clone, Copy)]
struct Language {
    /// The interpreter for which Debian packages the Thrift library.
    interpreter: &'static str,
    blog: &'static str,
    check: &'static str,
}

const PYTHON: Language = Language {
    interpreter: "/usr/bin/python3",
    blog: "clients/python/blog.py",
    check: "clients/python/check.py",
};

const RUBY: Language = Language {
    interpreter: "/usr/bin/ruby",
    blog: "clients/ruby/blog.rb",
    check: "clients/ruby/check.rb",
};

const LANGUAGES: [Language; 2] = [PYTHON, RUBY];

impl Language {
    /// Runs a program of this language against a server to its end.
    fn run(self, program: &str, server: SocketAddr, arguments: &[&str]) -> Output {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        assert!(
            Path::new(self.interpreter).exists(),
            "{} is missing: run {}",
            self.interpreter,
            root.join("tests/setup.sh").display()
        );
        Command::new("timeout")
            .args([CLIENT_LIMIT_S, self.interpreter])
            .arg(root.join(program))
            .args(["--host", &server.ip().to_string(), "--port", &server.port().to_string()])
            .args(arguments)
            .output()
            .unwrap()
    }

    /// What a program prints; it must succeed.
    fn output(self, program: &str, server: &Server, arguments: &[&str]) -> String {
        let output = self.run(program, server.thrift_address(), arguments);
        assert!(
            output.status.success(),
            "{program} {arguments:?}: {}\n{}{}The log of the server ends with:\n{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
            server.log_end()
        );
        String::from_utf8(output.stdout).unwrap()
    }

    /// One command of the blog.
    fn blog(self, server: &Server, arguments: &[&str]) -> String {
        self.output(self.blog, server, arguments)
    }

    /// The whole scenario of the conformance check, over every transport and protocol.
    fn check(self, server: &Server) {
        let passed = self.output(self.check, server, &[]);
        for transport in ["buffered", "framed"] {
            assert!(passed.contains(transport), "{} left out {transport}:\n{passed}", self.check);
        }
    }
}

/// The pages of a blog that both demos have filled, which are the same in both languages.
fn pages(server: &Server) -> Vec<String> {
    let commands: [&[&str]; 6] = [
        &["front"],
        &["tag", "cassandra"],
        &["tag", "nothing"],
        &["show", "hello-ring"],
        &["show", "blocks-and-rows"],
        &["author", "Zoë Müller"],
    ];
    let [python, ruby] =
        LANGUAGES.map(|language| commands.map(|command| language.blog(server, command)).to_vec());
    assert_eq!(python, ruby);
    python
}

#[test]
fn every_answer_is_as_it_is_due_on_fresh_data_and_after_a_crash() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::start(directory.path(), &Options::default());
    for language in LANGUAGES {
        language.check(&server);
    }
    server.restart();
    for language in LANGUAGES {
        language.check(&server);
    }
}

#[test]
fn a_port_that_is_configured_as_framed_serves_both_transports() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::default().with("ThriftFramedTransport", "true");
    let server = Server::start(directory.path(), &options);
    for language in LANGUAGES {
        language.check(&server);
    }
}

#[test]
fn two_languages_share_one_blog_and_a_crash_takes_nothing_from_it() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::start(directory.path(), &Options::default());
    assert!(RUBY.blog(&server, &["front"]).contains("Nothing here yet."));

    let demo = PYTHON.blog(&server, &["demo"]);
    let titles = ["Ein Eintrag ohne Schlagwort", "Tea is a good data model", "Hello, ring"];
    let places = titles.map(|title| demo.find(title).unwrap_or_else(|| panic!("{title}: {demo}")));
    assert!(places.is_sorted(), "not newest first: {demo}");
    assert!(demo.contains("\n2 comments\n") && !demo.contains("Buy this"), "{demo}");
    RUBY.blog(&server, &["demo"]);

    // Each answers the other.
    RUBY.blog(&server, &["comment", "hello-ring", "Ada", "ada@example.org", "From the other."]);
    PYTHON.blog(&server, &["comment", "blocks-and-rows", "Alan", "alan@example.org", "Likewise."]);
    RUBY.blog(&server, &["edit", "ohne-schlagwort", "--title", "Überschrift"]);
    PYTHON.blog(&server, &["delete", "du-pain"]);
    let before = pages(&server);
    let front = &before[0];
    assert!(front.contains("Überschrift") && !front.contains("du-pain"), "{front}");
    let comments = &before[3];
    assert!(
        comments.contains("3 comments") && comments.ends_with("From the other.\n"),
        "{comments}"
    );

    server.restart();
    assert_eq!(pages(&server), before);
    // A demo that finds its entries only shows them.
    assert_eq!(RUBY.blog(&server, &["demo"]).matches("Blocks and rows").count(), 3);
    PYTHON
        .blog(&server, &["post", "--title", "After the crash", "--author", "Zoë Müller", "Here."]);
    server.restart();
    assert!(pages(&server)[0].contains("After the crash"));
}

#[test]
fn commands_that_cannot_be_done_fail_with_a_reason() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::start(directory.path(), &Options::default());
    let address = server.thrift_address();
    let refused = |language: Language, arguments: &[&str]| {
        let output = language.run(language.blog, address, arguments);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {text}");
        text
    };
    for language in LANGUAGES {
        assert!(refused(language, &["show", "nothing"]).contains("no entry nothing"));
        assert!(refused(language, &["author", ""]).contains("the server refuses: Key may not be"));
    }
    server.kill();
    let nobody = format!("no server at {}:{}", Ipv4Addr::LOCALHOST, address.port());
    for language in LANGUAGES {
        let text = refused(language, &["front"]);
        assert!(text.contains(&nobody), "{text}");
    }
}

#[test]
fn the_examples_of_the_data_model_do_what_it_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &Options::default());
    let document = std::fs::read_to_string(root.join("docs/data-modelling.md")).unwrap();
    let address = server.thrift_address();
    let ours = format!("Connection(\"{}\", {})", address.ip(), address.port());
    let theirs = "Connection(\"127.0.0.1\", 9160)";
    assert!(document.contains(theirs), "nothing connects to the server");
    let examples = directory.path().join("data-modelling.md");
    std::fs::write(&examples, document.replace(theirs, &ours)).unwrap();
    // A reader may try them more than once.
    for _ in 0..2 {
        let output = Command::new("timeout")
            .args([CLIENT_LIMIT_S, PYTHON.interpreter, "-m", "doctest", "-v"])
            .arg(&examples)
            .env("PYTHONPATH", root.join("clients/python"))
            .output()
            .unwrap();
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{printed}");
        assert!(printed.contains("Test passed."), "nothing was tried: {printed}");
    }
}
