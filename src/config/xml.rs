//! An XML document as a small tree that knows its lines.
//!
//! Only what a configuration needs: elements, attributes and text. Comments, processing
//! instructions and the document type are skipped. Nothing is ever expanded beyond the five
//! predefined entities and character references, and size, depth and number of attributes are
//! bounded, so that no file can cost more than its length.

use quick_xml::Reader;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesRef, BytesStart, Event};

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

/// Why bytes are not a document, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{fault}")]
pub struct XmlError {
    /// The line of the fault; the first line of a file is 1.
    pub line: u32,
    /// What is wrong there.
    pub fault: XmlFault,
}

/// What can be wrong with a document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum XmlFault {
    /// The text breaks the grammar of XML.
    #[error("not well-formed XML: {0}")]
    Syntax(String),
    /// A named entity other than the five predefined ones.
    #[error("the entity &{0}; is not defined; write the text itself")]
    Entity(String),
    /// Something stands beside the root element.
    #[error("only one root element is allowed, and nothing but comments beside it")]
    BesideRoot,
    /// No element at all.
    #[error("the document holds no element")]
    Empty,
    /// An element is still open at the end.
    #[error("<{0}> is never closed")]
    Unclosed(String),
    /// A limit of this reader.
    #[error("more than {limit} {what}")]
    TooLarge {
        /// What there is too much of.
        what: &'static str,
        /// How much of it is accepted.
        limit: usize,
    },
    /// The declared encoding is none that this reader knows.
    #[error("encoding {0} is not supported; save the file as UTF-8")]
    Encoding(String),
    /// The bytes are not text in the declared encoding.
    #[error("the bytes are not {0}; declare the encoding of the file or save it as UTF-8")]
    NotText(&'static str),
}

