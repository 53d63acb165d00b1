//! An XML document as a small tree that knows its lines.
//!
//! Only what a configuration needs: elements, attributes and text. Comments, processing
//! instructions and the document type are skipped. Nothing is ever expanded beyond the five
//! predefined entities and character references, and size, depth and number of attributes are
//! bounded, so that no file can cost more than its length.

use super::error::ConfigError;
use quick_xml::Reader;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesRef, BytesStart, Event};
use std::fmt::{self, Write};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The largest accepted document. Real files have some ten kilobytes.
pub const MAX_DOCUMENT_BYTES: usize = 4 << 20;
/// The deepest accepted nesting. A configuration needs five levels.
pub const MAX_DEPTH: usize = 32;
/// The most attributes of one element. A column family has some fifteen.
pub const MAX_ATTRIBUTES: usize = 64;

/// An element with all that it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Element {
    /// Its name as written, with its prefix if it has one.
    pub name: String,
    /// The line of its start tag; the first line of a file is 1.
    pub line: u32,
    /// Its attributes in the order of the file.
    pub attributes: Vec<Attribute>,
    /// Its own text without that of its children, all pieces joined.
    pub text: String,
    /// Its child elements in the order of the file.
    pub children: Vec<Element>,
}

/// An attribute of an element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attribute {
    /// Its name as written.
    pub name: String,
    /// Its value, references resolved.
    pub value: String,
    /// The line on which its name stands.
    pub line: u32,
}

impl Element {
    /// Reads a document; `origin` names it in messages. Its XML declaration is not looked at: the
    /// text is decoded already.
    pub fn parse(text: &str, origin: &str) -> Result<Self, ConfigError> {
        check_size(text.len(), origin)?;
        TreeBuilder::new(text, origin).build()
    }

    /// Reads the bytes of a document.
    pub fn read(bytes: &[u8], origin: &str) -> Result<Self, ConfigError> {
        Self::parse(&decode(bytes, origin)?, origin)
    }

    /// The children of that name.
    pub fn children_named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Self> {
        self.children.iter().filter(move |child| child.name == name)
    }

    /// The attribute of that name.
    pub fn attribute(&self, name: &str) -> Option<&Attribute> {
        self.attributes.iter().find(|attribute| attribute.name == name)
    }
}

/// The bytes of a file, at most one more than a document may have.
pub(super) fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let limit = MAX_DOCUMENT_BYTES as u64 + 1;
    File::open(path)?.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn too_large(what: &str, limit: usize) -> String {
    format!("more than {limit} {what}")
}

fn check_size(bytes: usize, origin: &str) -> Result<(), ConfigError> {
    if bytes > MAX_DOCUMENT_BYTES {
        return Err(ConfigError::at(origin, 1, too_large("bytes", MAX_DOCUMENT_BYTES)));
    }
    Ok(())
}

/// Decodes a document by its byte order mark and XML declaration: UTF-8, US-ASCII or ISO-8859-1.
/// The mark is not part of the result.
pub fn decode(bytes: &[u8], origin: &str) -> Result<String, ConfigError> {
    check_size(bytes.len(), origin)?;
    let unsupported = |name: &str| {
        let fault = format!("encoding {name} is not supported; save the file as UTF-8");
        Err(ConfigError::at(origin, 1, fault))
    };
    if bytes.starts_with(&[0xfe, 0xff]) || bytes.starts_with(&[0xff, 0xfe]) {
        return unsupported("UTF-16");
    }
    let (bytes, declared) = match bytes.strip_prefix(b"\xef\xbb\xbf") {
        Some(rest) => (rest, None),
        None => (bytes, declared_encoding(bytes)),
    };
    let declared = declared.unwrap_or_else(|| "UTF-8".to_owned());
    let name = match declared.to_ascii_uppercase().as_str() {
        "UTF-8" | "UTF8" => "UTF-8",
        // A stray UTF-8 character in a comment is no reason to refuse the file.
        "US-ASCII" | "ASCII" => "US-ASCII",
        "ISO-8859-1" | "ISO8859-1" | "ISO8859_1" | "LATIN1" | "LATIN-1" => {
            return Ok(bytes.iter().map(|&byte| char::from(byte)).collect());
        }
        _ => return unsupported(&declared),
    };
    String::from_utf8(bytes.to_vec()).map_err(|error| {
        let sound = bytes.get(..error.utf8_error().valid_up_to()).unwrap_or_default();
        let line = sound.split(|&byte| byte == b'\n').count() as u32;
        let advice = "declare the encoding of the file or save it as UTF-8";
        ConfigError::at(origin, line, format!("the bytes are not {name}; {advice}"))
    })
}

