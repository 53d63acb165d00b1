//! Clients as they were written in 2010, on the Thrift libraries of Python and Ruby, against the
//! built server. What they need on the machine is installed by `tests/setup.sh`.

use crate::server::{Options, Server};
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

    /// Output of a program; it must succeed.
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
    let commands: [&[&str]; 11] = [
        &["front"],
        &["tag", "cassandra"],
        &["tag", "nothing"],
        &["show", "hello-ring"],
        &["show", "blocks-and-rows"],
        &["author", "Zoë Müller"],
        &["by", "Zoë Müller"],
        &["archive"],
        &["count", "tag", "cassandra"],
        &["count", "author", "Zoë Müller"],
        &["count", "comments", "hello-ring"],
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

/// Output of a command, in both languages.
fn same(server: &Server, arguments: &[&str]) -> String {
    let [python, ruby] = LANGUAGES.map(|language| language.blog(server, arguments));
    assert_eq!(python, ruby, "{arguments:?}");
    python
}

/// The identifier behind an option that a page tells of.
fn place<'a>(page: &'a str, option: &str) -> &'a str {
    let found = page.lines().find_map(|line| line.split_once(option));
    found.unwrap_or_else(|| panic!("no {option} in {page}")).1.trim()
}

#[test]
fn lists_go_on_and_back_and_follow_the_tags_the_same_in_both_languages() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path(), &Options::default());
    PYTHON.blog(&server, &["author", "Ada", "--email", "ada@example.org"]);
    for (number, language) in (0..12).zip(LANGUAGES.iter().cycle()) {
        let title = format!("Entry {number}");
        language.blog(
            &server,
            &["post", "--title", &title, "--author", "Ada", "--tags", "all, some", "Text."],
        );
    }
    for list in [&["front"][..], &["tag", "all"], &["by", "Ada"]] {
        let first = same(&server, list);
        assert!(first.contains("Entry 11") && !first.contains("Newer ones"), "{first}");
        let older = [list, &["--from", place(&first, "--from")]].concat();
        let second = same(&server, &older);
        assert!(second.contains("\nEntry 1\n") && second.contains("\nEntry 0\n"), "{second}");
        let newer = [list, &["--until", place(&second, "--until")]].concat();
        assert_eq!(same(&server, &newer), first);
    }

    RUBY.blog(&server, &["edit", "entry-3", "--tags", "some,moved"]);
    PYTHON.blog(&server, &["edit", "entry-4", "--tags", "moved", "--title", "Four"]);
    let moved = same(&server, &["tag", "moved"]);
    assert!(moved.contains("Four") && moved.contains("Entry 3"), "{moved}");
    RUBY.blog(&server, &["delete", "entry-4"]);
    PYTHON.blog(&server, &["delete", "entry-3"]);
    let counts = [("all", 10), ("some", 10), ("moved", 0)];
    for (tag, count) in counts {
        let printed = same(&server, &["count", "tag", tag]);
        assert_eq!(printed, format!("Tag \"{tag}\": {count} entries\n"));
    }
    assert!(same(&server, &["count", "author", "Ada"]).contains("10 entries, numPosts: 10"));
    assert!(same(&server, &["recount"]).ends_with("out of lists: 0\nNumbers corrected: 0\n"));
    let archive = same(&server, &["archive"]);
    let (month, _) = archive.lines().last().unwrap().split_once(':').unwrap();
    assert!(same(&server, &["archive", month]).starts_with(&format!("Entries of {month}\n")));
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
        assert!(refused(language, &["archive", "2010-13"]).contains("not a month like 2010-11"));
        let tagged = ["edit", "nothing", "--tags", "__notag__"];
        assert!(refused(language, &tagged).contains("no entry nothing"));
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
    // The one that is built in.
    let options = Options::of_file(&root.join("storage-conf.xml"));
    let server = Server::start(directory.path(), &options);
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