impl Element {
    /// Reads a document. Its XML declaration is not looked at: the text is decoded already.
    pub fn parse(text: &str) -> Result<Self, XmlError> {
        if text.len() > MAX_DOCUMENT_BYTES {
            let fault = XmlFault::TooLarge { what: "bytes", limit: MAX_DOCUMENT_BYTES };
            return Err(XmlError { line: 1, fault });
        }
        TreeBuilder::new(text).build()
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

/// Decodes a document by its byte order mark and XML declaration: UTF-8, US-ASCII or ISO-8859-1.
/// The mark is not part of the result.
pub fn decode(bytes: &[u8]) -> Result<String, XmlError> {
    let at_start = |fault| XmlError { line: 1, fault };
    if bytes.len() > MAX_DOCUMENT_BYTES {
        let fault = XmlFault::TooLarge { what: "bytes", limit: MAX_DOCUMENT_BYTES };
        return Err(at_start(fault));
    }
    if bytes.starts_with(&[0xfe, 0xff]) || bytes.starts_with(&[0xff, 0xfe]) {
        return Err(at_start(XmlFault::Encoding("UTF-16".to_owned())));
    }
    let (bytes, marked) = match bytes.strip_prefix(b"\xef\xbb\xbf") {
        Some(rest) => (rest, true),
        None => (bytes, false),
    };
    let declared = declared_encoding(bytes);
    let is_one_of = |names: &[&str]| {
        declared.as_ref().is_some_and(|d| names.iter().any(|name| d.eq_ignore_ascii_case(name)))
    };
    if marked || declared.is_none() || is_one_of(&["UTF-8", "UTF8"]) {
        return decode_utf8(bytes, "UTF-8");
    }
    if is_one_of(&["US-ASCII", "ASCII"]) {
        // A stray UTF-8 character in a comment is no reason to refuse the file.
        return decode_utf8(bytes, "US-ASCII");
    }
    if is_one_of(&["ISO-8859-1", "ISO8859-1", "ISO8859_1", "LATIN1", "LATIN-1"]) {
        return Ok(bytes.iter().map(|&byte| char::from(byte)).collect());
    }
    Err(at_start(XmlFault::Encoding(declared.unwrap_or_default())))
}

fn decode_utf8(bytes: &[u8], name: &'static str) -> Result<String, XmlError> {
    String::from_utf8(bytes.to_vec()).map_err(|e| {
        let sound = bytes.get(..e.utf8_error().valid_up_to()).unwrap_or_default();
        let line = sound.split(|&byte| byte == b'\n').count() as u32;
        XmlError { line, fault: XmlFault::NotText(name) }
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
    lines: LineIndex,
    open: Vec<Element>,
    root: Option<Element>,
}

impl<'a> TreeBuilder<'a> {
    fn new(text: &'a str) -> Self {
        let lines = LineIndex::new(text);
        Self { reader: Reader::from_str(text), lines, open: Vec::new(), root: None }
    }

    fn build(mut self) -> Result<Element, XmlError> {
        loop {
            let start = self.reader.buffer_position();
            let event = self.reader.read_event().map_err(|e| {
                let line = self.lines.line_at(self.reader.error_position());
                XmlError { line, fault: XmlFault::Syntax(e.to_string()) }
            })?;
            let line = self.lines.line_at(start);
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
                    let text = resolve(&reference).map_err(|fault| XmlError { line, fault })?;
                    self.append(&text, line)?;
                }
                Event::Comment(_) | Event::PI(_) | Event::Decl(_) | Event::DocType(_) => {}
                Event::Eof => break,
            }
        }
        let end = self.lines.last_line();
        if let Some(element) = self.open.pop() {
            let fault = XmlFault::Unclosed(element.name);
            return Err(XmlError { line: element.line, fault });
        }
        self.root.ok_or(XmlError { line: end, fault: XmlFault::Empty })
    }

    fn open(&mut self, tag: &BytesStart<'_>, start: u64) -> Result<(), XmlError> {
        let line = self.lines.line_at(start);
        if self.root.is_some() {
            return Err(XmlError { line, fault: XmlFault::BesideRoot });
        }
        if self.open.len() == MAX_DEPTH {
            let fault = XmlFault::TooLarge { what: "levels of elements", limit: MAX_DEPTH };
            return Err(XmlError { line, fault });
        }
        let name = tag.name().as_ref().to_owned();
        let attributes = self.attributes(tag, start)?;
        let (text, children) = (String::new(), Vec::new());
        self.open.push(Element { name, line, attributes, text, children });
        Ok(())
    }

    fn attributes(&self, tag: &BytesStart<'_>, start: u64) -> Result<Vec<Attribute>, XmlError> {
        let mut attributes = Vec::new();
        let tag_text: &str = tag;
        for attribute in tag.attributes() {
            let line = self.lines.line_at(start);
            let syntax = |e: String| XmlError { line, fault: XmlFault::Syntax(e) };
            if attributes.len() == MAX_ATTRIBUTES {
                let what = "attributes of one element";
                let fault = XmlFault::TooLarge { what, limit: MAX_ATTRIBUTES };
                return Err(XmlError { line, fault });
            }
            let attribute = attribute.map_err(|e| syntax(e.to_string()))?;
            let name = attribute.key.as_ref();
            // The parser borrows names from the tag, so their distance is the place in the tag.
            let offset = (name.as_ptr() as usize).wrapping_sub(tag_text.as_ptr() as usize);
            let offset = if offset < tag_text.len() { offset as u64 + 1 } else { 0 };
            let value = attribute
                .normalized_value(quick_xml::XmlVersion::Implicit1_0)
                .map_err(|e| syntax(e.to_string()))?;
            attributes.push(Attribute {
                name: name.to_owned(),
                value: value.into_owned(),
                line: self.lines.line_at(start + offset),
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

    fn append(&mut self, text: &str, line: u32) -> Result<(), XmlError> {
        match self.open.last_mut() {
            Some(element) => element.text.push_str(text),
            None if text.trim().is_empty() => {}
            None => return Err(XmlError { line, fault: XmlFault::BesideRoot }),
        }
        Ok(())
    }
}

fn resolve(reference: &BytesRef<'_>) -> Result<String, XmlFault> {
    match reference.resolve_char_ref() {
        Ok(Some(character)) => Ok(character.to_string()),
        Ok(None) => {
            let name: &str = reference;
            let text = resolve_predefined_entity(name);
            text.map(str::to_owned).ok_or_else(|| XmlFault::Entity(name.to_owned()))
        }
        Err(e) => Err(XmlFault::Syntax(e.to_string())),
    }
}

/// Where the lines of a text begin.
struct LineIndex {
    newlines: Vec<u64>,
}

impl LineIndex {
    fn new(text: &str) -> Self {
        let bytes = text.bytes().enumerate();
        Self { newlines: bytes.filter(|(_, b)| *b == b'\n').map(|(i, _)| i as u64).collect() }
    }

    fn line_at(&self, offset: u64) -> u32 {
        1 + self.newlines.partition_point(|&newline| newline < offset) as u32
    }

    fn last_line(&self) -> u32 {
        1 + self.newlines.len() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(text: &str) -> (u32, XmlFault) {
        let error = Element::parse(text).unwrap_err();
        (error.line, error.fault)
    }

    #[test]
    fn a_tree_knows_its_lines() {
        let text = "<?xml version='1.0'?>\n<!-- c -->\n<a>\n <b\n  x='1'\n  y=\"&lt;2\"/>\n \
                    <c>on<!-- no -->e &amp; <![CDATA[<two>]]> &#65;</c>\n</a>\n";
        let root = Element::parse(text).unwrap();
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
        assert!(matches!(fault("<a>\n<b>\n</a>"), (3, XmlFault::Syntax(_))));
        assert_eq!(fault("<a>\n<b>"), (2, XmlFault::Unclosed("b".to_owned())));
        assert_eq!(fault("<a/>\n<b/>"), (2, XmlFault::BesideRoot));
        assert_eq!(fault("text"), (1, XmlFault::BesideRoot));
        assert_eq!(fault("<!-- nothing -->\n"), (2, XmlFault::Empty));
        assert!(matches!(fault("<a>\n<b x='1' x='2'/></a>"), (2, XmlFault::Syntax(_))));
        assert!(matches!(fault("<a>\n<b x=1/></a>"), (2, XmlFault::Syntax(_))));
    }

    #[test]
    fn entities_of_the_document_are_never_expanded() {
        let bomb = "<!DOCTYPE a [<!ENTITY x \"boom\"><!ENTITY y \"&x;&x;&x;\">]>\n<a>\n&y;</a>";
        assert_eq!(fault(bomb), (3, XmlFault::Entity("y".to_owned())));
        let attribute = "<!DOCTYPE a [<!ENTITY x \"boom\">]>\n<a b='&x;'/>";
        assert!(matches!(fault(attribute), (2, XmlFault::Syntax(_))));
    }

    #[test]
    fn size_depth_and_attributes_are_bounded() {
        let nested = |depth| "<a>".repeat(depth) + &"</a>".repeat(depth);
        assert!(Element::parse(&nested(MAX_DEPTH)).is_ok());
        assert!(matches!(fault(&nested(MAX_DEPTH + 1)).1, XmlFault::TooLarge { .. }));
        let attributed = |count| {
            let attributes: Vec<_> = (0..count).map(|i| format!("a{i}='' ")).collect();
            format!("<a {}/>", attributes.concat())
        };
        assert!(Element::parse(&attributed(MAX_ATTRIBUTES)).is_ok());
        assert!(matches!(fault(&attributed(MAX_ATTRIBUTES + 1)).1, XmlFault::TooLarge { .. }));
        let long = format!("<a>{}</a>", " ".repeat(MAX_DOCUMENT_BYTES));
        assert!(matches!(fault(&long).1, XmlFault::TooLarge { .. }));
        assert!(matches!(decode(long.as_bytes()).unwrap_err().fault, XmlFault::TooLarge { .. }));
    }

    #[test]
    fn encodings_of_the_time_are_read() {
        let text = |bytes: &[u8]| Element::parse(&decode(bytes).unwrap()).unwrap().text;
        assert_eq!(text("<a>é</a>".as_bytes()), "é");
        assert_eq!(text(b"\xef\xbb\xbf<a>\xc3\xa9</a>"), "é");
        assert_eq!(text(b"<?xml version='1.0' encoding = \"iso-8859-1\" ?><a>\xe9</a>"), "é");
        assert_eq!(text(b"<?xml version='1.0' encoding='US-ASCII'?><a>e</a>"), "e");
        let refused = |bytes: &[u8]| decode(bytes).unwrap_err();
        assert_eq!(refused(b"<a>\n\xe9</a>").line, 2);
        assert_eq!(refused(b"<a>\n\xe9</a>").fault, XmlFault::NotText("UTF-8"));
        let shift_jis = b"<?xml version='1.0' encoding='Shift_JIS'?><a/>";
        assert_eq!(refused(shift_jis).fault, XmlFault::Encoding("Shift_JIS".to_owned()));
        assert_eq!(refused(b"\xff\xfe<\0").fault, XmlFault::Encoding("UTF-16".to_owned()));
    }
}