/// The value of `encoding` in the XML declaration. All supported encodings agree on its bytes.
fn declared_encoding(bytes: &[u8]) -> Option<String> {
    const LONGEST_DECLARATION: usize = 256;
    let rest = bytes.get(..bytes.len().min(LONGEST_DECLARATION))?.strip_prefix(b"<?xml")?;
    let rest: String = rest.iter().map(|&byte| char::from(byte)).collect();
    let (declaration, _) = rest.split_once("?>")?;
    let (_, after) = declaration.split_once("encoding")?;
    let after = after.trim_start().strip_prefix('=')?.trim_start();
    let quote = after.chars().next().filter(|&c| c == '"' || c == '\'')?;
    let (value, _) = after.get(1..)?.split_once(quote)?;
    Some(value.to_owned())
}

/// Turns the events of the parser into a tree.
struct TreeBuilder<'a> {
    reader: Reader<&'a [u8]>,
    origin: &'a str,
    /// The places of all ends of lines.
    newlines: Vec<u64>,
    open: Vec<Element>,
    root: Option<Element>,
}

impl<'a> TreeBuilder<'a> {
    fn new(text: &'a str, origin: &'a str) -> Self {
        let newlines = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let newlines = newlines.map(|(place, _)| place as u64).collect();
        Self { reader: Reader::from_str(text), origin, newlines, open: Vec::new(), root: None }
    }

    fn build(mut self) -> Result<Element, ConfigError> {
        loop {
            let start = self.reader.buffer_position();
            let line = self.line_at(start);
            let event = match self.reader.read_event() {
                Ok(event) => event,
                Err(error) => {
                    return Err(self.syntax(self.line_at(self.reader.error_position()), error));
                }
            };
            match event {
                Event::Start(tag) => self.open(&tag, start)?,
                Event::Empty(tag) => {
                    self.open(&tag, start)?;
                    self.close();
                }
                Event::End(_) => self.close(),
                Event::Text(text) => self.append(&text.xml10_content(), line)?,
                Event::CData(text) => self.append(&text.xml10_content(), line)?,
                Event::GeneralRef(reference) => {
                    let text = self.resolve(&reference, line)?;
                    self.append(&text, line)?;
                }
                Event::Comment(_) | Event::PI(_) | Event::Decl(_) | Event::DocType(_) => {}
                Event::Eof => break,
            }
        }
        if let Some(element) = self.open.pop() {
            return Err(self.fault(element.line, format!("<{}> is never closed", element.name)));
        }
        let end = self.line_at(u64::MAX);
        let empty = self.fault(end, "the document holds no element");
        self.root.ok_or(empty)
    }

    /// The line of a place in the text.
    fn line_at(&self, place: u64) -> u32 {
        1 + self.newlines.partition_point(|&newline| newline < place) as u32
    }

    fn fault(&self, line: u32, fault: impl fmt::Display) -> ConfigError {
        ConfigError::at(self.origin, line, fault)
    }

    fn syntax(&self, line: u32, error: impl fmt::Display) -> ConfigError {
        self.fault(line, format_args!("not well-formed XML: {error}"))
    }

    fn beside_root(&self, line: u32) -> ConfigError {
        self.fault(line, "only one root element is allowed, and nothing but comments beside it")
    }

    fn open(&mut self, tag: &BytesStart<'_>, start: u64) -> Result<(), ConfigError> {
        let line = self.line_at(start);
        if self.root.is_some() {
            return Err(self.beside_root(line));
        }
        if self.open.len() == MAX_DEPTH {
            return Err(self.fault(line, too_large("levels of elements", MAX_DEPTH)));
        }
        let name = tag.name().as_ref().to_owned();
        let attributes = self.attributes(tag, start)?;
        let (text, children) = (String::new(), Vec::new());
        self.open.push(Element { name, line, attributes, text, children });
        Ok(())
    }

    fn attributes(&self, tag: &BytesStart<'_>, start: u64) -> Result<Vec<Attribute>, ConfigError> {
        let mut attributes = Vec::new();
        let tag_text: &str = tag;
        let line = self.line_at(start);
        for attribute in tag.attributes() {
            if attributes.len() == MAX_ATTRIBUTES {
                return Err(
                    self.fault(line, too_large("attributes of one element", MAX_ATTRIBUTES))
                );
            }
            let attribute = attribute.map_err(|error| self.syntax(line, error))?;
            let name = attribute.key.as_ref();
            // The parser borrows names from the tag, so their distance is the place in the tag.
            let offset = (name.as_ptr() as usize).wrapping_sub(tag_text.as_ptr() as usize);
            let offset = if offset < tag_text.len() { offset as u64 + 1 } else { 0 };
            let value = attribute.normalized_value(quick_xml::XmlVersion::Implicit1_0);
            let value = value.map_err(|error| self.syntax(line, error))?;
            attributes.push(Attribute {
                name: name.to_owned(),
                value: value.into_owned(),
                line: self.line_at(start + offset),
            });
        }
        Ok(attributes)
    }

    /// Ends the innermost element. The parser has checked that the names agree.
    fn close(&mut self) {
        let Some(element) = self.open.pop() else { return };
        match self.open.last_mut() {
            Some(parent) => parent.children.push(element),
            None => self.root = Some(element),
        }
    }

    fn append(&mut self, text: &str, line: u32) -> Result<(), ConfigError> {
        match self.open.last_mut() {
            Some(element) => element.text.push_str(text),
            None if text.trim().is_empty() => {}
            None => return Err(self.beside_root(line)),
        }
        Ok(())
    }

    fn resolve(&self, reference: &BytesRef<'_>, line: u32) -> Result<String, ConfigError> {
        let resolved = reference.resolve_char_ref().map_err(|error| self.syntax(line, error))?;
        if let Some(character) = resolved {
            return Ok(character.to_string());
        }
        let name: &str = reference;
        resolve_predefined_entity(name).map(str::to_owned).ok_or_else(|| {
            let fault = format!("the entity &{name}; is not defined; write the text itself");
            self.fault(line, fault)
        })
    }
}

/// The document of which this is the root. Comments are lost, and text of its own that an element
/// has beside children: no element of a configuration has both.
impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_element(self, 0, f)
    }
}

/// As deep as documents may be.
fn write_element(element: &Element, depth: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Element { name, attributes, text, children, .. } = element;
    let indent = depth * 2;
    write!(f, "{:indent$}<{name}", "")?;
    for attribute in attributes {
        write!(f, " {}=\"", attribute.name)?;
        escape(&attribute.value, f)?;
        f.write_char('"')?;
    }
    f.write_char('>')?;
    if children.is_empty() {
        escape(text.trim(), f)?;
    } else {
        f.write_char('\n')?;
        for child in children {
            write_element(child, depth + 1, f)?;
        }
        write!(f, "{:indent$}", "")?;
    }
    writeln!(f, "</{name}>")
}

fn escape(text: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for c in text.chars() {
        match c {
            // The last three would be read as blanks in an attribute.
            '&' | '<' | '>' | '"' | '\t' | '\n' | '\r' => write!(f, "&#{};", c as u32)?,
            c => f.write_char(c)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::config::load::EMBEDDED;

    fn parse(text: &str) -> Result<Element, ConfigError> {
        Element::parse(text, "x")
    }

    #[track_caller]
    fn refused(text: &str, line: u32, fault: &str) {
        let error = parse(text).unwrap_err().to_string();
        assert!(error.starts_with(&format!("x:{line}: {fault}")), "{error}");
    }

    #[test]
    fn a_tree_knows_its_lines() {
        let text = "<?xml version='1.0'?>\n<!-- c -->\n<a>\n <b\n  x='1'\n  y=\"&lt;2\"/>\n \
                    <c>on<!-- no -->e &amp; <![CDATA[<two>]]> &#65;</c>\n</a>\n";
        let root = parse(text).unwrap();
        assert_eq!((root.name.as_str(), root.line), ("a", 3));
        let b = root.children_named("b").next().unwrap();
        assert_eq!(b.line, 4);
        assert_eq!(b.attribute("x").map(|a| (a.value.as_str(), a.line)), Some(("1", 5)));
        assert_eq!(b.attribute("y").map(|a| (a.value.as_str(), a.line)), Some(("<2", 6)));
        let c = root.children_named("c").next().unwrap();
        assert_eq!((c.text.as_str(), c.line), ("one & <two> A", 7));
    }

    #[test]
    fn faults_carry_their_line() {
        refused("<a>\n<b>\n</a>", 3, "not well-formed XML: ");
        refused("<a>\n<b>", 2, "<b> is never closed");
        refused("<a/>\n<b/>", 2, "only one root element is allowed");
        refused("text", 1, "only one root element is allowed");
        refused("<!-- nothing -->\n", 2, "the document holds no element");
        refused("<a>\n<b x='1' x='2'/></a>", 2, "not well-formed XML: ");
        refused("<a>\n<b x=1/></a>", 2, "not well-formed XML: ");
    }

    #[test]
    fn entities_of_the_document_are_never_expanded() {
        let bomb = "<!DOCTYPE a [<!ENTITY x \"boom\"><!ENTITY y \"&x;&x;&x;\">]>\n<a>\n&y;</a>";
        refused(bomb, 3, "the entity &y; is not defined; write the text itself");
        let attribute = "<!DOCTYPE a [<!ENTITY x \"boom\">]>\n<a b='&x;'/>";
        refused(attribute, 2, "not well-formed XML: ");
    }

    #[test]
    fn size_depth_and_attributes_are_bounded() {
        let nested = |depth| "<a>".repeat(depth) + &"</a>".repeat(depth);
        assert!(parse(&nested(MAX_DEPTH)).is_ok());
        refused(&nested(MAX_DEPTH + 1), 1, "more than 32 levels of elements");
        let attributed = |count| {
            let attributes: Vec<_> = (0..count).map(|i| format!("a{i}='' ")).collect();
            format!("<a {}/>", attributes.concat())
        };
        assert!(parse(&attributed(MAX_ATTRIBUTES)).is_ok());
        refused(&attributed(MAX_ATTRIBUTES + 1), 1, "more than 64 attributes of one element");
        let long = format!("<a>{}</a>", " ".repeat(MAX_DOCUMENT_BYTES));
        refused(&long, 1, "more than 4194304 bytes");
        assert!(decode(long.as_bytes(), "x").is_err());
    }

    #[test]
    fn encodings_of_the_time_are_read() {
        let text = |bytes: &[u8]| Element::read(bytes, "x").unwrap().text;
        assert_eq!(text("<a>é</a>".as_bytes()), "é");
        assert_eq!(text(b"\xef\xbb\xbf<a>\xc3\xa9</a>"), "é");
        assert_eq!(text(b"<?xml version='1.0' encoding = \"iso-8859-1\" ?><a>\xe9</a>"), "é");
        assert_eq!(text(b"<?xml version='1.0' encoding='US-ASCII'?><a>e</a>"), "e");
        let refused = |bytes: &[u8]| decode(bytes, "x").unwrap_err().to_string();
        assert_eq!(
            refused(b"<a>\n\xe9</a>"),
            "x:2: the bytes are not UTF-8; declare the encoding of the file or save it as UTF-8"
        );
        assert_eq!(
            refused(b"<?xml version='1.0' encoding='Shift_JIS'?><a/>"),
            "x:1: encoding Shift_JIS is not supported; save the file as UTF-8"
        );
        assert!(refused(b"\xff\xfe<\0").starts_with("x:1: encoding UTF-16 is not"));
    }

    /// Without the lines, which change.
    fn shape(element: &Element) -> String {
        let attributes: Vec<_> = element.attributes.iter().map(|a| (&a.name, &a.value)).collect();
        let children: Vec<String> = element.children.iter().map(shape).collect();
        let text = if children.is_empty() { element.text.trim() } else { "" };
        format!("{} {attributes:?} {text:?} {children:?}", element.name)
    }

    #[test]
    fn what_is_written_reads_the_same() {
        let odd =
            "<a b='x &quot;&lt;&#10;y&#9;'><!-- not this --><c> 1 &lt; 2 &amp; 3 </c><d/></a>";
        for text in [EMBEDDED, odd] {
            let element = parse(text).unwrap();
            let again = parse(&element.to_string()).unwrap();
            assert_eq!(shape(&again), shape(&element));
        }
    }
}
